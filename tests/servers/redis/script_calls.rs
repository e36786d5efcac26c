//! What a script call reads, writes and leaves alone.

use tower_throttle::algorithm::AnyAlgorithm;
use tower_throttle::store::{Backend, Op, Plan, Quotas};
use tower_throttle::{FixedWindow, Quota, SlidingGrid, SlidingLog, SlidingWindow, TokenBucket};

use crate::redis_server::RedisServer;
use crate::{
    key_quotas,
    redis::{faults, open},
};

/// A long deadline: these tests are not about speed.
fn hourly(limit: u64) -> Quota {
    Quota::per_hour(limit)
}

/// Shows promise 391.
#[tokio::test]
async fn a_key_is_counted_once_under_all_its_quotas() {
    let server = RedisServer::start();
    let redis = open(&server.url()).await;
    let limit = |name: &str, algorithm| redis.limiter(name, algorithm);
    key_quotas::a_key_is_counted_once_under_all_its_quotas(limit).await;
}

/// Shows promise 97.
#[tokio::test]
async fn a_foreign_value_is_an_error_of_its_own_call_only() {
    let server = RedisServer::start();
    let redis = open(&server.url()).await;
    let mut connection = server.connection();
    let quota = hourly(5);
    let all = [
        (AnyAlgorithm::new(TokenBucket::new(quota)), "bucket/3600s"),
        (AnyAlgorithm::new(FixedWindow::new(quota)), "window/3600s"),
        (AnyAlgorithm::new(SlidingLog::new(quota)), "log/3600s"),
        (AnyAlgorithm::new(SlidingGrid::new(quota)), "grid/360sx10"),
        (
            AnyAlgorithm::new(SlidingWindow::new(quota)),
            "sliding/3600s",
        ),
        (
            AnyAlgorithm::new((TokenBucket::new(quota), FixedWindow::new(quota))),
            "bucket/3600s+window/3600s",
        ),
    ];
    for (algorithm, name) in all {
        for (key, command) in [("text", "SET"), ("list", "RPUSH")] {
            redis::cmd(command)
                .arg(format!("{{throttle:all:{key}}}{name}"))
                .arg("something else")
                .exec(&mut connection)
                .expect("done");
        }
        let limiter = redis.limiter("all", algorithm).without_deny_cache();
        let ask = |key| limiter.decide(key, 1);
        // In flight at the same time, so that they are batched.
        let (before, text, list, after) = (ask("a"), ask("text"), ask("list"), ask("b"));
        for (answer, says) in [
            (text, "was not written by this crate"),
            (list, "is not a string"),
        ] {
            let error = answer.await.expect_err(name);
            assert!(
                !error.is_transient() && error.to_string().contains(says),
                "{name}: {error}"
            );
            assert!(
                error.to_string().contains("prefix of its own"),
                "{name}: {error}"
            );
        }
        assert!(before.await.expect(name).is_admitted(), "{name}");
        assert!(after.await.expect(name).is_admitted(), "{name}");
    }
}

/// Shows promises 97, 106.
#[tokio::test]
async fn a_foreign_value_is_kept_until_a_reset() {
    let server = RedisServer::start();
    let mut connection = server.connection();
    let redis = open(&server.url()).await;
    let (bucket, window) = (TokenBucket::new(hourly(5)), FixedWindow::new(hourly(5)));
    let pair = AnyAlgorithm::new((bucket, window));
    // It is swapped.
    let debt = AnyAlgorithm::new(bucket.debt(1));
    for (name, algorithm) in [("pair", pair), ("debt", debt)] {
        let limiter = redis.limiter(name, algorithm).without_deny_cache();
        for (kind, command) in [("string", "SET"), ("list", "RPUSH")] {
            let _ = limiter.decide("key", 1).await.expect("a decision");
            let pattern = format!("{{throttle:{name}:*");
            let keys = redis::cmd("KEYS").arg(pattern).query(&mut connection);
            let [key]: [String; 1] = keys.expect("its key");
            faults::command(&server, &["DEL", &key]);
            faults::command(&server, &[command, &key, "else"]);
            let error = limiter.decide("key", 1).await.expect_err(name);
            assert!(!error.is_transient(), "{error}");
            let kept: String = redis::cmd("TYPE")
                .arg(&key)
                .query(&mut connection)
                .expect("a type");
            assert_eq!(kept, kind);
            // A reset replaces it.
            let _ = limiter.apply("key", Op::Reset).await.expect("a reset");
            let left = limiter.decide("key", 1).await.expect("a decision");
            assert_eq!(left.remaining(), 4, "{name}");
        }
    }
}

/// One that no script decides, and one that a script would decide alone.
///
/// Shows promise 391.
#[tokio::test]
async fn a_log_that_is_swapped_is_so_under_all_quotas_of_a_key() {
    let server = RedisServer::start();
    let redis = open(&server.url()).await;
    let log = || redis.limiter("log", SlidingLog::new(hourly(2_000)));
    let small = Quotas::new(log(), |_: &u64| Plan::Quota(hourly(10)));
    assert!(
        log()
            .decide(&7, 10)
            .await
            .expect("a decision")
            .is_admitted()
    );
    assert!(small.decide(&7, 1).await.expect("a decision").is_denied());
}
