//! Machines with different configurations under one policy name, as in a rolling deploy.

use std::{future::Future, pin::Pin, time::Duration};

use tower_throttle::algorithm::AnyAlgorithm;
use tower_throttle::store::{
    Backend, Op, Receipt,
    redis::{Redis, RedisLimiter},
};
use tower_throttle::{
    Decision, FixedWindow, LeakyBucket, Quota, SlidingGrid, SlidingLog, SlidingWindow, TokenBucket,
    WarmUp,
};

use crate::redis_server::RedisServer;
use crate::{connect, open};

fn hourly(limit: u64) -> Quota {
    Quota::per_hour(limit)
}

/// A configuration, the most that it admits at once, and the longest time for which an exhausted key
/// of it is denied.
type Configuration = (&'static str, AnyAlgorithm, u64, Duration);

/// Quotas so long that nothing comes back during a test.
fn configurations() -> Vec<Configuration> {
    const HOUR: Duration = Duration::from_secs(3_600);
    let any = |name, algorithm, most, longest| (name, algorithm, most, longest);
    vec![
        any(
            "anchored 10/h",
            AnyAlgorithm::new(FixedWindow::new(hourly(10)).anchored()),
            10,
            HOUR,
        ),
        any(
            "anchored 10/2h",
            AnyAlgorithm::new(FixedWindow::new(Quota::per(10, 2 * HOUR)).anchored()),
            10,
            2 * HOUR,
        ),
        any(
            "log 10/h",
            AnyAlgorithm::new(SlidingLog::new(hourly(10))),
            10,
            HOUR,
        ),
        any(
            "log 7/2h",
            AnyAlgorithm::new(SlidingLog::new(Quota::per(7, 2 * HOUR))),
            7,
            2 * HOUR,
        ),
        any(
            "window 10/h",
            AnyAlgorithm::new(SlidingWindow::new(hourly(10))),
            10,
            2 * HOUR,
        ),
        any(
            "grid 10/h",
            AnyAlgorithm::new(SlidingGrid::new(hourly(10))),
            10,
            2 * HOUR,
        ),
        any(
            "grid 9/h",
            AnyAlgorithm::new(SlidingGrid::new(hourly(9)).cells(7)),
            9,
            2 * HOUR,
        ),
        any(
            "bucket 10/h",
            AnyAlgorithm::new(TokenBucket::new(hourly(10))),
            10,
            HOUR,
        ),
        any(
            "bucket 11/h",
            AnyAlgorithm::new(TokenBucket::new(hourly(11).burst(5))),
            5,
            HOUR,
        ),
        any(
            "meter 10/h",
            AnyAlgorithm::new(LeakyBucket::new(hourly(10))),
            10,
            HOUR,
        ),
        any(
            "warm-up 10/h",
            AnyAlgorithm::new(WarmUp::new(hourly(10), HOUR)),
            1,
            4 * HOUR,
        ),
        #[cfg(feature = "governor")]
        any(
            "gcra 10/h",
            AnyAlgorithm::new(tower_throttle::Gcra::new(hourly(10))),
            10,
            HOUR,
        ),
        #[cfg(feature = "governor")]
        any(
            "gcra 11/h",
            AnyAlgorithm::new(tower_throttle::Gcra::new(hourly(11))),
            11,
            HOUR,
        ),
    ]
}

async fn take(limiter: &RedisLimiter<AnyAlgorithm>) -> Decision {
    limiter.decide("key", 1).await.expect("a decision")
}

/// Shows promise 90.
#[tokio::test]
async fn alternating_configurations_admit_at_most_the_sum_of_their_promises() {
    let server = RedisServer::start();
    let all = configurations();
    for caches in [false, true] {
        let redis = if caches {
            open(&server.url()).await
        } else {
            open(&server.url()).await.without_deny_cache()
        };
        for (one, first) in all.iter().enumerate() {
            for (two, second) in all.iter().enumerate() {
                let policy = format!("pair-{caches}-{one}-{two}");
                let limiters = [first, second]
                    .map(|(_, algorithm, ..)| redis.limiter(&policy, algorithm.clone()));
                let mut admitted = 0;
                for call in 0..60 {
                    let decision = take(&limiters[call % 2]).await;
                    admitted += u64::from(decision.is_admitted());
                    let longest = [first.3, second.3][call % 2];
                    let retry = decision.retry_after.unwrap_or_default();
                    assert!(
                        decision.is_admitted() || retry <= longest,
                        "{} with {}: {decision:?}",
                        first.0,
                        second.0
                    );
                }
                let bound = first.2 + second.2;
                assert!(
                    admitted <= bound && admitted >= first.2,
                    "{} with {}: {admitted} of {bound}",
                    first.0,
                    second.0
                );
            }
        }
    }
}

/// Shows promise 90.
#[tokio::test]
async fn a_new_configuration_takes_over_the_usage_once() {
    let server = RedisServer::start();
    let redis = open(&server.url()).await.without_deny_cache();
    let machine = |limit| redis.limiter("rollout", TokenBucket::new(hourly(limit)));
    let (old, new) = (machine(10), machine(20));
    let left = async |limiter: &RedisLimiter<TokenBucket>, op| {
        let decision = limiter.apply("key", op).await.expect("a decision");
        decision.remaining()
    };
    assert_eq!(left(&old, Op::Take(4)).await, 6);
    // What was used, of a larger bucket.
    assert_eq!(left(&new, Op::Take(1)).await, 15);
    assert_eq!(left(&old, Op::Take(3)).await, 3, "its own state");
    assert_eq!(left(&new, Op::Take(1)).await, 14, "not again");
    assert_eq!(left(&old, Op::Peek(0)).await, 3);
}

#[tokio::test]
async fn a_reset_of_a_configuration_takes_over_nothing_again() {
    let server = RedisServer::start();
    let redis = open(&server.url()).await.without_deny_cache();
    for (one, (name, algorithm, most, _)) in configurations().into_iter().enumerate() {
        for (two, (other_name, other, ..)) in configurations().into_iter().enumerate() {
            // Its state is at a name of its own, or there is none.
            for has_state in [true, false] {
                let policy = format!("reset-{one}-{two}-{has_state}");
                let limiter = redis.limiter(&policy, algorithm.clone());
                let other = redis.limiter(&policy, other.clone());
                for call in 0..40 {
                    let is_first = has_state && call < 20;
                    let _ = take(if is_first { &limiter } else { &other }).await;
                }
                let _ = limiter.apply("key", Op::Reset).await.expect("a reset");
                let mut admitted = 0;
                for _ in 0..20 {
                    admitted += u64::from(take(&limiter).await.is_admitted());
                }
                assert_eq!(admitted, most, "{name} and {other_name}, {has_state}");
            }
        }
    }
}

/// Shows promise 93.
#[tokio::test]
async fn the_commands_that_an_error_asks_for_are_enough() {
    let server = RedisServer::start();
    let commands = [
        "eval", "evalsha", "time", "get", "set", "psetex", "del", "getrange", "setrange", "pttl",
        "pexpire",
    ];
    let mut rules = redis::cmd("ACL");
    rules.arg(&[
        "SETUSER", "small", "on", ">secret", "~*", "+hello", "+client",
    ]);
    for command in commands {
        rules.arg(format!("+{command}"));
    }
    let () = rules.query(&mut server.connection()).expect("a user");
    let url = server.url().replace("redis://", "redis://small:secret@");
    let redis = Redis::open(&url).expect("a url");
    let redis = redis.deadline(Duration::from_secs(10)).without_deny_cache();
    let redis = connect(redis).await;
    for (one, first) in configurations().into_iter().enumerate() {
        for (two, second) in configurations().into_iter().enumerate() {
            let policy = format!("acl-{one}-{two}");
            let limiters = [&first, &second]
                .map(|(_, algorithm, ..)| redis.limiter(&policy, algorithm.clone()));
            for op in [
                Op::Take(1),
                Op::Take(1),
                Op::Refund(1, Receipt::NOW),
                Op::Charge(3),
                Op::Reset,
            ] {
                for limiter in &limiters {
                    let _ = limiter.apply("key", op).await.expect("a decision");
                }
            }
        }
    }
}

/// Algorithms whose quota changes at run time.
fn changing(quota: Quota) -> Vec<AnyAlgorithm> {
    vec![
        AnyAlgorithm::new(FixedWindow::new(quota).anchored()),
        AnyAlgorithm::new(SlidingLog::new(quota)),
        AnyAlgorithm::new(SlidingWindow::new(quota)),
        AnyAlgorithm::new(SlidingGrid::new(quota)),
        AnyAlgorithm::new(TokenBucket::new(quota)),
        AnyAlgorithm::new(LeakyBucket::new(quota)),
        #[cfg(feature = "governor")]
        AnyAlgorithm::new(tower_throttle::Gcra::new(quota)),
    ]
}

/// Shows promise 90.
#[tokio::test]
async fn a_quota_that_is_changed_at_run_time_admits_at_most_the_sum() {
    const HOUR: Duration = Duration::from_secs(3_600);
    let server = RedisServer::start();
    let quotas = [hourly(10), Quota::per(7, 2 * HOUR), Quota::per(9, HOUR / 2)];
    for (number, algorithm) in changing(quotas[0]).into_iter().enumerate() {
        let redis = open(&server.url()).await.without_deny_cache();
        let limiter = redis.limiter(&format!("changes-{number}"), algorithm.clone());
        let mut admitted = 0;
        for turn in 0..60 {
            let quota = quotas[turn % 3];
            limiter.set_quota(quota).await.expect("stored");
            let decision = take(&limiter).await;
            admitted += u64::from(decision.is_admitted());
            let retry = decision.retry_after.unwrap_or_default();
            assert!(retry <= 2 * quota.period(), "{algorithm:?}: {decision:?}");
        }
        assert!((10..=26).contains(&admitted), "{algorithm:?}: {admitted}");
        // Each quota has a state of its own: a reset under one of them frees no other one.
        limiter.set_quota(quotas[1]).await.expect("stored");
        let _ = limiter.apply("key", Op::Reset).await.expect("a reset");
        assert!(take(&limiter).await.is_admitted(), "{algorithm:?}");
        limiter.set_quota(quotas[0]).await.expect("stored");
        let decision = take(&limiter).await;
        assert!(decision.is_denied(), "{algorithm:?}: a state is shared");
    }
}

/// Shows promise 90.
#[tokio::test]
async fn three_configurations_in_turn_admit_at_most_the_sum_of_their_promises() {
    let server = RedisServer::start();
    let redis = open(&server.url()).await.without_deny_cache();
    let all = configurations();
    for one in 0..all.len() {
        let three = [0, 1, 4].map(|more| &all[(one + more) % all.len()]);
        let policy = format!("three-{one}");
        let limiters = three.map(|(_, algorithm, ..)| redis.limiter(&policy, algorithm.clone()));
        let mut admitted = 0;
        for call in 0..90 {
            // In both directions.
            let at = [0, 1, 2, 1, 0, 2][call % 6];
            let decision = take(&limiters[at]).await;
            admitted += u64::from(decision.is_admitted());
            let retry = decision.retry_after.unwrap_or_default();
            assert!(
                decision.is_admitted() || retry <= three[at].3,
                "{decision:?}"
            );
        }
        let bound = three.iter().map(|(_, _, most, _)| most).sum();
        let names = three.map(|(name, ..)| *name);
        assert!(admitted <= bound, "{names:?}: {admitted} of {bound}");
    }
}

/// Shows promise 85.
#[tokio::test]
async fn states_of_all_configurations_expire() {
    let server = RedisServer::start();
    let redis = open(&server.url()).await;
    let machines: [Pin<Box<dyn Future<Output = bool>>>; 2] = [
        Box::pin(async {
            let log = redis.limiter("expire", SlidingLog::new(hourly(5)));
            log.decide("key", 1)
                .await
                .expect("a decision")
                .is_admitted()
        }),
        Box::pin(async {
            let bucket = redis.limiter("expire", TokenBucket::new(hourly(5)));
            bucket
                .decide("key", 1)
                .await
                .expect("a decision")
                .is_admitted()
        }),
    ];
    for machine in machines {
        assert!(machine.await);
    }
    let mut connection = server.connection();
    let names: Vec<String> = redis::cmd("KEYS")
        .arg("*")
        .query(&mut connection)
        .expect("a list");
    // Both states are in one value.
    assert_eq!(names.len(), 1, "{names:?}");
    for name in names {
        let ttl: i64 = redis::cmd("PTTL")
            .arg(&name)
            .query(&mut connection)
            .expect("a time");
        assert!((1..=3_601_005).contains(&ttl), "{name}: {ttl}");
    }
}
