//! Decisions of limits whose states are in the server.

use scylla::client::session_builder::SessionBuilder;
use tower_throttle::store::cas::cassandra::Cassandra;

use super::store;
use crate::shared_limit;

const LIMIT: u64 = 200;

fn open(node: &str) -> Cassandra {
    let builder = SessionBuilder::new().known_node(node);
    let store = Cassandra::with_builder(builder.user("cassandra", "cassandra"));
    store.table("test.processes").expect("a name")
}

#[test]
#[ignore = "started by the test below"]
fn one_process() {
    shared_limit::run_process(LIMIT, open);
}

/// Shows promise 83.
#[test]
#[ignore = "it needs Java"]
fn two_processes_admit_exactly_the_limit() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (server, _) = runtime.block_on(store("processes"));
    let node = server.node();
    shared_limit::two_processes_admit_exactly(LIMIT, &node, "cassandra::limits::one_process");
}

/// Shows promise 360.
#[tokio::test]
#[ignore = "it needs Java"]
async fn machines_share_the_permits_of_a_fleet() {
    let (_server, store) = store("permits").await;
    shared_limit::machines_share_permits(store).await;
}

/// Shows promise 83.
#[tokio::test]
#[ignore = "it needs Java"]
async fn an_uncontended_decision_is_one_transaction() {
    let (_server, store) = store("alone").await;
    shared_limit::a_decision_is_one_round_trip(store).await;
}
