//! What a script call reads, writes and leaves alone.

use tower_throttle::algorithm::AnyAlgorithm;
use tower_throttle::store::{Backend, Op};
use tower_throttle::{FixedWindow, Quota, SlidingGrid, SlidingLog, SlidingWindow, TokenBucket};

use crate::redis_server::RedisServer;
use crate::{key_quotas, redis::open};

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
    key_quotas::a_key_is_counted_once_under_all_its_quotas(limit, false).await;
}

/// Shows promise 97.
#[tokio::test]
async fn a_foreign_value_is_an_error_of_its_own_call_only() {
    let server = RedisServer::start();
    let redis = open(&server.url()).await.without_deny_cache();
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
        let limiter = redis.limiter("all", algorithm);
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

/// Shows promise 97.
#[tokio::test]
async fn a_foreign_value_is_kept_until_a_reset() {
    let server = RedisServer::start();
    let mut connection = server.connection();
    let foreign = "{throttle:pair:key}bucket/3600s+window/3600s";
    let mut push = redis::cmd("RPUSH");
    push.arg(foreign).arg("something else");
    push.exec(&mut connection).expect("done");
    let pair = (TokenBucket::new(hourly(5)), FixedWindow::new(hourly(5)));
    let limiter = open(&server.url())
        .await
        .without_deny_cache()
        .limiter("pair", pair);
    let error = limiter.decide("key", 1).await.expect_err("a list");
    assert!(error.to_string().contains("is not a string"), "{error}");
    let kept: String = redis::cmd("TYPE")
        .arg(foreign)
        .query(&mut connection)
        .expect("a type");
    assert_eq!(kept, "list");
    // A reset replaces it.
    let _ = limiter.apply("key", Op::Reset).await.expect("a reset");
    let left = limiter.decide("key", 1).await.expect("a decision");
    assert_eq!(left.remaining(), 4);
}
