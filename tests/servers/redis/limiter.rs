//! The public API of limits in Redis.

use std::time::Duration;

use tower_throttle::algorithm::AnyAlgorithm;
use tower_throttle::store::redis::Redis;
use tower_throttle::{
    FixedWindow, LeakyBucket, Lockout, Quota, SlidingLog, SlidingWindow, TokenBucket, Verdict,
    WarmUp,
    store::{Backend, Op},
};

use crate::redis::open;
use crate::redis_server::RedisServer;
use crate::shared_limit;

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
    let warm_up = WarmUp::new(hourly(10), Duration::from_secs(3_600));
    let limiter = redis.limiter("warm", warm_up);
    let reserve = Op::Reserve {
        cost: 1,
        queue: 10,
        max_wait: Duration::MAX,
    };
    let first = limiter.apply("key", reserve).await.unwrap().verdict;
    assert_eq!(first, Verdict::Admit);
    let second = limiter.apply("key", reserve).await.unwrap().verdict;
    assert!(matches!(second, Verdict::Wait(_)));
}

/// Shows promises 16, 152.
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
    // Keys live up to ten seconds longer.
    let later = 10_101;
    let left = ttl("bucket");
    assert!(left > 10_000 && left <= whole + later, "{left}");

    let log = redis.limiter("log", SlidingLog::new(quota));
    for _ in 0..3 {
        let _ = log.decide("key", 1).await.expect("a decision");
    }
    let left = ttl("log");
    assert!(left > 50_000 && left <= 60_000 + later, "{left}");
    let window = redis.limiter("sliding", SlidingWindow::new(quota));
    // Of two units one counts until half of the next window is over.
    let decision = window.decide("key", 2).await.expect("a decision");
    let whole = i64::try_from(decision.reset_after.as_millis()).unwrap();
    let left = ttl("sliding");
    assert!(left > 20_000 && left <= whole + later + 1, "{left}");
}

/// Shows promise 17.
#[tokio::test]
async fn a_change_under_a_lowered_limit_keeps_a_key_for_as_long_as_the_larger_one_did() {
    let server = RedisServer::start();
    let redis = open(&server.url()).await;
    let limits = [1_000, 10].map(|limit| redis.limiter("low", TokenBucket::new(hourly(limit))));
    let taken = limits[0].decide("key", 1_000).await.expect("a decision");
    for op in [Op::Refund(1, taken.receipt()), Op::Charge(1)] {
        let _ = limits[1].apply("key", op).await.expect("a change");
        let left: i64 = redis::cmd("PTTL")
            .arg("{throttle:low:key}bucket/3600s")
            .query(&mut server.connection())
            .expect("a time");
        // What is charged comes back at the lower rate.
        let most = 3_600_000 + if op == Op::Charge(1) { 371_000 } else { 10_100 };
        assert!(left > 3_500_000 && left <= most, "{op:?}: {left}");
    }
}

/// Shows promise 360.
#[tokio::test]
async fn machines_share_the_permits_of_a_fleet() {
    let server = RedisServer::start();
    let redis = Redis::open(&server.url()).expect("a url");
    shared_limit::machines_share_permits(redis).await;
}
