//! Batches of a fleet on real servers: one, or a cluster.

use std::sync::Arc;

use super::RedisServer;
use crate::store::{
    cas::CasStore as _,
    fleet::{Batch, simulation::traces::fixed_batch},
    redis::Redis,
};

/// Two keys in each of some groups.
fn batch(machine: u64, sequence: u64) -> Arc<Batch> {
    let names = (0..32).map(|key| format!("{{throttle:api:{}}}key {key}", key / 2));
    fixed_batch(machine, sequence, "{throttle:api}", names)
}

/// Executes a batch which reports 3 units for each key. Returns the units that are used of all keys.
async fn used(redis: &Redis, batch: &Arc<Batch>) -> u64 {
    let replies = redis.run(&**batch).await.expect("replies");
    assert_eq!(replies.used().len(), 32);
    let used = replies.used();
    assert!(used.iter().all(|units| *units == used[0]), "{used:?}");
    used[0]
}

fn open(url: &str) -> Redis {
    Redis::open(url).expect("a url")
}

#[tokio::test]
async fn a_batch_that_cannot_be_written_changes_nothing() {
    let server = RedisServer::start();
    let redis = open(&server.url());
    let set = |setting: &str, value: &str| {
        let mut command = redis::cmd("CONFIG");
        let done = command
            .arg("SET")
            .arg(setting)
            .arg(value)
            .exec(&mut server.connection());
        done.expect("done");
    };
    set("maxmemory", "1");
    let error = redis.run(&*batch(1, 1)).await.expect_err("no memory");
    assert!(
        error.is_transient() && error.to_string().contains("OOM"),
        "{error}"
    );
    set("maxmemory", "0");
    assert_eq!(used(&redis, &batch(1, 1)).await, 3);
    let damage = |name: &str, value: &str| {
        let mut command = redis::cmd(name);
        let value = (name != "DEL").then_some(value);
        let command = command.arg("{throttle:api:15}key 31").arg(value);
        command.exec(&mut server.connection()).expect("done");
    };
    damage("SET", "1 2 three");
    let replies = redis.run(&*batch(1, 2)).await.expect("replies");
    let used = replies.used();
    assert_eq!((used[30], used[31]), (6, 1_000), "it alone is damaged");
    damage("DEL", "");
    damage("LPUSH", "another type");
    let replies = redis.run(&*batch(1, 3)).await.expect("replies");
    let used = replies.used();
    assert_eq!((used[30], used[31]), (9, 1_000), "it alone is damaged");
}

mod in_a_cluster {
    use redis::cluster::ClusterClientBuilder;

    use super::super::redis_cluster::{cluster, cluster_of_one};
    use super::*;

    #[tokio::test]
    async fn a_batch_is_split_by_groups_of_keys() {
        let nodes = cluster(0);
        let machine = || {
            let builder = ClusterClientBuilder::new(nodes.iter().map(RedisServer::url));
            Redis::with_cluster(builder).expect("urls")
        };
        let machines = [machine(), machine()];
        assert_eq!(used(&machines[0], &batch(1, 1)).await, 3);
        assert_eq!(used(&machines[0], &batch(1, 1)).await, 3);
        assert_eq!(used(&machines[1], &batch(2, 1)).await, 6);
        for node in &nodes {
            let keys: u64 = redis::cmd("DBSIZE")
                .query(&mut node.connection())
                .expect("a count");
            assert!(keys > 0, "every master holds some keys");
        }
    }

    #[tokio::test]
    async fn a_plain_client_of_a_cluster_splits_too() {
        let server = cluster_of_one();
        let redis = open(&server.url());
        assert!(redis.group_of("").is_some());
        assert_eq!(used(&redis, &batch(1, 1)).await, 3);
        assert!(redis.group_of("").is_none());
        assert_eq!(used(&redis, &batch(1, 1)).await, 3);
    }
}
