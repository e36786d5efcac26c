//! A lockout of the denials of another limit, in a layer.

use std::time::Duration;

use http::{Request, Response, header::RETRY_AFTER};
use tower::{BoxError, Layer, ServiceExt, service_fn};
use tower_throttle::algorithm::DenialLockout;
use tower_throttle::{
    AsError, FixedWindow, Global, HeaderKey, Headers, Local, Lockout, ManualClock, Quota,
    RateLimitLayer, SlidingLog, TokenBucket,
    store::{Plan, Quotas},
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
    assert_eq!(handle.blocked(), 1);
    clock.advance(Duration::from_secs(59));
    assert_eq!(ask("a").await.1, told("1"));
    clock.advance(Duration::from_secs(1));
    assert_eq!((handle.blocked(), ask("a").await.0), (0, 200));

    let [a, b] = ["a", "b"].map(HeaderKey::key);
    handle.ban(&a, Duration::from_secs(600)).await.unwrap();
    assert_eq!(ask("a").await.1, told("600"));
    handle.pardon(&a).await.unwrap();
    assert_eq!(ask("a").await.0, 200);
    for _ in 0..4 {
        assert!(handle.peek_now(&b, 3).is_denied());
    }
    assert_eq!(handle.blocked(), 0, "a peek does not count");
}

/// Both limits of a chain see what they deny, whichever of them is asked first.
///
/// Shows promise 224.
#[tokio::test]
async fn a_lockout_counts_its_denials_in_a_chain_of_limits() {
    let clock = ManualClock::new();
    let locked = || Local::new(limit()).with_clock(clock.clone());
    let window = || Local::new(SlidingLog::new(Quota::per_minute(4))).with_clock(clock.clone());
    let first = RateLimitLayer::new(Global, locked()).and(RateLimitLayer::new(Global, window()));
    let second = RateLimitLayer::new(Global, window()).and(RateLimitLayer::new(Global, locked()));
    let (in_first, in_second) = (first.handle(), second.handle());
    let service = service_fn(async |(): ()| Ok::<_, BoxError>(()));
    let (first, second) = (
        first.respond(AsError).layer(service),
        second.respond(AsError).layer(service),
    );
    for n in 0..8 {
        let admitted = [
            first.clone().oneshot(()).await.is_ok(),
            second.clone().oneshot(()).await.is_ok(),
        ];
        assert_eq!(admitted, [n < 2; 2], "{n}");
        let blocked = [in_first.first().blocked(), in_second.second().blocked()];
        assert_eq!(blocked, [usize::from(n >= 4); 2], "{n}");
    }
    // What the other limit denies is none of its denials.
    let none = || Local::new(FixedWindow::new(Quota::per_day(1))).with_clock(clock.clone());
    let layer = RateLimitLayer::new(Global, locked()).and(RateLimitLayer::new(Global, none()));
    let handle = layer.handle();
    let service = layer.respond(AsError).layer(service);
    for n in 0..20 {
        assert_eq!(service.clone().oneshot(()).await.is_ok(), n == 0, "{n}");
    }
    assert_eq!(handle.first().blocked(), 0);
    assert_eq!(handle.first().peek_now(&(), 0).remaining(), 1);
}

#[tokio::test]
async fn a_lockout_counts_its_denials_in_a_tier_of_a_chain() {
    let window = FixedWindow::new(Quota::per_minute(100));
    let tiers = Quotas::new(window, |paid: &bool| match paid {
        true => Plan::Tier("paid"),
        false => Plan::Default,
    });
    let tiers = tiers.tier("paid", limit());
    let layer = RateLimitLayer::new(|_: &bool| 1, SlidingLog::new(Quota::per_minute(100)))
        .and(RateLimitLayer::new(|paid: &bool| *paid, tiers))
        .respond(AsError);
    let handle = layer.handle().second();
    let service = layer.layer(service_fn(async |_: bool| Ok::<_, BoxError>(())));
    for n in 0..6 {
        let admitted = service.clone().oneshot(true).await.is_ok();
        assert_eq!(admitted, n < 2, "{n}");
    }
    let retry = async |paid| handle.peek(&paid, 1).await.unwrap().retry_after;
    assert!(retry(true).await > Some(Duration::from_secs(50)), "a block");
    assert_eq!(retry(false).await, None);
}
