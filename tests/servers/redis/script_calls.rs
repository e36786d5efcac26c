//! What a script call reads, writes and leaves alone.

use std::future::Future;

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
    let layouts = [
        ("bucket", "bucket/3600s"),
        ("window", "window/3600s"),
        ("log", "log/3600s"),
        ("grid", "grid/360sx10"),
        ("sliding", "sliding/3600s"),
        ("pair", "bucket/3600s+window/3600s"),
    ];
    for (name, layout) in layouts {
        for (key, command) in [("text", "SET"), ("list", "RPUSH")] {
            redis::cmd(command)
                .arg(format!("{{throttle:{name}:{key}}}{layout}"))
                .arg("something else")
                .exec(&mut connection)
                .expect("done");
        }
    }
    let quota = hourly(5);
    let all: Vec<(&str, Asker)> = vec![
        (
            "bucket",
            asker(redis.limiter("bucket", TokenBucket::new(quota))),
        ),
        (
            "window",
            asker(redis.limiter("window", FixedWindow::new(quota))),
        ),
        ("log", asker(redis.limiter("log", SlidingLog::new(quota)))),
        (
            "grid",
            asker(redis.limiter("grid", SlidingGrid::new(quota))),
        ),
        (
            "sliding",
            asker(redis.limiter("sliding", SlidingWindow::new(quota))),
        ),
        (
            "pair",
            asker(redis.limiter("pair", (TokenBucket::new(quota), FixedWindow::new(quota)))),
        ),
    ];
    for (name, ask) in &all {
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

type Answer = std::pin::Pin<
    Box<dyn Future<Output = Result<tower_throttle::Decision, tower_throttle::StoreError>>>,
>;

type Asker = Box<dyn Fn(&str) -> Answer>;

fn asker<L: Backend<str>>(limiter: L) -> Asker {
    Box::new(move |key| Box::pin(limiter.decide(key, 1)))
}
