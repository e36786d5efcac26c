//! Sessions that the store makes, or that the program has.

use std::time::Duration;

use tower_throttle::store::cas::{CasStore, cassandra::Cassandra};

use super::{store, store_behind};
use crate::proxy::{Protocol, Proxy};
use crate::wait::until;

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
