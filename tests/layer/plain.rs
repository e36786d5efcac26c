//! Services that are not HTTP.

use tower::{BoxError, Layer, ServiceExt, service_fn};
use tower_throttle::{
    AsError, Global, Quota, RateLimitLayer, RateLimited, TokenBucket,
    respond::{Opaque, Respond},
};

#[derive(Debug, PartialEq)]
enum MyError {
    Busy(u64),
}

impl From<RateLimited> for MyError {
    fn from(limited: RateLimited) -> Self {
        Self::Busy(limited.retry_after().unwrap_or_default().as_secs())
    }
}

fn hourly() -> TokenBucket {
    TokenBucket::new(Quota::per_hour(1))
}

/// Shows promise 49.
#[tokio::test]
async fn a_denial_becomes_the_error_of_the_service() {
    let double = service_fn(|n: u32| async move { Ok::<_, MyError>(n * 2) });
    let service = RateLimitLayer::new(Global, hourly())
        .respond(AsError)
        .layer(double);
    assert_eq!(service.clone().oneshot(21).await, Ok(42));
    let denied = service.oneshot(21).await;
    assert!(
        matches!(denied, Err(MyError::Busy(3_500..=3_600))),
        "{denied:?}"
    );
}

#[derive(Clone)]
struct Busy;

impl<E> Respond<String, String, E> for Busy {
    type Protocol = Opaque;

    fn deny(&self, request: String, denied: RateLimited) -> Result<String, E> {
        Ok(format!("BUSY {request} {}", denied.status().as_u16()))
    }
}

/// Shows promise 49.
#[tokio::test]
async fn a_custom_respond_impl_sees_the_request() {
    let redis = service_fn(|line: String| async move { Ok::<_, BoxError>(line) });
    let service = RateLimitLayer::new(Global, hourly())
        .respond(Busy)
        .layer(redis);
    assert_eq!(
        service.clone().oneshot("GET a".into()).await.unwrap(),
        "GET a"
    );
    assert_eq!(
        service.oneshot("GET b".into()).await.unwrap(),
        "BUSY GET b 429"
    );
}
