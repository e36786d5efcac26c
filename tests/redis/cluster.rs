//! A limit in a cluster of three masters.

use std::{net::TcpListener, time::Duration};

use redis::cluster::ClusterClient;
use tower_throttle::store::redis::Redis;
use tower_throttle::{FixedWindow, KeyedLimiter, Quota, SlidingLog, TokenBucket};

use crate::redis_server::RedisServer;

/// Three masters that know each other and share the slots.
async fn cluster() -> Vec<RedisServer> {
    let nodes: Vec<_> = (0..3)
        .map(|_| {
            let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
            let bus = free.local_addr().expect("its address").port();
            drop(free);
            let server = RedisServer::with(&[
                "--cluster-enabled",
                "yes",
                "--cluster-port",
                &bus.to_string(),
            ]);
            (server, bus)
        })
        .collect();
    for (at, (node, _)) in nodes.iter().enumerate() {
        let ranges = [[0, 5_460], [5_461, 10_922], [10_923, 16_383]];
        redis::cmd("CLUSTER")
            .arg("ADDSLOTSRANGE")
            .arg(&ranges[at])
            .exec(&mut node.connection())
            .expect("its slots");
        for (other, bus) in &nodes {
            redis::cmd("CLUSTER")
                .arg("MEET")
                .arg("127.0.0.1")
                .arg(other.port())
                .arg(*bus)
                .exec(&mut node.connection())
                .expect("a greeting");
        }
    }
    let whole = |info: &str| info.contains("cluster_state:ok") && info.contains("known_nodes:3");
    let ready = async {
        for (node, _) in &nodes {
            loop {
                let info: String = redis::cmd("CLUSTER")
                    .arg("INFO")
                    .query(&mut node.connection())
                    .expect("its state");
                if whole(&info) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    };
    let limit = Duration::from_secs(30);
    tokio::time::timeout(limit, ready).await.expect("a cluster");
    nodes.into_iter().map(|(server, _)| server).collect()
}

#[tokio::test]
async fn two_machines_share_each_limit_wherever_its_slot_is() {
    let nodes = cluster().await;
    let machine = || {
        let client = ClusterClient::new(nodes.iter().map(RedisServer::url).collect::<Vec<_>>());
        Redis::with_cluster(client.expect("urls")).deadline(Duration::from_secs(10))
    };
    let machines = [machine(), machine()];
    let quota = Quota::per_hour(3);
    let logs = machines
        .each_ref()
        .map(|redis| redis.limiter("log", SlidingLog::new(quota)));
    let pairs = machines.each_ref().map(|redis| {
        let window = FixedWindow::new(quota).anchored();
        redis.limiter("pair", (TokenBucket::new(Quota::per_hour(10)), window))
    });
    for key in 0..40_u64 {
        let mut admitted = [0, 0];
        for turn in 0..6 {
            let by_log = logs[turn % 2].decide(&key, 1).await.expect("a decision");
            let by_pair = pairs[turn % 2].decide(&key, 1).await.expect("a decision");
            admitted[0] += u32::from(by_log.is_admitted());
            admitted[1] += u32::from(by_pair.is_admitted());
        }
        assert_eq!(admitted, [3, 3], "key {key}");
    }
    for node in &nodes {
        let keys: u64 = redis::cmd("DBSIZE")
            .query(&mut node.connection())
            .expect("a count");
        assert!(keys > 0, "every master holds some of them");
    }
}
