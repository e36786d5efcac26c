//! Starts replicas of a Redis server, and sentinels that promote them.

use std::collections::HashMap;

use crate::redis_server::{RedisServer, Setup, reached};

/// A replica of the server at this port.
pub fn replica(port: u16) -> RedisServer {
    let server = RedisServer::start();
    follow(&server, port, server.port());
    server
}

/// Makes a server the replica of the one at the port `primary`. It announces the port `own`.
pub fn follow(server: &RedisServer, primary: u16, own: u16) {
    let (primary, own) = (primary.to_string(), own.to_string());
    let connection = &mut server.connection();
    let announce = ["CONFIG", "SET", "replica-announce-port", &own];
    for words in [&announce[..], &["REPLICAOF", "127.0.0.1", &primary]] {
        let (name, arguments) = words.split_first().expect("a command");
        redis::cmd(name)
            .arg(arguments)
            .exec(connection)
            .expect("done");
    }
    reached("the replica follows", || is_following(server));
}

/// Whether a replica has all that its primary has.
pub fn is_following(server: &RedisServer) -> bool {
    replication(server)
        .get("master_link_status")
        .map(String::as_str)
        == Some("up")
}

pub fn is_primary(server: &RedisServer) -> bool {
    replication(server).get("role").map(String::as_str) == Some("master")
}

/// What a server reports of its replication.
pub fn replication(server: &RedisServer) -> HashMap<String, String> {
    let info: String = redis::cmd("INFO")
        .arg("replication")
        .query(&mut server.connection())
        .expect("its role");
    info.lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect()
}

/// The name of the primary among sentinels.
pub const PRIMARY: &str = "limits";

/// Three sentinels of the primary at this port, which has one replica.
pub fn sentinels(port: u16) -> Vec<RedisServer> {
    let watch = format!(
        "sentinel monitor {PRIMARY} 127.0.0.1 {port} 2\n\
         sentinel down-after-milliseconds {PRIMARY} 500\n\
         sentinel failover-timeout {PRIMARY} 4000\n"
    );
    let all: Vec<_> = (0..3)
        .map(|_| Setup::default().sentinel(&watch).start())
        .collect();
    reached("the sentinels know each other and the replica", || {
        all.iter().all(|sentinel| {
            let info: String = redis::cmd("INFO")
                .arg("sentinel")
                .query(&mut sentinel.connection())
                .expect("what it knows");
            info.contains("status=ok") && info.contains("slaves=1,sentinels=3")
        })
    });
    all
}

/// How many sentinels report the primary at this port.
pub fn sentinels_naming(sentinels: &[RedisServer], port: u16) -> usize {
    let names = |sentinel: &&RedisServer| {
        let (_, named): (String, u16) = redis::cmd("SENTINEL")
            .arg("GET-MASTER-ADDR-BY-NAME")
            .arg(PRIMARY)
            .query(&mut sentinel.connection())
            .expect("an address");
        named == port
    };
    sentinels.iter().filter(names).count()
}
