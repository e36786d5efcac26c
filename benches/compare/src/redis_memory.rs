//! Memory of a Redis server per key and algorithm.

use std::time::Duration;

use tower_throttle::algorithm::{Algorithm, IntoAlgorithm};
use tower_throttle::store::redis::Redis;
use tower_throttle::{
    FixedWindow, Gcra, LeakyBucket, Quota, SlidingGrid, SlidingLog, SlidingWindow, TokenBucket,
    WarmUp, store::Backend,
};

use crate::row::Effort;
use test_support::redis_server::RedisServer;

/// Fills a new server per algorithm.
pub(crate) fn run(effort: &Effort) {
    let keys = if effort.quick { 1_000 } else { 100_000 };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let quota = Quota::per_hour(1_000);
        let of = Filling {
            effort,
            keys,
            units: 1,
        };
        of.fill("fixed window", FixedWindow::new(quota)).await;
        of.fill("sliding window", SlidingWindow::new(quota)).await;
        of.fill("sliding grid of 10", SlidingGrid::new(quota)).await;
        of.fill("token bucket", TokenBucket::new(quota)).await;
        of.fill("leaky bucket", LeakyBucket::new(quota)).await;
        of.fill("GCRA", Gcra::new(quota)).await;
        of.fill("warm-up", WarmUp::new(quota, Duration::from_secs(60)))
            .await;
        of.fill("sliding log, 1 entry", SlidingLog::new(quota))
            .await;
        let log = Filling {
            keys: keys / 10,
            units: 100,
            ..of
        };
        log.fill("sliding log, 100 entries", SlidingLog::new(quota))
            .await;
        let pair = (TokenBucket::new(quota), FixedWindow::new(quota));
        of.fill("a pair of two", pair.into_algorithm()).await;
    });
}

#[derive(Clone, Copy)]
struct Filling<'a> {
    effort: &'a Effort,
    keys: u64,
    /// How many units are taken per key, one after the other.
    units: u64,
}

impl Filling<'_> {
    /// Prints how much more memory a server uses per key, with the tables of keys and expiry.
    async fn fill<A: Algorithm + 'static>(self, name: &str, algorithm: A) {
        if !self.effort.wants(name) {
            return;
        }
        let server = RedisServer::start();
        let redis = Redis::open(&server.url())
            .expect("a url")
            .deadline(Duration::from_secs(60));
        let limiter = redis.limiter("memory", algorithm);
        // The script stays in the memory of the server.
        let _ = limiter.decide("first", 1).await.expect("a decision");
        let before = used_memory(&server);
        for _ in 0..self.units {
            for first in (0..self.keys).step_by(1_000) {
                let calls: Vec<_> = (first..(first + 1_000).min(self.keys))
                    .map(|key| tokio::spawn(limiter.decide(format!("tenant-{key:09}").as_str(), 1)))
                    .collect();
                for call in calls {
                    let decision = call.await.expect("no panic").expect("a decision");
                    assert!(decision.is_admitted());
                }
            }
        }
        let bytes = (used_memory(&server) - before) as f64 / self.keys as f64;
        if self.effort.json {
            println!("{{\"work\":\"memory: {name}\",\"bytes_per_key\":{bytes:.0}}}");
        } else {
            println!("{name:<28} {bytes:>6.0} bytes per key");
        }
    }
}

fn used_memory(server: &RedisServer) -> i64 {
    let info: String = ::redis::cmd("INFO")
        .arg("memory")
        .query(&mut server.connection())
        .expect("statistics");
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("used_memory:"));
    line.expect("a line").trim().parse().expect("a number")
}
