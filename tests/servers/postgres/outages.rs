//! The server stops, crashes and starts again.

use std::time::Duration;

use tower_throttle::store::cas::{CasStore, Swapped, postgres::PostgreSql};

use super::{MINUTE, connected, insert, load, postgres_server::PostgresServer, value, version};
use crate::wait::until;

async fn stores(server: &PostgresServer) -> [PostgreSql; 2] {
    let open = || PostgreSql::open(&server.url()).expect("a URL");
    let unlogged = open().table("unlogged").expect("a name");
    let logged = open().table("logged").expect("a name").logged();
    for store in [&unlogged, &logged] {
        let made = connected(async || store.create_table().await).await;
        made.expect("a table");
        insert(store, "key", &value(1, "stored")).await;
    }
    [unlogged, logged]
}

/// Waits until calls succeed again. Until then they fail for a time, and soon.
async fn recovered(store: &PostgreSql) {
    until("calls succeed again", async || {
        let call = tokio::time::timeout(Duration::from_secs(10), store.load("key"));
        match call.await.expect("a call is not stuck") {
            Ok(_) => true,
            Err(error) if error.is_transient() => false,
            Err(error) => panic!("{error}"),
        }
    })
    .await;
}

/// Shows promise 143.
#[tokio::test]
async fn a_crash_empties_an_unlogged_table_and_no_logged_one() {
    let mut server = PostgresServer::start();
    let [unlogged, logged] = stores(&server).await;
    server.kill();
    let error = unlogged.load("key").await.expect_err("the server is gone");
    assert!(error.is_transient(), "{error}");
    server.restart();
    recovered(&unlogged).await;
    recovered(&logged).await;
    assert_eq!(load(&unlogged, "key").await, None);
    assert_eq!(load(&logged, "key").await, Some(value(1, "stored")));
    // A swap of a version that the server has forgotten does not succeed.
    let new = value(2, "new");
    let swapped = unlogged.swap("key", Some(version(1)), &new, MINUTE).await;
    assert!(matches!(swapped, Ok(Swapped::Conflict(_))), "{swapped:?}");
    insert(&unlogged, "key", &new).await;
}

/// Shows promise 143.
#[tokio::test]
async fn an_orderly_restart_keeps_all_values() {
    let mut server = PostgresServer::start();
    let stores = stores(&server).await;
    server.stop();
    server.restart();
    for store in stores {
        recovered(&store).await;
        assert_eq!(load(&store, "key").await, Some(value(1, "stored")));
    }
}
