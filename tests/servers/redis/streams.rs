//! Streams of two processes whose limit is in Redis.

use std::{sync::Arc, time::Duration};

use futures_util::stream;
use tower_throttle::store::redis::Redis;
use tower_throttle::store::{Backend, Op};
use tower_throttle::stream::{LimitedStream, StreamLimit};
use tower_throttle::{Quota, TokenBucket};

use crate::redis_server::RedisServer;
use crate::wait::connected;

const PATIENCE: Duration = Duration::from_secs(30);
const KEY: &str = "alice";

/// Shows promise 396.
#[tokio::test]
async fn streams_of_two_processes_have_one_limit_together() {
    let server = RedisServer::start();
    let bucket = TokenBucket::new(Quota::per_day(100));
    let mut passed = 0;
    for _ in 0..2 {
        let redis = Redis::open(&server.url()).expect("a url");
        let redis = redis.deadline(PATIENCE);
        let limit = redis.limiter("all", bucket).without_deny_cache();
        let peeked = connected(async || limit.apply(KEY, Op::Peek(0)).await).await;
        let _ = peeked.expect("a decision");
        let limit = StreamLimit::new(Arc::new(limit), KEY.to_owned());
        let limit = limit.max_wait(Duration::ZERO);
        let mut messages = LimitedStream::new(stream::iter(0..60), limit);
        while let Some(message) = messages.next().await {
            passed += u32::from(message.is_ok());
        }
    }
    assert_eq!(passed, 100);
}
