//! `Redis::check`, and the setups that it is for: clusters, proxies and restricted users.

use tower_throttle::store::redis::Redis;
use tower_throttle::{
    FixedWindow, Lockout, Quota, SlidingLog, SlidingWindow, TokenBucket,
    store::{Backend, Op},
};

use crate::redis::faults::command;
use crate::redis::open;
use crate::redis_server::RedisServer;

/// Shows promise 95.
#[tokio::test]
async fn check_warns_of_eviction() {
    let server = RedisServer::start();
    let redis = open(&server.url()).await;
    assert_eq!(redis.check().await, Ok(None));
    for policy in ["allkeys-lru", "volatile-ttl"] {
        command(&server, &["CONFIG", "SET", "maxmemory-policy", policy]);
        let warning = redis.check().await.expect("an answer").expect("a warning");
        let is_named = warning.contains(policy) && warning.contains("noeviction");
        assert!(is_named, "{warning}");
    }
    let keys: u64 = redis::cmd("DBSIZE")
        .query(&mut server.connection())
        .expect("a count");
    assert_eq!(keys, 0, "it removes its keys");
}

/// The rights in the documentation.
pub(crate) const RIGHTS: &str = "+eval +evalsha +time +get +psetex +setrange +del";

/// A server with a user that has only these rights.
async fn restricted(keys: &str, rights: &str) -> (RedisServer, Redis) {
    let server = RedisServer::start();
    let mut words = vec!["ACL", "SETUSER", "limiter", "on", ">secret", keys];
    words.extend(rights.split_whitespace());
    command(&server, &words);
    let url = server.url().replace("redis://", "redis://limiter:secret@");
    let redis = open(&url).await;
    (server, redis)
}

/// Shows promise 128.
#[tokio::test]
async fn a_user_with_the_documented_rights_can_run_every_limit() {
    let (_server, redis) = restricted("~{throttle:*", RIGHTS).await;
    assert_eq!(redis.check().await, Ok(None));
    let quota = Quota::per_second(5);
    let every = (
        (TokenBucket::new(quota), FixedWindow::new(quota)),
        (SlidingWindow::new(quota), SlidingLog::new(quota)),
    );
    let limiter = redis.limiter("every", every).without_deny_cache();
    for _ in 0..10 {
        let decision = limiter.decide("key", 1).await.expect("a decision");
        let refund = Op::Refund(1, decision.receipt());
        let _ = limiter.apply("key", refund).await.expect("a decision");
    }
    let other = redis.limiter("every", TokenBucket::new(Quota::per_hour(5)));
    let _ = other.decide("key", 1).await.expect("it moves the states");
    let lockout = redis.limiter("every", Lockout::new(quota));
    let _ = lockout.decide("key", 1).await.expect("it swaps");
    let _ = limiter
        .apply("key", Op::Reset)
        .await
        .expect("it is removed");
}

/// Shows promise 128.
#[tokio::test]
async fn check_says_what_a_user_without_a_right_has_to_be_allowed() {
    for name in RIGHTS.split_whitespace() {
        let rights = RIGHTS.replace(name, "");
        // The names of these begin with those of others.
        let rights = match name {
            "+eval" => RIGHTS.replace("+eval ", ""),
            "+get" => RIGHTS.replace("+get ", ""),
            _ => rights,
        };
        let (_server, redis) = restricted("~{throttle:*", &rights).await;
        let error = redis.check().await.expect_err("a right is missing");
        let text = error.to_string();
        assert!(!error.is_transient(), "{text}");
        assert!(
            text.contains("let this user run EVAL, EVALSHA"),
            "{name}: {text}"
        );
        assert!(text.contains(&name[1..].to_uppercase()), "{name}: {text}");
        assert!(!text.contains("secret"), "{text}");
    }
    let (_server, redis) = restricted("~other:*", RIGHTS).await;
    let error = redis.check().await.expect_err("no right on the keys");
    assert!(!error.is_transient(), "{error}");
    assert!(
        error.to_string().contains("keys under the prefix"),
        "{error}"
    );
}

/// Shows promise 370.
#[cfg(all(feature = "cas", feature = "testkit"))]
#[tokio::test]
async fn the_server_passes_the_check_of_stores() {
    let server = RedisServer::start();
    let checked = tower_throttle::testkit::check_cas_store(open(&server.url()).await);
    assert_eq!(checked.await, Ok(()));
}
