//! Decisions of limits whose states are in the server.

use scylla::client::session_builder::SessionBuilder;
use tower_throttle::store::cas::cassandra::Cassandra;

use super::store;
use crate::cassandra_server::CassandraServer;

const LIMIT: u64 = 200;

fn open(node: &str) -> Cassandra {
    let builder = SessionBuilder::new().known_node(node);
    let store = Cassandra::with_builder(builder.user("cassandra", "cassandra"));
    store.table("test.machines").expect("a name")
}

crate::suite::check_machines!(
    LIMIT,
    store,
    open,
    CassandraServer::node,
    ignore = "it needs Java"
);
