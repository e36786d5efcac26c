//! The public API of limits in Redis.

use std::time::Duration;

use tower_throttle::algorithm::AnyAlgorithm;
use tower_throttle::store::redis::Redis;
use tower_throttle::{
    All, FixedWindow, LeakyBucket, Lockout, Quota, SlidingGrid, SlidingLog, SlidingWindow,
    TokenBucket, Verdict, WarmUp,
    store::{Backend, Op, Receipt},
};

use crate::redis::{calls_of, open};
use crate::redis_server::RedisServer;
use crate::wait::connected;

/// A long deadline: these tests are not about speed.
fn hourly(limit: u64) -> Quota {
    Quota::per_hour(limit)
}

fn names(server: &RedisServer) -> Vec<String> {
    let mut names: Vec<String> = redis::cmd("KEYS")
        .arg("*")
        .query(&mut server.connection())
        .expect("a list");
    names.sort();
    names
}

/// Shows promise 83.
#[tokio::test]
async fn two_machines_share_one_limit() {
    let server = RedisServer::start();
    let machines = [open(&server.url()).await, open(&server.url()).await]
        .map(|redis| redis.limiter("login", SlidingLog::new(hourly(3))));
    let mut admitted = 0;
    for turn in 0..10 {
        let decision = machines[turn % 2]
            .decide("ann", 1)
            .await
            .expect("a decision");
        admitted += u32::from(decision.is_admitted());
    }
    assert_eq!(admitted, 3);
    assert!(machines[0].decide("bob", 1).await.unwrap().is_admitted());
}

#[tokio::test]
async fn a_detached_operation_is_executed() {
    let server = RedisServer::start();
    let redis = open(&server.url()).await;
    let limiter = redis.limiter("left", FixedWindow::new(hourly(10)).anchored());
    assert!(limiter.decide("ann", 5).await.unwrap().is_admitted());
    limiter.detach("ann", Op::Refund(3, Receipt::NOW));
    // This call is queued behind the detached one, which nothing here has polled.
    tokio::task::yield_now().await;
    let left = limiter.apply("ann", Op::Peek(0)).await.unwrap();
    assert_eq!(left.remaining(), 8);
    // Polled once and dropped: it was not sent.
    let mut refund = limiter.apply("ann", Op::Refund(1, Receipt::NOW));
    assert!(
        std::pin::Pin::new(&mut refund)
            .poll(&mut std::task::Context::from_waker(std::task::Waker::noop()))
            .is_pending()
    );
    drop(refund);
    let left = limiter.apply("ann", Op::Peek(0)).await.unwrap();
    assert_eq!(left.remaining(), 8, "was not sent");
}

/// Shows promise 83.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_calls_are_admitted_exactly_up_to_the_limit() {
    let server = RedisServer::start();
    let redis = open(&server.url()).await;
    let window = redis.limiter("crowd", FixedWindow::new(hourly(100)).anchored());
    let bucket = redis.limiter("bucket", TokenBucket::new(hourly(100)));
    let calls: Vec<_> = (0..1_000)
        .map(|_| (window.decide("key", 1), bucket.decide("key", 1)))
        .collect();
    let (mut by_window, mut by_bucket) = (0, 0);
    for (window, bucket) in calls {
        by_window += u32::from(window.await.unwrap().is_admitted());
        by_bucket += u32::from(bucket.await.unwrap().is_admitted());
    }
    assert_eq!((by_window, by_bucket), (100, 100));
}

#[tokio::test]
async fn every_algorithm_takes_peeks_refunds_charges_and_resets() {
    async fn goes<A: tower_throttle::algorithm::Algorithm>(
        redis: &Redis,
        name: &str,
        algorithm: A,
    ) {
        let limiter = redis.limiter(name, algorithm);
        let apply = async |op| limiter.apply("key", op).await.expect(name);
        let all = apply(Op::Peek(0)).await.remaining();
        assert!(apply(Op::Take(1)).await.is_admitted(), "{name}");
        let left = apply(Op::Peek(1)).await.remaining();
        assert!(left < all, "{name}: {left} of {all}");
        assert_eq!(
            apply(Op::Peek(0)).await.remaining(),
            left,
            "{name}: peeks take nothing"
        );
        let _ = apply(Op::Refund(1, Receipt::NOW)).await;
        assert_eq!(
            apply(Op::Peek(0)).await.remaining(),
            all,
            "{name}: refunded"
        );
        let _ = apply(Op::Charge(1_000)).await;
        let refused = apply(Op::Take(1)).await;
        assert!(
            refused.is_denied() && refused.retry_after.is_some(),
            "{name}: {refused:?}"
        );
        let _ = apply(Op::Reset).await;
        assert_eq!(apply(Op::Peek(0)).await.remaining(), all, "{name}: reset");
    }
    let server = RedisServer::start();
    let redis = open(&server.url()).await;
    let quota = hourly(10);
    goes(&redis, "fixed", FixedWindow::new(quota)).await;
    goes(&redis, "anchored", FixedWindow::new(quota).anchored()).await;
    goes(&redis, "log", SlidingLog::new(quota)).await;
    goes(&redis, "window", SlidingWindow::new(quota)).await;
    goes(&redis, "grid", SlidingGrid::new(quota)).await;
    goes(&redis, "token", TokenBucket::new(quota)).await;
    goes(&redis, "meter", LeakyBucket::new(quota)).await;
    goes(&redis, "queue", LeakyBucket::new(quota).queue(2)).await;
    let both = (TokenBucket::new(quota), FixedWindow::new(quota));
    goes(&redis, "pair", both).await;
    goes(
        &redis,
        "all",
        All::new([quota, hourly(20)].map(TokenBucket::new)),
    )
    .await;
}

#[tokio::test]
async fn an_algorithm_chosen_at_run_time_is_shared() {
    let server = RedisServer::start();
    let redis = open(&server.url()).await;
    let chosen = |kind: &str| match kind {
        "window" => AnyAlgorithm::new(FixedWindow::new(hourly(2)).anchored()),
        "pair" => AnyAlgorithm::new((TokenBucket::new(hourly(2)), FixedWindow::new(hourly(3)))),
        _ => AnyAlgorithm::new(TokenBucket::new(hourly(2))),
    };
    for kind in ["window", "bucket", "pair"] {
        let machines = [(); 2].map(|()| redis.limiter(kind, chosen(kind)));
        for (turn, admits) in [true, true, false, false].into_iter().enumerate() {
            let decided = machines[turn % 2].decide("key", 1).await.expect("decided");
            assert_eq!(decided.is_admitted(), admits, "{kind}, {turn}");
        }
    }
}

/// What the server has no script for is decided in this process, on a state in the same server.
///
/// Shows promise 190.
#[tokio::test]
async fn what_has_no_script_is_shared_too() {
    let server = RedisServer::start();
    let redis = open(&server.url()).await;
    let bucket = TokenBucket::new(hourly(2));
    for (name, algorithm) in [
        ("lockout", AnyAlgorithm::new(Lockout::new(hourly(2)))),
        (
            "denials",
            AnyAlgorithm::new(Lockout::new(hourly(9)).after_denials_of(bucket)),
        ),
        (
            "debt",
            AnyAlgorithm::new(FixedWindow::new(Quota::per(2, Duration::new(3_600, 1)))),
        ),
        (
            "log",
            AnyAlgorithm::new((SlidingLog::new(hourly(2_000)), bucket)),
        ),
        ("set", AnyAlgorithm::new((bucket, Lockout::new(hourly(9))))),
    ] {
        let machines = [(); 2].map(|()| redis.limiter(name, algorithm.clone()));
        for (turn, admits) in [true, true, false, false].into_iter().enumerate() {
            let decided = machines[turn % 2].decide("key", 1).await.expect("decided");
            assert_eq!(decided.is_admitted(), admits, "{name}, {turn}");
        }
        // Behind the part that says on which server of a cluster it is, the layout of the state.
        let [stored] = &names(&server)[..] else {
            panic!("{name}: one value");
        };
        let is_named = stored.starts_with(&format!("{{throttle:{name}:key}}"));
        assert!(is_named && stored.ends_with(":swap"), "{stored}");
        let _ = machines[0].apply("key", Op::Reset).await.expect("a reset");
        assert!(
            machines[0]
                .decide("key", 1)
                .await
                .expect("decided")
                .is_admitted()
        );
        let () = redis::cmd("FLUSHALL")
            .query(&mut server.connection())
            .expect("done");
    }
    let warm_up = WarmUp::new(hourly(10), Duration::from_secs(3_600)).queue(10);
    let limiter = redis.limiter("warm", warm_up);
    assert_eq!(
        limiter.decide("key", 1).await.unwrap().verdict,
        Verdict::Admit
    );
    let second = limiter.decide("key", 1).await.unwrap().verdict;
    assert!(matches!(second, Verdict::Wait(_)));
}

/// Shows promise 16.
#[tokio::test]
async fn a_pair_takes_nothing_unless_both_admit() {
    let server = RedisServer::start();
    let redis = open(&server.url()).await.without_deny_cache();
    let bucket = TokenBucket::new(hourly(10));
    let limiter = redis.limiter("pair", (bucket, FixedWindow::new(hourly(2)).anchored()));
    for _ in 0..5 {
        let _ = limiter.decide("key", 1).await.expect("a decision");
    }
    let left = limiter
        .apply("key", Op::PeekOf(0, 0))
        .await
        .expect("a decision");
    assert_eq!(left.remaining(), 8);
    let left = limiter.apply("key", Op::Reset).await.expect("done");
    assert_eq!((left.policy, left.remaining()), (0, 10));
    let _ = limiter.decide("key", 2).await.expect("a decision");
    let denied = limiter.decide("key", 1).await.expect("a decision");
    assert!(denied.is_denied() && denied.policy == 1);
    assert_eq!(
        names(&server),
        ["{throttle:pair:key}bucket/3600s+anchored/3600s"]
    );
}

/// Shows promise 16.
#[tokio::test]
async fn a_denied_request_writes_nothing() {
    let server = RedisServer::start();
    let redis = open(&server.url()).await;
    let limiter = redis.limiter("tight", LeakyBucket::new(hourly(2)));
    let denied = limiter.decide("new", 3).await.expect("a decision");
    assert!(denied.is_denied() && denied.retry_after.is_none());
    assert!(names(&server).is_empty());

    let _ = limiter.decide("key", 2).await.expect("a decision");
    let value = || -> Vec<u8> {
        redis::cmd("GET")
            .arg("{throttle:tight:key}bucket/3600s")
            .query(&mut server.connection())
            .expect("a value")
    };
    let before = value();
    assert!(limiter.decide("key", 1).await.unwrap().is_denied());
    assert_eq!(value(), before);
}

/// Shows promise 85.
#[tokio::test]
async fn a_key_expires_soon_after_it_may_be_forgotten() {
    let server = RedisServer::start();
    let redis = open(&server.url()).await;
    let quota = Quota::per_minute(6);
    let ttl = |name: &str| -> i64 {
        redis::cmd("PTTL")
            .arg(format!("{{throttle:{name}:key}}{name}/60s"))
            .query(&mut server.connection())
            .expect("a time")
    };
    let bucket = redis.limiter("bucket", TokenBucket::new(quota));
    let decision = bucket.decide("key", 2).await.expect("a decision");
    let whole = i64::try_from(decision.reset_after.as_millis()).unwrap();
    assert_eq!(whole, 20_000);
    // Keys live a second longer.
    let later = 1_001;
    let left = ttl("bucket");
    assert!(left > 10_000 && left <= whole + later, "{left}");

    let log = redis.limiter("log", SlidingLog::new(quota));
    for _ in 0..3 {
        let _ = log.decide("key", 1).await.expect("a decision");
    }
    let left = ttl("log");
    assert!(left > 50_000 && left <= 60_000 + later, "{left}");
    let window = redis.limiter("sliding", SlidingWindow::new(quota));
    let _ = window.decide("key", 1).await.expect("a decision");
    assert!((60_000..=120_000 + later).contains(&ttl("sliding")));
}

#[tokio::test]
async fn a_changed_quota_keeps_what_was_used() {
    let server = RedisServer::start();
    let redis = open(&server.url()).await;
    let before = redis.limiter("api", LeakyBucket::new(hourly(100)));
    assert_eq!(before.decide("key", 40).await.unwrap().remaining(), 60);
    let after = redis.limiter("api", LeakyBucket::new(hourly(60)));
    assert_eq!(
        after.apply("key", Op::Peek(0)).await.unwrap().remaining(),
        20
    );
    let other = redis.limiter("api", FixedWindow::new(hourly(60)));
    let anew = other.apply("key", Op::Peek(0)).await.unwrap();
    assert_eq!(anew.remaining(), 60, "another algorithm starts fresh");
}

#[tokio::test]
async fn a_reservation_waits_at_most_max_wait() {
    let server = RedisServer::start();
    let redis = open(&server.url()).await;
    let limiter = redis.limiter("line", LeakyBucket::new(Quota::per_minute(1)));
    let minute = Duration::from_secs(60);
    let reserve = |queue, max_wait| {
        let cost = 1;
        limiter.apply(
            "key",
            Op::Reserve {
                cost,
                queue,
                max_wait,
            },
        )
    };
    assert!(reserve(9, Duration::ZERO).await.unwrap().is_admitted());
    assert!(reserve(9, minute / 2).await.unwrap().is_denied());
    let second = reserve(1, minute).await.unwrap().wait().expect("a place");
    assert!(second > minute / 2 && second <= minute, "{second:?}");
    assert!(
        reserve(1, 9 * minute).await.unwrap().is_denied(),
        "one place"
    );
    assert!(reserve(2, 9 * minute).await.unwrap().wait() > Some(minute));
}

#[test]
fn a_limiter_reports_its_number_of_limits() {
    let redis = Redis::open("redis://127.0.0.1:1").expect("a url");
    let queue = LeakyBucket::new(hourly(2)).queue(3);
    let limiter = redis.limiter("both", (queue, FixedWindow::new(hourly(5))));
    assert_eq!(Backend::<str>::limits(&limiter), 2);
}

#[test]
fn a_call_outside_of_a_runtime_is_an_error() {
    let redis = Redis::open("redis://127.0.0.1:1").expect("a url");
    let limiter = redis.limiter("a", FixedWindow::new(hourly(1)));
    let asked = limiter.decide("key", 1);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let error = runtime.block_on(asked).unwrap_err();
    assert!(!error.is_transient() && error.to_string().contains("outside of a tokio runtime"));
}

#[test]
fn a_limiter_works_in_one_runtime_after_another() {
    let server = RedisServer::start();
    let redis = Redis::open(&server.url()).expect("a url");
    let redis = redis.deadline(Duration::from_secs(10));
    let limiter = redis.limiter("runs", FixedWindow::new(hourly(10)).anchored());
    for remaining in (0..5).rev() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let left = runtime.block_on(async {
            // The first call may use the connection of a runtime that was shut down.
            match limiter.decide("key", 2).await {
                Ok(decision) => decision.remaining(),
                Err(error) => {
                    assert!(error.is_transient(), "{error}");
                    let decided = connected(async || limiter.decide("key", 2).await).await;
                    decided.expect("a new connection").remaining()
                }
            }
        });
        assert_eq!(left, 2 * remaining);
    }
}

/// Shows promise 89.
#[tokio::test]
async fn the_deny_cache_saves_98_calls_in_100_of_a_client_at_100_times_its_limit() {
    let server = RedisServer::start();
    let redis = open(&server.url()).await;
    let limiter = redis.limiter("hammer", TokenBucket::new(Quota::per_second(10)));
    let begun = tokio::time::Instant::now();
    let (mut calls, mut admitted) = (0_u32, 0_u32);
    // At least 200 times the limit, however slow this machine is.
    let least = |elapsed: Duration| 2_000 + 2 * elapsed.as_millis();
    while begun.elapsed() < Duration::from_millis(500) || u128::from(calls) < least(begun.elapsed())
    {
        let decision = limiter.decide("key", 1).await.expect("a decision");
        calls += 1;
        admitted += u32::from(decision.is_admitted());
        if decision.is_denied() {
            assert!(
                decision.retry_after <= Some(Duration::from_millis(100)),
                "{decision:?}"
            );
        }
    }
    let took = begun.elapsed();
    let asked = calls_of(&server, "evalsha");
    assert!(
        asked * 100 < 2 * u64::from(calls),
        "{asked} of {calls} calls"
    );
    let most = 11 + took.as_millis() / 100;
    assert!(u128::from(admitted) <= most, "{admitted} of {most}");
    assert!(admitted >= 10);
}

/// Shows promise 89.
#[tokio::test]
async fn a_refund_or_reset_ends_a_cached_denial() {
    let server = RedisServer::start();
    let redis = open(&server.url()).await;
    let limiter = redis.limiter("back", TokenBucket::new(hourly(1)));
    let take = async || {
        limiter
            .decide("key", 1)
            .await
            .expect("a decision")
            .is_admitted()
    };
    assert!(take().await && !take().await);
    let _ = limiter
        .apply("key", Op::Refund(1, Receipt::NOW))
        .await
        .expect("done");
    assert!(take().await && !take().await);
    let _ = limiter.apply("key", Op::Reset).await.expect("done");
    assert!(take().await && !take().await);
}

#[tokio::test]
async fn breaker_counts_show_an_outage() {
    let mut server = RedisServer::start();
    let redis = open(&server.url()).await;
    let limiter = redis.limiter("figures", TokenBucket::new(hourly(1_000)));
    assert!(limiter.decide("key", 1).await.is_ok());
    assert_eq!(redis.breaker().opened, 0);
    server.kill();
    let begun = tokio::time::Instant::now();
    while !redis.breaker().is_open {
        let _ = limiter.decide("key", 1).await;
        assert!(begun.elapsed() < Duration::from_secs(10), "it never opened");
    }
    server.restart();
    while redis.breaker().is_open {
        let _ = limiter.decide("key", 1).await;
        tokio::task::yield_now().await;
        assert!(begun.elapsed() < Duration::from_secs(20), "it never closed");
    }
    let counts = redis.breaker();
    assert!(counts.opened == 1 && counts.probes >= 1, "{counts:?}");
    assert!(limiter.decide("key", 1).await.is_ok());
}

/// The script of a set has the text of each of its limits, and Lua allows 200 local variables.
#[tokio::test]
async fn a_set_of_eight_limits_of_any_kinds_decides() {
    let server = RedisServer::start();
    let redis = open(&server.url()).await;
    let quota = Quota::per_day(1);
    let kinds = [
        AnyAlgorithm::new(FixedWindow::new(quota)),
        AnyAlgorithm::new(TokenBucket::new(quota)),
        AnyAlgorithm::new(LeakyBucket::new(quota)),
        AnyAlgorithm::new(SlidingWindow::new(quota)),
    ];
    let mut sets = 0;
    for first in 0..=8 {
        for second in 0..=8 - first {
            for third in 0..=8 - first - second {
                let counts = [first, second, third, 8 - first - second - third];
                let limits = kinds.iter().zip(counts);
                let limits = limits.flat_map(|(kind, count)| vec![kind.clone(); count]);
                let limiter = redis.limiter(&format!("set{sets}"), All::new(limits));
                for is_admitted in [true, false] {
                    let decision = limiter.decide("key", 1).await.expect("a decision");
                    assert_eq!(decision.is_admitted(), is_admitted, "{counts:?}");
                }
                sets += 1;
            }
        }
    }
    assert_eq!(sets, 165);
}
