//! Sessions that the store makes, or that the program has.

use std::{sync::Arc, time::Duration};

use tower_throttle::store::cas::{CasStore, cassandra::Cassandra};

use super::{insert, load, store, store_behind, value};
use crate::proxy::{Protocol, Proxy};
use crate::wait::until;

#[test]
#[ignore = "it needs Java"]
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
#[ignore = "it needs Java"]
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

/// Shows promise 86.
#[test]
#[ignore = "it needs Java"]
fn a_runtime_without_timers_is_an_error_that_names_the_remedy() {
    let start = |timers| {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let builder = builder.enable_io();
        let builder = if timers {
            builder.enable_time()
        } else {
            builder
        };
        builder.build().expect("a runtime")
    };
    let (server, _) = start(true).block_on(store("timers"));
    let lazy = Cassandra::with_builder(server.builder());
    let lazy = lazy.table("test.timers").expect("a name");
    let error = start(false).block_on(lazy.load("key"));
    let error = error.expect_err("no timers");
    assert!(!error.is_transient(), "{error}");
    assert!(error.to_string().contains("`enable_time`"), "{error}");
}

/// Each reply is late, so that the statements take longer than any call waits.
///
/// Shows promise 86.
#[tokio::test]
#[ignore = "it needs Java"]
async fn statements_are_prepared_although_no_call_waits_so_long() {
    let (server, _) = store("prepared").await;
    let proxy = Proxy::before(Protocol::Cassandra, server.port());
    let slow = store_behind(&proxy, "prepared").await;
    proxy.delays_all(Duration::from_millis(60));
    until("a call succeeds", async || {
        let call = tokio::time::timeout(Duration::from_millis(110), slow.load("key"));
        matches!(call.await, Ok(Ok(_)))
    })
    .await;
}
