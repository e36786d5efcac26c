//! Which calls are sent a second time.

use std::time::Duration;

use tower_throttle::store::redis::Redis;
use tower_throttle::{FixedWindow, Quota, store::Backend};

use crate::proxy::{Protocol, Proxy};
use crate::redis::connect;
use crate::redis_server::RedisServer;

/// Errors of calls that were not executed and may succeed when sent again.
const AGAIN: [&str; 5] = [
    "NOSCRIPT No matching script",
    "READONLY You can't write against a read only replica.",
    "MASTERDOWN Link with MASTER is down",
    "TRYAGAIN Multiple keys request during rehashing of slot",
    "CLUSTERDOWN The cluster is down",
];

struct Stage {
    /// Runs until the end.
    _server: RedisServer,
    proxy: Proxy,
    redis: Redis,
}

impl Stage {
    async fn new() -> Self {
        let server = RedisServer::start();
        let proxy = Proxy::before(Protocol::Redis, server.port());
        let redis = Redis::open(&proxy.url()).expect("a url");
        // Deadlines are not what is tested.
        let redis = connect(redis.deadline(Duration::from_secs(5))).await;
        Self {
            _server: server,
            proxy,
            redis,
        }
    }

    /// Whether a call that is refused `times` times succeeds, and how often it was executed.
    async fn refused(&self, reply: &'static str, times: u64) -> (bool, u64) {
        let window = FixedWindow::new(Quota::per_day(1_000));
        let limiter = self.redis.limiter("again", window);
        let key = format!("{}{times}", reply.split(' ').next().expect("a code"));
        // The server learns the script.
        let _ = limiter.decide("other", 1).await.expect("a decision");
        self.proxy.refuses(reply, times);
        let answered = limiter.decide(key.as_str(), 1).await.is_ok();
        assert_eq!(self.proxy.refused(), times, "the fault happened");
        let used = limiter.decide(key.as_str(), 1).await.expect("a decision");
        (answered, 999 - used.remaining())
    }
}

/// Shows promise 87.
#[tokio::test]
async fn a_call_that_was_not_executed_is_sent_again_once_and_counted_once() {
    for reply in AGAIN {
        // A proxy per error, because failures open the breaker.
        let stage = Stage::new().await;
        assert_eq!(stage.refused(reply, 1).await, (true, 1), "{reply}");
        assert_eq!(stage.refused(reply, 2).await, (false, 0), "{reply}");
    }
}
