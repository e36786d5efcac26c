//! Several connections.

use tower_throttle::store::redis::Redis;
use tower_throttle::{
    FixedWindow, Quota,
    store::{Backend, Op},
};

use crate::redis_server::RedisServer;
use crate::wait::connected;

const LIMIT: u64 = 20;

fn several(server: &RedisServer, count: usize) -> Redis {
    let redis = Redis::open(&server.url()).expect("a url");
    redis
        .deadline(std::time::Duration::from_secs(10))
        .connections(count)
        .expect("a number")
}

/// How many connections there are, but for that of this test.
fn connections(server: &RedisServer) -> usize {
    let list: String = redis::cmd("CLIENT")
        .arg("LIST")
        .query(&mut server.connection())
        .expect("a list");
    list.lines()
        .filter(|line| !line.contains("cmd=client"))
        .count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_spread_over_connections_and_each_has_one_limit() {
    for count in [1, 4] {
        let server = RedisServer::start();
        let window = FixedWindow::new(Quota::per_day(LIMIT)).anchored();
        let limiter = several(&server, count)
            .without_deny_cache()
            .limiter("several", window);
        for key in 0..64 {
            let key = format!("key{key}");
            let peeked = connected(async || limiter.apply(&key, Op::Peek(0)).await).await;
            assert_eq!(peeked.expect("a decision").remaining(), LIMIT);
        }
        let tasks: Vec<_> = (0..64)
            .map(|key| {
                let limiter = limiter.clone();
                tokio::spawn(async move {
                    let key = format!("key{key}");
                    for call in 1..=30 {
                        let asked = limiter.decide(key.as_str(), 1);
                        let decision = asked.await.expect("a decision");
                        assert_eq!(decision.is_admitted(), call <= LIMIT);
                        assert_eq!(decision.remaining(), LIMIT.saturating_sub(call));
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("each key has its own limit");
        }
        assert_eq!(connections(&server), count);
    }
}

#[tokio::test]
async fn a_broken_connection_fails_only_its_own_keys() {
    let server = RedisServer::start();
    let window = FixedWindow::new(Quota::per_day(1_000));
    let limiter = several(&server, 4).limiter("several", window);
    let keys: Vec<_> = (0..64).map(|key| format!("key{key}")).collect();
    for key in &keys {
        let decided = connected(async || limiter.decide(key.as_str(), 1).await).await;
        assert!(decided.expect("a decision").is_admitted());
    }
    let list: String = redis::cmd("CLIENT")
        .arg("LIST")
        .query(&mut server.connection())
        .expect("a list");
    let first = list.lines().find(|line| line.contains("cmd=eval"));
    let id = first.and_then(|line| line.split(' ').next()?.strip_prefix("id="));
    let mut kill = redis::cmd("CLIENT");
    kill.arg("KILL").arg("ID").arg(id.expect("an id"));
    let killed: u64 = kill.query(&mut server.connection()).expect("done");
    assert_eq!(killed, 1, "the fault happened");
    let mut failed = 0;
    for key in &keys {
        failed += u64::from(limiter.decide(key.as_str(), 1).await.is_err());
    }
    assert!(failed <= 1, "{failed} calls of 64 failed");
}

#[tokio::test]
async fn an_existing_connection_cannot_be_multiplied() {
    let server = RedisServer::start();
    let client = redis::Client::open(server.url()).expect("a url");
    let connection = client.get_multiplexed_async_connection().await;
    let redis = Redis::with_connection(connection.expect("a server"));
    assert!(redis.clone().connections(1).is_ok());
    let error = redis.connections(2).expect_err("there is one");
    assert!(
        error.to_string().contains("more than one connection"),
        "{error}"
    );
}
