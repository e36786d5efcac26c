//! A limit in a cluster of three masters.

use std::{net::TcpListener, time::Duration};

use redis::cluster::ClusterClientBuilder;
use tower_throttle::store::redis::Redis;
use tower_throttle::{FixedWindow, Quota, SlidingLog, TokenBucket, store::Backend};

use crate::reached;
use crate::redis_server::RedisServer;

/// Three masters that know each other and share the slots, and after them so many others, which
/// are nobody's replica yet.
pub(crate) fn cluster(others: usize) -> Vec<RedisServer> {
    let nodes: Vec<_> = (0..3 + others)
        .map(|_| {
            let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
            let bus = free.local_addr().expect("its address").port().to_string();
            drop(free);
            let server = RedisServer::with(&[
                "--cluster-enabled",
                "yes",
                "--cluster-port",
                &bus,
                "--cluster-node-timeout",
                "1000",
                "--cluster-require-full-coverage",
                "no",
            ]);
            (server, bus)
        })
        .collect();
    let ranges = [["0", "5460"], ["5461", "10922"], ["10923", "16383"]];
    for (at, (node, _)) in nodes.iter().enumerate() {
        if let Some([first, last]) = ranges.get(at) {
            tell(node, &["ADDSLOTSRANGE", first, last]);
        }
        for (other, bus) in &nodes {
            tell(node, &["MEET", "127.0.0.1", &other.port().to_string(), bus]);
        }
    }
    let known = format!("cluster_known_nodes:{}\r", nodes.len());
    reached("the cluster is whole", || {
        nodes.iter().all(|(node, _)| {
            let info = ask(node, &["INFO"]);
            info.contains("cluster_state:ok")
                && info.contains("cluster_slots_ok:16384")
                && info.contains(&known)
        })
    });
    nodes.into_iter().map(|(server, _)| server).collect()
}

/// Has a node carry out `CLUSTER ..`.
pub(crate) fn tell(node: &RedisServer, words: &[&str]) {
    let mut command = redis::cmd("CLUSTER");
    command.arg(words);
    command.exec(&mut node.connection()).expect("done");
}

/// What a node says to `CLUSTER ..`.
pub(crate) fn ask(node: &RedisServer, words: &[&str]) -> String {
    let mut command = redis::cmd("CLUSTER");
    command.arg(words);
    command.query(&mut node.connection()).expect("an answer")
}

#[tokio::test]
async fn two_machines_share_each_limit_wherever_its_slot_is() {
    let nodes = cluster(0);
    let machine = || {
        let builder = ClusterClientBuilder::new(nodes.iter().map(RedisServer::url));
        Redis::with_cluster(builder)
            .expect("urls")
            .deadline(Duration::from_secs(10))
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
