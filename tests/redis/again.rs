//! What is sent a second time, and what never is.

use std::time::Duration;

use tower_throttle::store::redis::Redis;
use tower_throttle::{FixedWindow, Quota, store::Backend};

use crate::redis_server::RedisServer;
use crate::wire::Proxy;

/// Certainly not carried out, and better next time.
const AGAIN: [&str; 5] = [
    "NOSCRIPT No matching script",
    "READONLY You can't write against a read only replica.",
    "MASTERDOWN Link with MASTER is down",
    "TRYAGAIN Multiple keys request during rehashing of slot",
    "CLUSTERDOWN The cluster is down",
];
/// Certainly not carried out, and no better next time.
const LATER: [&str; 5] = [
    "LOADING Redis is loading the dataset in memory",
    "BUSY Redis is busy running a script",
    "OOM command not allowed when used memory > 'maxmemory'.",
    "NOREPLICAS Not enough good replicas to write.",
    "NOPERM this user has no permissions",
];

struct Stage {
    server: RedisServer,
    proxy: Proxy,
    redis: Redis,
}

impl Stage {
    fn new() -> Self {
        let server = RedisServer::start();
        let proxy = Proxy::before(&server);
        let redis = Redis::open(&proxy.url()).expect("a url");
        // What is looked at is not who gives up.
        let redis = redis.deadline(Duration::from_secs(5));
        Self {
            server,
            proxy,
            redis,
        }
    }

    /// Whether a call is answered that is refused so often, and how often it was then carried out.
    async fn refused(&self, reply: &'static str, times: u64) -> (bool, u64) {
        let window = FixedWindow::new(Quota::per_day(1_000));
        let limiter = self.redis.limiter("again", window);
        let key = format!("{}{times}", reply.split(' ').next().expect("a code"));
        // So that the server knows the script.
        let _ = limiter.decide("other", 1).await.expect("a decision");
        self.proxy.refuses(reply, times);
        let answered = limiter.decide(key.as_str(), 1).await;
        let answered = answered.is_ok();
        assert_eq!(self.proxy.refused(), times, "the fault happened");
        let used = limiter.decide(key.as_str(), 1).await.expect("a decision");
        (answered, 999 - used.remaining())
    }
}

#[tokio::test]
async fn what_was_not_carried_out_is_sent_once_more_and_counted_once() {
    let stage = Stage::new();
    for reply in AGAIN {
        assert_eq!(stage.refused(reply, 1).await, (true, 1), "{reply}");
    }
}

#[tokio::test]
async fn what_is_refused_twice_is_an_error_and_not_counted() {
    for reply in AGAIN {
        // Of its own, because a server that fails is left alone.
        let stage = Stage::new();
        assert_eq!(stage.refused(reply, 2).await, (false, 0), "{reply}");
    }
}

#[tokio::test]
async fn what_would_be_refused_again_is_not_sent_again() {
    for reply in LATER {
        let stage = Stage::new();
        // Were it sent again, it would be carried out.
        assert_eq!(stage.refused(reply, 1).await, (false, 0), "{reply}");
    }
}

#[tokio::test]
async fn a_call_that_a_replica_refused_is_answered_by_the_primary_at_the_same_address() {
    let stage = Stage::new();
    let primary = RedisServer::start();
    let window = FixedWindow::new(Quota::per_day(10));
    let limiter = stage.redis.limiter("again", window);
    let _ = limiter.decide("key", 1).await.expect("a decision");
    let mut follow = redis::cmd("REPLICAOF");
    follow.arg("127.0.0.1").arg(primary.port());
    follow.exec(&mut stage.server.connection()).expect("done");
    stage.proxy.leads_to(&primary);
    let decision = limiter.decide("key", 1).await.expect("a decision");
    assert_eq!(decision.remaining(), 9, "counted once, and there");
    let info: String = redis::cmd("INFO")
        .arg("errorstats")
        .query(&mut stage.server.connection())
        .expect("statistics");
    assert!(info.contains("errorstat_READONLY"), "the fault happened");
}
