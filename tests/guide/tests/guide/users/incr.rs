//! A function that counts with `INCR` and `EXPIRE`, or with the script that is written for it, and what takes its place.

use redis::{AsyncCommands, RedisResult, aio::MultiplexedConnection};
use tower_throttle::store::{Backend, cas::Cas, redis::Redis};
use tower_throttle::{FixedWindow, Quota, StoreError};

async fn by_hand(redis: &mut MultiplexedConnection, account: u64) -> RedisResult<bool> {
    let key = format!("limit:{account}");
    let n: u64 = redis.incr(&key, 1).await?;
    if n == 1 {
        let _: bool = redis.expire(&key, 60).await?;
    }
    Ok(n <= 3)
}

async fn by_script(redis: &mut MultiplexedConnection, account: u64) -> RedisResult<bool> {
    let script = "local n = redis.call('INCR', KEYS[1])
        if n == 1 then redis.call('EXPIRE', KEYS[1], 60) end
        return n";
    let mut eval = redis::cmd("EVAL");
    let eval = eval.arg(script).arg(1).arg(format!("scripted:{account}"));
    let n: u64 = eval.query_async(redis).await?;
    Ok(n <= 3)
}

fn limiter(redis: &Redis) -> Cas<Redis, FixedWindow> {
    redis.limiter("api", FixedWindow::new(Quota::per_minute(3)).anchored())
}

async fn by_limiter(limit: &Cas<Redis, FixedWindow>, account: u64) -> Result<bool, StoreError> {
    Ok(limit.decide(&account, 1).await?.is_admitted())
}

// ---- What its users see.

use std::time::Duration;

use crate::users::redis_server::RedisServer;

#[tokio::test]
async fn it_admits_the_same_requests_and_leaves_no_key_without_an_end() {
    let server = RedisServer::start();
    let client = redis::Client::open(server.url()).expect("a URL");
    let connection = client.get_multiplexed_async_connection().await;
    let mut connection = connection.expect("a server");
    let redis = Redis::open(&server.url()).expect("a URL");
    let limit = limiter(&redis.deadline(Duration::from_secs(10)));
    for n in 1..=5 {
        let hand = by_hand(&mut connection, 7).await;
        let script = by_script(&mut connection, 7).await;
        let limiter = by_limiter(&limit, 7).await;
        assert_eq!(hand.expect("a reply"), n <= 3);
        assert_eq!(script.expect("a reply"), n <= 3);
        assert_eq!(limiter.expect("a reply"), n <= 3);
    }
    // The process stops between the two commands.
    let _: u64 = connection.incr("limit:8", 1).await.expect("a reply");
    let keys: Vec<String> = connection.keys("*").await.expect("a reply");
    assert_eq!(keys.len(), 4, "{keys:?}");
    for key in keys {
        let ttl: i64 = connection.pttl(&key).await.expect("a reply");
        assert_eq!(ttl > 0, key != "limit:8", "{key}: {ttl}");
    }
}
