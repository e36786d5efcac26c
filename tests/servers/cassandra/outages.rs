//! The server stops, crashes and starts again.

use std::time::Duration;

use tower_throttle::store::cas::{CasStore, Swapped, cassandra::Cassandra};

use super::{CassandraServer, MINUTE, insert, load, store_on, value, version};
use crate::wait::until;

/// Waits until calls succeed again. Until then they fail for a time.
async fn recovered(store: &Cassandra) {
    until("calls succeed again", async || {
        let call = tokio::time::timeout(Duration::from_secs(1), store.load("key"));
        match call.await {
            Ok(Ok(_)) => true,
            Ok(Err(error)) if !error.is_transient() => panic!("{error}"),
            _ => false,
        }
    })
    .await;
}

/// Shows promise 143.
#[tokio::test]
#[ignore = "it needs Java"]
async fn values_survive_a_crash_and_calls_succeed_after_it() {
    let mut server = CassandraServer::start();
    let store = store_on(&server, "crashes").await;
    insert(&store, "key", &value(1, "stored")).await;
    let new = value(2, "new");
    server.signal("STOP");
    let swap = store.swap("key", Some(version(1)), &new, MINUTE);
    let unanswered = tokio::time::timeout(Duration::from_millis(300), swap).await;
    assert!(unanswered.is_err(), "{unanswered:?}");
    server.signal("CONT");
    recovered(&store).await;
    // The caller has left. The swap was executed or not, and the version shows which.
    let stored = load(&store, "key").await.expect("a value");
    assert!(stored == new || stored == value(1, "stored"), "{stored:?}");

    server.kill();
    let error = store.load("key").await.expect_err("the server is gone");
    assert!(error.is_transient(), "{error}");
    server.restart();
    recovered(&store).await;
    assert_eq!(load(&store, "key").await, Some(stored.clone()));
    let next = value(3, "next");
    let swapped = store.swap("key", Some(stored.version), &next, MINUTE).await;
    assert_eq!(swapped, Ok(Swapped::Done(None)));
}
