//! The settings of a layer: cost, skipped requests, tiers, shadow mode.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use tower::{BoxError, Layer, ServiceExt, service_fn};
use tower_throttle::{
    AnyAlgorithm, AsError, FixedWindow, Global, LeakyBucket, Local, ManualClock, Quota,
    RateLimitLayer, RateLimited, Settle, SlidingGrid, SlidingLog, SlidingWindow, TokenBucket,
    store::{Backend, Op, Plan, Quotas, Receipt},
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
    assert!(
        service.clone().oneshot(0).await.is_ok(),
        "a cost of zero is always admitted"
    );
    let never = service.oneshot(11).await.unwrap_err();
    let never = never.downcast_ref::<RateLimited>().unwrap();
    assert!(never.is_permanent() && never.retry_after().is_none());
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
    // A clone that is not in shadow mode denies, and counts that apart.
    let keys = |_: &u64| Err::<(), _>(http::StatusCode::FORBIDDEN);
    let layer = RateLimitLayer::new(keys, Script::default()).respond(AsError);
    let shadow = layer.clone().shadow();
    assert!(shadow.layer(service_fn(echo)).oneshot(1).await.is_ok());
    assert!(layer.layer(service_fn(echo)).oneshot(1).await.is_err());
    let counts = layer.handle().counts();
    assert_eq!((counts.rejected, counts.shadow_rejected), (1, 1));
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

/// Shows promise 321.
#[tokio::test]
async fn an_error_of_the_service_keeps_the_cost() {
    let script = Script::default();
    let failing = service_fn(|_: u64| async { Err::<u64, BoxError>("broken".into()) });
    let layer = RateLimitLayer::new(Global, script.clone())
        .settle(|_: &u64| Settle::Refund)
        .respond(AsError);
    layer.layer(failing).oneshot(1).await.unwrap_err();
    assert_eq!(script.ops(), [Op::Take(1)]);
}

/// Shows promise 321.
#[tokio::test]
async fn a_denied_request_is_not_settled() {
    let script = Script::now([deny()]);
    let layer = RateLimitLayer::new(Global, script.clone())
        .settle(|_: Result<&u64, &BoxError>| Settle::Refund)
        .respond(AsError);
    layer.layer(service_fn(echo)).oneshot(1).await.unwrap_err();
    assert_eq!(script.ops(), [Op::Take(1)]);
}

/// Shows promise 321.
#[tokio::test]
async fn only_failures_count_and_settling_twice_or_never_is_detected() {
    // With 3 per day, 2 successes are refunded and 3 failures are counted.
    let admitted = async |times: u32| {
        let limit = RateLimitLayer::new(Global, FixedWindow::new(Quota::per_day(3)));
        let handle = limit.handle();
        let layer = limit
            .settle(move |result: Result<&u64, &BoxError>| match result {
                Ok(_) if times > 0 => {
                    // The planted bug: refunds in addition to the layer's own refund.
                    for _ in 1..times {
                        drop(handle.refund(&(), 1));
                    }
                    Settle::Refund
                }
                _ => Settle::Keep,
            })
            .respond(AsError);
        let service = layer.layer(service_fn(async |n: u64| {
            if n == 0 {
                Err(BoxError::from("no"))
            } else {
                Ok(n)
            }
        }));
        let mut reached = 0;
        for n in [0, 1, 0, 1, 0, 0, 0] {
            let result = service.clone().oneshot(n).await;
            let refused = result.is_err_and(|error| error.is::<RateLimited>());
            reached += u32::from(!refused);
        }
        reached
    };
    assert_eq!(admitted(1).await, 5);
    assert_eq!(admitted(0).await, 3, "no refund");
    assert_eq!(admitted(2).await, 7, "two refunds");
}

fn per_day(limit: u64) -> FixedWindow {
    FixedWindow::new(Quota::per_day(limit))
}

/// Shows promise 54.
#[tokio::test]
async fn each_tier_has_its_own_limit_and_count() {
    // By customer alone: a tier that is not listed makes no difference.
    let tier_of = |customer: &u64| match customer {
        0..10 => Plan::Tier("pro"),
        10..20 => Plan::Tier("both"),
        20..30 => Plan::Tier("invented"),
        _ => Plan::Default,
    };
    let both = (SlidingLog::new(Quota::per_hour(9)), per_day(5));
    let limits = Quotas::new(per_day(1), tier_of)
        .tier("pro", per_day(2))
        .tier("pro", TokenBucket::new(Quota::per_day(3)))
        .tier("both", both);
    let layer = RateLimitLayer::new(|req: &u64| *req, limits)
        .name("plan")
        .respond(AsError);
    let service = layer.layer(service_fn(|_: u64| async { Ok::<_, BoxError>(()) }));
    for (customer, expected, name) in [
        (1, 3, "pro"),
        (2, 3, "pro"),
        (11, 5, "both-2"),
        (21, 1, "plan"),
        (31, 1, "plan"),
    ] {
        let mut count = 0;
        let denied = loop {
            match service.clone().oneshot(customer).await {
                Ok(()) => count += 1,
                Err(error) => break error.downcast::<RateLimited>().unwrap(),
            }
        };
        assert_eq!((count, denied.policy()), (expected, Some(name)));
    }
}

/// Shows promise 54.
#[tokio::test]
async fn a_customer_gains_nothing_by_inventing_tiers() {
    // The key is the customer. The tier comes from elsewhere, and changes.
    let turn = Arc::new(AtomicUsize::new(0));
    let tiers = ["a", "b", "c", "d", "e"];
    let limit = {
        let turn = Arc::clone(&turn);
        let tier = move |_: &u64| Plan::Tier(tiers[turn.fetch_add(1, Relaxed) % 5]);
        Quotas::new(per_day(1), tier).tier("z", per_day(1))
    };
    let mut admitted = 0;
    for _ in 0..50 {
        admitted += u64::from(limit.decide(&7, 1).await.unwrap().is_admitted());
    }
    assert_eq!(admitted, 1);
    // Planted bug: the tier is part of what is counted.
    let wrong = Quotas::new(per_day(1), |_: &(u64, u64)| Plan::Default);
    let mut admitted = 0;
    for turn in 0..50 {
        let decision = wrong.decide(&(turn % 5, 7), 1).await.unwrap();
        admitted += u64::from(decision.is_admitted());
    }
    assert_eq!(admitted, 5);
}

/// Shows promise 352.
#[tokio::test]
async fn a_quota_that_changes_to_and_fro_frees_nothing() {
    let minute = Duration::from_secs(60);
    let per = move |limit| Quota::per(limit, minute);
    let all = [
        AnyAlgorithm::new(TokenBucket::new(per(5))),
        AnyAlgorithm::new(LeakyBucket::new(per(5))),
        AnyAlgorithm::new(FixedWindow::new(per(5))),
        AnyAlgorithm::new(SlidingLog::new(per(5))),
        AnyAlgorithm::new(SlidingWindow::new(per(5))),
        AnyAlgorithm::new(SlidingGrid::new(per(5))),
    ];
    for algorithm in all {
        let clock = ManualClock::new();
        clock.advance(minute * 100);
        let table = Local::new(algorithm.clone()).with_clock(clock.clone());
        let limit = Arc::new(AtomicU64::new(10));
        let shown = Arc::clone(&limit);
        let quotas = Quotas::new(table, move |_: &u64| Plan::Quota(per(shown.load(Relaxed))));
        let left = async |now| {
            limit.store(now, Relaxed);
            quotas.apply(&7, Op::Peek(0)).await.unwrap().remaining()
        };
        for _ in 0..8 {
            assert!(quotas.decide(&7, 1).await.unwrap().is_admitted());
        }
        for (now, expected) in [(10, 2), (30, 22), (4, 0), (9, 1), (30, 22), (10, 2)] {
            assert_eq!(left(now).await, expected, "{now}: {algorithm:?}");
        }
        clock.advance(minute * 2);
        assert_eq!(left(30).await, 30, "{algorithm:?}");
    }
}
