//! Sessions that the store makes, or that the program has.

use std::sync::Arc;

use tower_throttle::store::cas::cassandra::Cassandra;

use super::{insert, load, store, value};

#[test]
fn a_store_works_in_one_runtime_after_the_other() {
    let start = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime")
    };
    let (server, _) = start().block_on(store("runtimes"));
    let lazy = Cassandra::with_builder(server.builder());
    let lazy = lazy.table("test.runtimes").expect("a name");
    for number in 0..3 {
        start().block_on(insert(&lazy, &number.to_string(), &value(number, "")));
    }
}

#[tokio::test]
async fn many_first_calls_make_one_session() {
    let (server, _) = store("first_calls").await;
    let lazy = Cassandra::with_builder(server.builder());
    let lazy = Arc::new(lazy.table("test.first_calls").expect("a name"));
    let calls: Vec<_> = (0..100)
        .map(|number| {
            let lazy = Arc::clone(&lazy);
            tokio::spawn(async move { load(&lazy, &number.to_string()).await })
        })
        .collect();
    for call in calls {
        assert_eq!(call.await.expect("no panic"), None);
    }
    let query = "SELECT connection_stage, username FROM system_views.clients";
    let rows = server.session().await.query_unpaged(query, ()).await;
    let rows = rows.expect("a reply").into_rows_result().expect("rows");
    // Each session has a connection of its own to learn of the nodes, and some for calls.
    assert!(rows.rows_num() < 100, "{} connections", rows.rows_num());
}
