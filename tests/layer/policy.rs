//! The settings of a layer: cost, skipped requests, tiers, shadow mode.

use tower::{BoxError, Layer, ServiceExt, service_fn};
use tower_throttle::{
    AnyAlgorithm, AsError, Decision, FixedWindow, Global, Quota, RateLimitLayer, RateLimited,
    Settle, SlidingLog, Tiers, TokenBucket,
    key::Key,
    store::{Backend, IntoBackend, Op, Receipt},
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

/// Shows promise 55.
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

/// Shows promise 55.
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

#[tokio::test]
async fn a_closure_of_the_result_settles_errors_of_the_service() {
    let odd_fails = async |n: u64| -> Result<u64, BoxError> {
        if n % 2 == 1 {
            Err(format!("{n} is odd").into())
        } else {
            Ok(n)
        }
    };
    let script = Script::default();
    let layer = RateLimitLayer::new(Global, script.clone())
        .settle(|result: Result<&u64, &BoxError>| match result {
            Ok(0) => Settle::Keep,
            Ok(_) => Settle::Refund,
            Err(_) => Settle::Charge(10),
        })
        .respond(AsError);
    let service = layer.layer(service_fn(odd_fails));
    assert_eq!(service.clone().oneshot(0).await.unwrap(), 0);
    assert_eq!(service.clone().oneshot(2).await.unwrap(), 2);
    let error = service.clone().oneshot(3).await.unwrap_err();
    assert_eq!(error.to_string(), "3 is odd", "the error is unchanged");
    assert_eq!(
        script.ops(),
        [
            Op::Take(1),
            Op::Take(1),
            Op::Refund(1, Receipt::NOW),
            Op::Take(1),
            Op::Charge(9)
        ]
    );
}

/// Shows promise 55.
#[tokio::test]
async fn a_denied_request_is_not_settled() {
    let script = Script::now([deny()]);
    let layer = RateLimitLayer::new(Global, script.clone())
        .settle(|_: Result<&u64, &BoxError>| Settle::Refund)
        .respond(AsError);
    layer.layer(service_fn(echo)).oneshot(1).await.unwrap_err();
    assert_eq!(script.ops(), [Op::Take(1)]);
}

/// Shows promise 55.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Plan {
    Free,
    Pro,
    Internal,
}

impl Key for Plan {}

/// Shows promise 54.
#[tokio::test]
async fn each_tier_has_its_own_limit_and_count() {
    let limits = Tiers::new(FixedWindow::new(Quota::per_day(1)))
        .tier(Plan::Pro, FixedWindow::new(Quota::per_day(3)))
        .tier(Plan::Internal, FixedWindow::new(Quota::per_day(5)));
    let layer = RateLimitLayer::new(|req: &(Plan, u64)| *req, limits)
        .name("plan")
        .respond(AsError);
    let service = layer.layer(service_fn(|_: (Plan, u64)| async { Ok::<_, BoxError>(()) }));
    let mut passed = Vec::new();
    let mut names = Vec::new();
    for plan in [Plan::Free, Plan::Pro, Plan::Internal] {
        let mut count = 0;
        loop {
            match service.clone().oneshot((plan, 7)).await {
                Ok(()) => count += 1,
                Err(error) => {
                    let limited = error.downcast::<RateLimited>().unwrap();
                    names.push(limited.policy().unwrap().to_owned());
                    break;
                }
            }
        }
        passed.push(count);
    }
    assert_eq!(passed, [1, 3, 5]);
    assert_eq!(names, ["plan-1", "plan-2", "plan-3"]);
    assert!(service.oneshot((Plan::Free, 8)).await.is_ok());
}

/// How many of the requests of customers in tiers pass a limit of one per day.
async fn passed<L>(limit: L, requests: &[(u8, u64)]) -> usize
where
    L: IntoBackend<Backend: Backend<(u8, u64)>>,
{
    let layer = RateLimitLayer::new(|req: &(u8, u64)| *req, limit).respond(AsError);
    let service = layer.layer(service_fn(|_: (u8, u64)| async { Ok::<_, BoxError>(()) }));
    let mut passed = 0;
    for request in requests {
        passed += usize::from(service.clone().oneshot(*request).await.is_ok());
    }
    passed
}

/// Shows promise 54.
#[tokio::test]
async fn unlisted_tiers_share_one_count_per_customer() {
    let one = || FixedWindow::new(Quota::per_day(1));
    let invented: Vec<_> = (1..=50).map(|tier| (tier, 7)).collect();
    let tiers = || Tiers::new(one()).tier(0, one());
    assert_eq!(passed(tiers(), &invented).await, 1);
    assert_eq!(passed(tiers(), &[(0, 7), (1, 7), (2, 8)]).await, 3);
    // Planted bug: the tier is part of what is counted.
    assert_eq!(passed(one(), &invented).await, 50);
}

#[tokio::test]
async fn several_limits_all_admit_or_take_nothing() {
    let both = (
        TokenBucket::new(Quota::per_day(10)),
        SlidingLog::new(Quota::per_day(2)),
    );
    let layer = RateLimitLayer::new(Global, both).respond(AsError);
    let service = layer.layer(service_fn(echo));
    let mut admitted = Vec::new();
    for n in 0..5 {
        admitted.push(service.clone().oneshot(n).await.is_ok());
    }
    assert_eq!(admitted, [true, true, false, false, false]);
    // The bucket did not count what the log denied.
    let left: Decision = layer.handle().peek(&(), 0).await.unwrap();
    assert_eq!(left.remaining(), 0);
    layer.handle().reset(&()).await.unwrap();
}

#[tokio::test]
async fn tiers_may_have_different_algorithms_and_change_at_run_time() {
    let limits = Tiers::new(AnyAlgorithm::from(FixedWindow::new(Quota::per_day(1))))
        .tier(
            Plan::Pro,
            AnyAlgorithm::from(TokenBucket::new(Quota::per_day(3))),
        )
        .tier(
            Plan::Internal,
            AnyAlgorithm::from((
                SlidingLog::new(Quota::per_hour(2)),
                FixedWindow::new(Quota::per_day(5)),
            )),
        );
    let layer = RateLimitLayer::new(|req: &(Plan, u64)| *req, limits)
        .name("plan")
        .respond(AsError);
    let handle = layer.handle();
    let service = layer.layer(service_fn(|_: (Plan, u64)| async { Ok::<_, BoxError>(()) }));
    let left = |plan| handle.tier(&plan).peek_now(&7, 0).remaining();
    for plan in [Plan::Free, Plan::Pro, Plan::Internal] {
        service.clone().oneshot((plan, 7)).await.unwrap();
    }
    assert_eq!((left(Plan::Free), left(Plan::Pro)), (0, 2));
    assert_eq!(left(Plan::Internal), 1);

    // The same algorithm keeps what was used; another one starts afresh.
    let bucket = TokenBucket::new(Quota::per_day(10));
    handle.tier(&Plan::Pro).set_algorithm(bucket).unwrap();
    assert_eq!(left(Plan::Pro), 9, "what was used stays used");
    let window = FixedWindow::new(Quota::per_day(4));
    handle.tier(&Plan::Internal).set_algorithm(window).unwrap();
    assert_eq!(left(Plan::Internal), 4);
    handle
        .tier(&Plan::Free)
        .set_quota(Quota::per_day(2))
        .unwrap();
    assert_eq!(left(Plan::Free), 1);

    // The internal tier has one limit now, which is the last one of all tiers.
    handle.tier(&Plan::Internal).charge(&7, 100);
    let error = service.oneshot((Plan::Internal, 7)).await.unwrap_err();
    let limited = error.downcast::<RateLimited>().unwrap();
    assert_eq!(limited.policy(), Some("plan-3"));
    assert_eq!(limited.decision().unwrap().policy, 2);
}

#[tokio::test]
async fn the_last_limit_set_for_a_tier_applies() {
    let limits = Tiers::new(FixedWindow::new(Quota::per_day(1)))
        .tier(Plan::Pro, FixedWindow::new(Quota::per_day(2)))
        .tier(Plan::Pro, FixedWindow::new(Quota::per_day(3)));
    let layer = RateLimitLayer::new(|req: &(Plan, u64)| *req, limits);
    let pro = layer.handle().tier(&Plan::Pro).peek_now(&7, 0);
    assert_eq!(pro.remaining(), 3);
}
