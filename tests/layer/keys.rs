//! Keys of requests of any type.

use http::StatusCode;
use tower::{BoxError, Layer, ServiceExt, service_fn};
use tower_throttle::{
    AsError, FixedWindow, Quota, RateLimitLayer, RateLimited,
    key::{Extracted, KeyExtractor, Rejection},
};

fn once() -> FixedWindow {
    FixedWindow::new(Quota::per_day(1))
}

/// How many of `requests` pass a limit of one request per key.
async fn passed<R: Clone, K: KeyExtractor<R> + Clone + 'static>(keys: K, requests: &[R]) -> usize {
    let service = RateLimitLayer::new(keys, once())
        .respond(AsError)
        .layer(service_fn(|_: R| async { Ok::<_, BoxError>(()) }));
    let mut passed = 0;
    for request in requests {
        passed += usize::from(service.clone().oneshot(request.clone()).await.is_ok());
    }
    passed
}

/// Shows promise 52.
#[tokio::test]
async fn a_request_whose_key_is_none_shares_a_limit_and_only_skip_is_not_limited() {
    let requests = [None, None, Some(1), Some(1)];
    let optional = |req: &Option<u8>| *req;
    assert_eq!(passed(optional, &requests).await, 2);
    let rejected = |req: &Option<u8>| Ok::<_, StatusCode>(*req);
    assert_eq!(passed(rejected, &requests).await, 2);
    let free = |req: &Option<u8>| req.map_or(Extracted::Skip, Extracted::Key);
    assert_eq!(passed(free, &requests).await, 3);
}

/// Shows promise 52.
#[tokio::test]
async fn the_error_of_a_key_closure_becomes_the_rejection() {
    struct NotEven;
    impl From<NotEven> for Rejection {
        fn from(_: NotEven) -> Self {
            Self::new(StatusCode::IM_A_TEAPOT, "be even")
        }
    }
    let keys = |req: &u8| if req % 2 == 0 { Ok(*req) } else { Err(NotEven) };
    let service = RateLimitLayer::new(keys, once())
        .respond(AsError)
        .layer(service_fn(|_: u8| async { Ok::<_, BoxError>(()) }));
    assert!(service.clone().oneshot(2).await.is_ok());
    let error = service.oneshot(3).await.unwrap_err();
    let limited = error.downcast::<RateLimited>().unwrap();
    assert_eq!(limited.to_string(), "be even");
    assert_eq!(limited.status(), StatusCode::IM_A_TEAPOT);
    assert_eq!(limited.retry_after(), None);
    assert!(!limited.is_permanent());
}
