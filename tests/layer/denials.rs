//! A lockout of the denials of another limit, in a layer.

use std::time::Duration;

use http::{Request, Response, header::RETRY_AFTER};
use tower::{BoxError, Layer, ServiceExt, service_fn};
use tower_throttle::algorithm::DenialLockout;
use tower_throttle::{
    HeaderKey, Headers, Local, Lockout, ManualClock, Quota, RateLimitLayer, TokenBucket,
};

/// Two per second; a minute after three denials in ten seconds.
fn limit() -> DenialLockout<TokenBucket> {
    let lockout = Lockout::new(Quota::per(3, Duration::from_secs(10)));
    lockout.after_denials_of(TokenBucket::new(Quota::per_second(2)))
}

/// Shows promise 224.
#[tokio::test]
async fn a_client_that_goes_on_after_it_was_denied_is_blocked_and_told_until_when() {
    let clock = ManualClock::new();
    let keys = HeaderKey::new("x-client");
    let layer = RateLimitLayer::new(keys, Local::new(limit()).with_clock(clock.clone()))
        .name("api")
        .headers(Headers::Draft11);
    let handle = layer.handle();
    let service = layer.layer(service_fn(async |_: Request<String>| {
        Ok::<_, BoxError>(Response::new(String::new()))
    }));
    let ask = async |client: &str| {
        let request = Request::builder().header("x-client", client);
        let request = request.body(String::new()).unwrap();
        let response = service.clone().oneshot(request).await.unwrap();
        let text = |name: &str| {
            let value = response.headers().get(name);
            value.map(|value| value.to_str().unwrap().to_owned())
        };
        (
            response.status().as_u16(),
            text(RETRY_AFTER.as_str()),
            text("ratelimit"),
            text("ratelimit-policy"),
        )
    };
    let told = |text: &str| Some(text.to_owned());
    let policy = told("\"api\";q=2;w=1");
    for retry in [None, None, told("1"), told("1"), told("60"), told("60")] {
        let status = if retry.is_some() { 429 } else { 200 };
        let (found, after, _, quota) = ask("a").await;
        assert_eq!((found, after, quota), (status, retry, policy.clone()));
    }
    let limited = told("\"api\";r=0;t=60");
    assert_eq!(ask("a").await.2, limited);
    assert_eq!(ask("b").await.0, 200);
    assert_eq!(handle.backend().blocked(), 1);
    clock.advance(Duration::from_secs(59));
    assert_eq!(ask("a").await.1, told("1"));
    clock.advance(Duration::from_secs(1));
    assert_eq!((handle.backend().blocked(), ask("a").await.0), (0, 200));

    let [a, b] = ["a", "b"].map(HeaderKey::key);
    handle.ban(&a, Duration::from_secs(600)).await.unwrap();
    assert_eq!(ask("a").await.1, told("600"));
    handle.reset(&a).await.unwrap();
    assert_eq!(ask("a").await.0, 200);
    for _ in 0..4 {
        assert!(handle.peek_now(&b, 3).is_denied());
    }
    assert_eq!(handle.backend().blocked(), 0, "a peek does not count");
}
