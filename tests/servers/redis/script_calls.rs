//! What a script call reads, writes and leaves alone.

use std::future::Future;

use tower_throttle::store::{Backend, Op};
use tower_throttle::{FixedWindow, Quota, SlidingGrid, SlidingLog, SlidingWindow, TokenBucket};

use crate::redis_server::RedisServer;
use crate::{
    key_quotas,
    redis::{calls_of, open},
};

/// A long deadline: these tests are not about speed.
fn hourly(limit: u64) -> Quota {
    Quota::per_hour(limit)
}

#[tokio::test]
async fn calls_on_one_key_in_one_script_call_are_all_counted() {
    let server = RedisServer::start();
    let redis = open(&server.url()).await.without_deny_cache();
    let bucket = redis.limiter("bucket", TokenBucket::new(hourly(5)));
    let window = redis.limiter("window", FixedWindow::new(hourly(5)));
    let in_flight: Vec<_> = (0..20)
        .map(|call| {
            let key = ["a", "b"][call % 2];
            (bucket.decide(key, 1), window.decide(key, 1))
        })
        .collect();
    let mut admitted = [0; 2];
    for (bucket, window) in in_flight {
        admitted[0] += u32::from(bucket.await.expect("a decision").is_admitted());
        admitted[1] += u32::from(window.await.expect("a decision").is_admitted());
    }
    assert_eq!(admitted, [10, 10]);
    println!("SCRIPTS {}", calls_of(&server, "evalsha"));
    assert!(calls_of(&server, "evalsha") < 40, "calls were batched");
}

/// What calls that are alike have in common is sent once.
#[tokio::test]
async fn each_call_of_a_script_call_takes_its_own_cost() {
    let server = RedisServer::start();
    let redis = open(&server.url()).await.without_deny_cache();
    let limiter = redis.limiter("costs", TokenBucket::new(hourly(9)));
    // The first ones may be sent by themselves, and the others together.
    let calls = [("a", 1), ("b", 1), ("c", 1), ("d", 1), ("e", 5), ("f", 1)];
    for call in calls.map(|(key, cost)| limiter.decide(key, cost)) {
        assert!(call.await.expect("a decision").is_admitted());
    }
    assert!(calls_of(&server, "evalsha") < 6, "calls were batched");
    for (key, cost) in calls {
        let left = limiter.apply(key, Op::Peek(0)).await.expect("a decision");
        assert_eq!(left.remaining(), 9 - cost, "{key}");
    }
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
