//! Starts a Redis cluster.

use crate::proxy::{Protocol, Proxy};
use crate::redis_server::{RedisServer, Setup, reached};

/// A node that knows no others.
fn node() -> RedisServer {
    Setup::default()
        .second_port("--cluster-port")
        .arguments(&["--cluster-enabled", "yes"])
        .arguments(&["--cluster-node-timeout", "1000"])
        .arguments(&["--cluster-require-full-coverage", "no"])
        .start()
}

/// A cluster of three masters that share the slots, and `others` nodes without slots.
pub fn cluster(others: usize) -> Vec<RedisServer> {
    let nodes: Vec<_> = (0..3 + others).map(|_| node()).collect();
    let ranges = [["0", "5460"], ["5461", "10922"], ["10923", "16383"]];
    for (at, node) in nodes.iter().enumerate() {
        if let Some([first, last]) = ranges.get(at) {
            tell(node, &["ADDSLOTSRANGE", first, last]);
        }
        for other in &nodes {
            let [port, bus] = [other.port(), other.second_port()].map(|port| port.to_string());
            tell(node, &["MEET", "127.0.0.1", &port, &bus]);
        }
    }
    let known = format!("cluster_known_nodes:{}\r", nodes.len());
    reached("the cluster is complete", || {
        nodes.iter().all(|node| {
            let info = ask(node, &["INFO"]);
            info.contains("cluster_state:ok")
                && info.contains("cluster_slots_ok:16384")
                && info.contains(&known)
        })
    });
    nodes
}

/// A server that is a cluster by itself.
pub fn cluster_of_one() -> RedisServer {
    let server = node();
    tell(&server, &["ADDSLOTSRANGE", "0", "16383"]);
    reached("the cluster is complete", || {
        ask(&server, &["INFO"]).contains("cluster_state:ok")
    });
    server
}

/// Runs `CLUSTER ..` on a node.
pub fn tell(node: &RedisServer, words: &[&str]) {
    let mut command = redis::cmd("CLUSTER");
    command.arg(words);
    command.exec(&mut node.connection()).expect("done");
}

/// The reply of a node to `CLUSTER ..`.
pub fn ask(node: &RedisServer, words: &[&str]) -> String {
    let mut command = redis::cmd("CLUSTER");
    command.arg(words);
    command.query(&mut node.connection()).expect("an answer")
}

/// Proxies before all nodes of a cluster. The nodes announce the addresses of the proxies.
pub fn behind_proxies(nodes: &[RedisServer]) -> Vec<Proxy> {
    let proxies = nodes
        .iter()
        .map(|node| Proxy::before(Protocol::Redis, node.port()));
    let proxies: Vec<_> = proxies.collect();
    for (node, proxy) in nodes.iter().zip(&proxies) {
        announce(node, proxy);
    }
    reached("the cluster is behind the proxies", || {
        let all = |node| {
            let map = ask(node, &["NODES"]);
            proxies
                .iter()
                .all(|proxy| map.contains(&format!("127.0.0.1:{}@", proxy.port())))
        };
        nodes.iter().all(all)
    });
    proxies
}

/// Lets a node of a cluster announce the address of a proxy, until the node restarts.
pub fn announce(node: &RedisServer, proxy: &Proxy) {
    redis::cmd("CONFIG")
        .arg(&["SET", "cluster-announce-port", &proxy.port().to_string()])
        .exec(&mut node.connection())
        .expect("done");
}
