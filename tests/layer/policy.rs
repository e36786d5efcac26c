//! The settings of a layer: cost, skipped requests, tiers, shadow mode.

use std::time::Duration;

use tower::{BoxError, Layer, ServiceExt, service_fn};
use tower_throttle::{
    AsError, FixedWindow, Global, Headers, Quota, RateLimitLayer, RateLimited, Settle, TokenBucket,
    algorithm::AnyAlgorithm,
    store::{Op, Receipt},
};

use crate::support::{Script, deny};

async fn echo(n: u64) -> Result<u64, BoxError> {
    Ok(n)
}

/// Shows promise 54.
#[tokio::test]
async fn the_closure_sets_the_cost_of_each_request() {
    let layer = RateLimitLayer::new(Global, FixedWindow::new(Quota::per_day(10)))
        .cost(|n: &u64| *n)
        .respond(AsError);
    let service = layer.layer(service_fn(echo));
    assert!(service.clone().oneshot(7).await.is_ok());
    assert!(service.clone().oneshot(4).await.is_err());
    assert!(service.clone().oneshot(3).await.is_ok());
    // A cost of zero is always admitted.
    assert!(service.clone().oneshot(0).await.is_ok());
    let never = service.oneshot(11).await.unwrap_err();
    let never = never.downcast_ref::<RateLimited>().unwrap();
    assert!(never.retry_after().is_none());
}

/// Shows promise 11.
#[test]
fn a_setting_without_effect_or_out_of_range_is_refused() {
    macro_rules! refused {
        ($($set:ident($($value:expr)?)),+) => {$(
            let layer = RateLimitLayer::new(Global, Script::default());
            let set = std::panic::AssertUnwindSafe(|| _ = layer.$set($($value)?));
            assert!(std::panic::catch_unwind(set).is_err(), stringify!($set));
        )+};
    }
    refused!(
        max_wait(Duration::MAX),
        queue_for(1),
        newest_first(),
        jitter(0),
        jitter(101)
    );
    refused!(name(""), name("caf\u{e9}"), name("a\n"));
    let with_a_queue = || RateLimitLayer::new(Global, Script::default()).queue(1);
    drop(
        with_a_queue()
            .max_wait(Duration::MAX)
            .queue_for(1)
            .jitter(100)
            .name(" ~"),
    );
    assert!(std::panic::catch_unwind(|| _ = with_a_queue().newest_first()).is_err());
}

/// Shows promise 54.
#[tokio::test]
async fn skipped_requests_are_not_counted_in_any_order_of_settings() {
    let script = Script::default();
    let one = RateLimitLayer::new(Global, script.clone())
        .skip(|n: &u64| *n == 0)
        .cost(|n: &u64| *n)
        .respond(AsError);
    let other = RateLimitLayer::new(Global, script.clone())
        .respond(AsError)
        .cost(|n: &u64| *n)
        .skip(|n: &u64| *n == 0);
    for n in [0, 2] {
        one.layer(service_fn(echo)).oneshot(n).await.unwrap();
        other.layer(service_fn(echo)).oneshot(n).await.unwrap();
    }
    assert_eq!(script.ops(), [Op::Take(2), Op::Take(2)]);
}

/// Shows promise 54.
#[tokio::test]
async fn shadow_mode_counts_but_denies_nothing() {
    let layer = RateLimitLayer::new(
        |n: &u64| {
            if *n == 9 {
                Err(http::StatusCode::FORBIDDEN)
            } else {
                Ok(())
            }
        },
        Script::now([deny(), deny()]),
    )
    .respond(AsError)
    .shadow();
    let service = layer.layer(service_fn(echo));
    for n in [1, 2, 3, 9] {
        assert_eq!(service.clone().oneshot(n).await.unwrap(), n);
    }
    let counts = layer.handle().counts();
    let shadow = (counts.shadow_denied, counts.shadow_rejected);
    assert_eq!((shadow, counts.admitted), ((2, 1), 1));
    assert_eq!((counts.denied, counts.rejected), (0, 0));
    // One that would wait in a line counts so, whatever the limit is by then.
    let day = Quota::per_day(1);
    let (bucket, window) = (TokenBucket::new(day), FixedWindow::new(day));
    for (longest, expected) in [(Duration::MAX, (1, 0)), (Duration::ZERO, (0, 1))] {
        let set = AnyAlgorithm::new((bucket, window));
        for algorithm in [AnyAlgorithm::new(bucket), AnyAlgorithm::new(window), set] {
            let layer = RateLimitLayer::new(Global, AnyAlgorithm::new(bucket));
            let layer = layer.queue(1).max_wait(longest).respond(AsError).shadow();
            let handle = layer.handle();
            handle.set_algorithm(algorithm.clone()).unwrap();
            for n in 0..2 {
                assert_eq!(layer.layer(service_fn(echo)).oneshot(n).await.unwrap(), n);
            }
            let counts = handle.counts();
            let found = (counts.shadow_waited, counts.shadow_denied);
            assert_eq!(found, expected, "{algorithm:?}");
        }
    }
    // A clone that is not in shadow mode denies, and counts that apart.
    let keys = |_: &u64| Err::<(), _>(http::StatusCode::FORBIDDEN);
    let layer = RateLimitLayer::new(keys, Script::default()).respond(AsError);
    let shadow = layer.clone().shadow();
    assert!(shadow.layer(service_fn(echo)).oneshot(1).await.is_ok());
    assert!(layer.layer(service_fn(echo)).oneshot(1).await.is_err());
    let counts = layer.handle().counts();
    assert_eq!((counts.rejected, counts.shadow_rejected), (1, 1));
    // Headers that were set before do not state it, and those that are set afterwards do.
    let layer = RateLimitLayer::new(Global, window)
        .headers(Headers::Draft11)
        .shadow();
    let unit = service_fn(async |_: http::Request<()>| Ok::<_, BoxError>(http::Response::new(())));
    let request = || http::Request::new(());
    let silent = layer.layer(unit).oneshot(request()).await.unwrap();
    assert!(!silent.headers().contains_key("ratelimit"));
    let stated = layer
        .headers(Headers::Draft11)
        .layer(unit)
        .oneshot(request());
    assert!(stated.await.unwrap().headers().contains_key("ratelimit"));
    // Another limit beside it goes on to decide.
    let shadow = RateLimitLayer::new(keys, Script::default()).shadow();
    let both = RateLimitLayer::new(Global, window).and(shadow);
    let service = both.clone().respond(AsError).layer(service_fn(echo));
    assert!(service.clone().oneshot(1).await.is_ok());
    assert!(service.oneshot(2).await.is_err());
    assert_eq!(both.handle().second().counts().shadow_rejected, 2);
}

/// Shows promise 321.
#[tokio::test]
async fn the_response_settles_the_total_cost() {
    for (settle, expected) in [
        (Settle::Keep, None),
        (Settle::Refund, Some(Op::Refund(5, Receipt::NOW))),
        (Settle::Charge(5), None),
        (Settle::Charge(2), Some(Op::Refund(3, Receipt::NOW))),
        (Settle::Charge(0), Some(Op::Refund(5, Receipt::NOW))),
        (Settle::Charge(u64::MAX), Some(Op::Charge(u64::MAX - 5))),
    ] {
        let script = Script::default();
        let layer = RateLimitLayer::new(Global, script.clone())
            .cost(|_: &u64| 5)
            .settle(move |_: &u64| settle)
            .respond(AsError);
        layer.layer(service_fn(echo)).oneshot(1).await.unwrap();
        let then: Vec<_> = script.ops().into_iter().skip(1).collect();
        assert_eq!(then, Vec::from_iter(expected), "{settle:?}");
    }
}
