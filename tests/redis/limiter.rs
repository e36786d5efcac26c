//! The public API of limits in Redis.

use std::time::Duration;

use tower_throttle::algorithm::AnyAlgorithm;
use tower_throttle::store::redis::{Redis, RedisLimiter};
use tower_throttle::{
    All, FixedWindow, Global, LeakyBucket, Lockout, Quota, RateLimitLayer, SlidingGrid, SlidingLog,
    SlidingWindow, TokenBucket, Verdict, WarmUp,
    store::{Backend, Op, Receipt},
};

use crate::redis_server::RedisServer;
use crate::wait::connected;
use crate::{calls_of, open};

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
    async fn goes<A: tower_throttle::store::redis::Scripted>(
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
    let warm_up = WarmUp::new(quota, Duration::from_secs(3_600)).queue(10);
    let limiter = redis.limiter("warm", warm_up);
    assert_eq!(
        limiter.decide("key", 1).await.unwrap().verdict,
        Verdict::Admit
    );
    assert!(matches!(
        limiter.decide("key", 1).await.unwrap().verdict,
        Verdict::Wait(_)
    ));
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
    let lockout = Lockout::new(hourly(2)).after_denials_of(FixedWindow::new(hourly(2)));
    let error = redis.try_limiter("lockout", AnyAlgorithm::new(lockout));
    let error = error.unwrap_err().to_string();
    assert!(error.contains("use `Cas`"), "{error}");
}

/// Shows promise 84.
#[tokio::test]
async fn a_pair_takes_nothing_unless_both_admit() {
    let server = RedisServer::start();
    let redis = open(&server.url()).await.without_deny_cache();
    let bucket = TokenBucket::new(hourly(10));
    let limiter = redis.limiter("pair", (bucket, FixedWindow::new(hourly(2)).anchored()));
    for _ in 0..5 {
        let _ = limiter.decide("key", 1).await.expect("a decision");
    }
    // The first limit of a set has the name of a limit by itself.
    let first = redis.limiter("pair", bucket);
    let left = first.apply("key", Op::Peek(0)).await.expect("a decision");
    assert_eq!(left.remaining(), 8);
    let left = limiter.apply("key", Op::Reset).await.expect("done");
    assert_eq!((left.policy, left.remaining()), (0, 10));
    let _ = limiter.decide("key", 2).await.expect("a decision");
    let denied = limiter.decide("key", 1).await.expect("a decision");
    assert!(denied.is_denied() && denied.policy == 1);
    assert_eq!(
        names(&server),
        ["{throttle:pair:key}", "{throttle:pair:key}:1"]
    );
}

/// Shows promise 84.
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
            .arg("{throttle:tight:key}")
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
            .arg(format!("{{throttle:{name}:key}}"))
            .query(&mut server.connection())
            .expect("a time")
    };
    let bucket = redis.limiter("token", TokenBucket::new(quota));
    let decision = bucket.decide("key", 2).await.expect("a decision");
    let whole = i64::try_from(decision.reset_after.as_millis()).unwrap();
    assert_eq!(whole, 20_000);
    // Keys live a second longer.
    let later = 1_001;
    let left = ttl("token");
    assert!(left > 10_000 && left <= whole + later, "{left}");

    let log = redis.limiter("log", SlidingLog::new(quota));
    for _ in 0..3 {
        let _ = log.decide("key", 1).await.expect("a decision");
    }
    let left = ttl("log");
    assert!(left > 50_000 && left <= 60_000 + later, "{left}");
    let window = redis.limiter("window", SlidingWindow::new(quota));
    let _ = window.decide("key", 1).await.expect("a decision");
    assert!((60_000..=120_000 + later).contains(&ttl("window")));
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
    let reserve = |wait| limiter.reserve("key", 1, wait);
    assert!(reserve(Duration::ZERO).await.unwrap().is_admitted());
    assert!(reserve(minute / 2).await.unwrap().is_denied());
    let second = reserve(minute).await.unwrap().wait().expect("a place");
    assert!(second > minute / 2 && second <= minute, "{second:?}");
}

/// Shows promise 82.
#[test]
fn a_policy_that_a_script_cannot_represent_is_refused_when_it_is_built() {
    let redis = Redis::open("redis://127.0.0.1:1").expect("a url");
    let says = |error: tower_throttle::ConfigError| error.to_string();
    let log = SlidingLog::new(hourly(100_000));
    let error = says(redis.try_limiter("a", log).unwrap_err());
    assert!(error.contains("65536"), "{error}");
    let prime = Quota::per(9_007_199_254_740_881, Duration::from_secs(3_600));
    for error in [
        says(redis.try_limiter("a", TokenBucket::new(prime)).unwrap_err()),
        says(redis.try_limiter("a", FixedWindow::new(prime)).unwrap_err()),
    ] {
        assert!(error.contains("2^52"), "{error}");
    }
    for name in ["", "a:b", "a{b", &"x".repeat(65)] {
        assert!(
            redis
                .try_limiter(name, FixedWindow::new(hourly(1)))
                .is_err()
        );
        assert!(redis.clone().prefix(name).is_err());
    }
    assert!(Redis::open("http://localhost").is_err());
}

/// Shows promise 82.
#[test]
fn the_largest_numbers_that_a_script_can_represent_are_allowed_and_no_larger_ones() {
    const MOST: u64 = 1 << 52;
    /// With four units per nanosecond, what this warm-up stores is exactly 2^53.
    const WARM_UP_NS: u64 = 1_125_899_906_841_248;

    let redis = Redis::open("redis://127.0.0.1:1").expect("a url");
    let nanos = Duration::from_nanos;
    let bucket = |quota: Quota| AnyAlgorithm::new(TokenBucket::new(quota));
    let window = |quota: Quota| AnyAlgorithm::new(FixedWindow::new(quota));
    let dense = |limit: u64| bucket(Quota::per(limit, nanos(1)));
    let burst = |burst: u64| bucket(Quota::per(1, nanos(1)).burst(burst));
    let limit = |limit: u64| window(Quota::per_second(limit));
    let warm_up = |ns: u64| AnyAlgorithm::new(WarmUp::new(Quota::per(4, nanos(1)), nanos(ns)));
    for (what, largest, larger) in [
        ("parts", dense(MOST / 1_000), dense(MOST / 1_000 + 1)),
        ("burst", burst(MOST), burst(MOST + 1)),
        ("limit", limit(MOST), limit(MOST + 1)),
        ("warm-up", warm_up(WARM_UP_NS), warm_up(WARM_UP_NS + 1)),
    ] {
        assert!(redis.try_limiter("a", largest).is_ok(), "{what}");
        let refused = redis.try_limiter("a", larger);
        let error = refused.expect_err(what).to_string();
        assert!(error.contains("2^52"), "{what}: {error}");
    }
}

#[test]
fn a_limiter_reports_its_number_of_limits_and_its_longest_wait() {
    let redis = Redis::open("redis://127.0.0.1:1").expect("a url");
    let longest = Duration::from_secs(7);
    let queue = LeakyBucket::new(hourly(2)).queue(3).max_wait(longest);
    let limiter = redis.limiter("both", (queue, FixedWindow::new(hourly(5))));
    assert_eq!(Backend::<str>::limits(&limiter), 2);
    assert_eq!(Backend::<str>::max_wait(&limiter, "key"), longest);
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

/// Calls until `limiter` applies that limit.
async fn applies(limiter: &RedisLimiter<TokenBucket>, limit: u64) {
    let begun = tokio::time::Instant::now();
    loop {
        let seen = limiter.apply("another", Op::Peek(1)).await.expect("seen");
        if seen.limit == limit {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "{seen:?}");
        tokio::task::yield_now().await;
    }
}

/// Shows promise 92.
#[tokio::test]
async fn a_changed_quota_reaches_the_fleet_and_keeps_usage() {
    let server = RedisServer::start();
    let machine = async |limit| {
        let redis = open(&server.url()).await;
        redis.limiter("api", TokenBucket::new(hourly(limit)))
    };
    let (here, there, otherwise) = (machine(10).await, machine(10).await, machine(11).await);
    let layer = RateLimitLayer::new(Global, here);
    let handle = layer.handle();
    let taken = there.decide("key", 9).await.expect("decided");
    assert!(taken.is_admitted() && there.decide("key", 2).await.unwrap().is_denied());

    handle.set_quota(hourly(5)).await.expect("stored");
    let quotas = |limiter| Backend::<str>::quotas(limiter);
    assert_eq!(quotas(handle.backend()), [hourly(5)]);
    applies(&there, 5).await;
    let left = there.apply("key", Op::Peek(1)).await.expect("seen");
    assert_eq!(left.remaining(), 0, "9 of 5 are used");
    // A machine that starts later, and one with another configuration.
    applies(&machine(10).await, 5).await;
    let begun = tokio::time::Instant::now();
    while begun.elapsed() < Duration::from_millis(1_200) {
        // It has refreshed at least once meanwhile.
        applies(&otherwise, 11).await;
    }
    assert_eq!(quotas(&otherwise), [hourly(11)]);

    handle.set_quota(hourly(10)).await.expect("taken back");
    applies(&there, 10).await;
    assert!(!names(&server).contains(&"{throttle:api}:quota".to_owned()));
}

/// Shows promise 89.
#[tokio::test]
async fn a_changed_quota_ends_cached_denials() {
    let server = RedisServer::start();
    let window = FixedWindow::new(hourly(1)).anchored();
    let redis = open(&server.url()).await;
    let limiter = redis.limiter("ends", window);
    assert!(limiter.decide("key", 1).await.unwrap().is_admitted());
    assert!(limiter.decide("key", 1).await.unwrap().is_denied());
    limiter.set_quota(hourly(2)).await.expect("stored");
    assert!(limiter.decide("key", 1).await.unwrap().is_admitted());
    assert!(limiter.decide("key", 1).await.unwrap().is_denied());

    let both = (FixedWindow::new(hourly(1)), FixedWindow::new(hourly(2)));
    let both = redis.limiter("both", both);
    let error = both.set_quota(hourly(3)).await.unwrap_err();
    assert!(!error.is_transient(), "{error}");
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

/// Shows promise 92.
#[tokio::test]
async fn a_raised_quota_reaches_a_client_whose_denial_is_cached() {
    let server = RedisServer::start();
    let machine = async || {
        let redis = open(&server.url()).await;
        redis.limiter("raised", FixedWindow::new(Quota::per_day(1)).anchored())
    };
    let (here, there) = (machine().await, machine().await);
    assert!(there.decide("key", 1).await.unwrap().is_admitted());
    assert!(there.decide("key", 1).await.unwrap().is_denied());
    here.set_quota(Quota::per_day(2)).await.expect("stored");
    let begun = tokio::time::Instant::now();
    while there.decide("key", 1).await.unwrap().is_denied() {
        let waited = begun.elapsed();
        // A second is promised; the rest is for a busy machine.
        assert!(waited < Duration::from_secs(5), "denied for {waited:?}");
        tokio::task::yield_now().await;
    }
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
