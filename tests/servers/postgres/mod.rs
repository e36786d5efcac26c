//! Limits in PostgreSQL, against real servers.

mod connections;
mod isolation;
mod limits;
mod mistakes;
mod pooler;
mod port;
mod sweeps;

use std::{sync::Arc, time::Duration};

use tower_throttle::store::cas::{CasStore, Swapped, Value, postgres::PostgreSql};

use crate::{
    postgres_server::{self, PostgresServer},
    wait::connected,
};

const MINUTE: Duration = Duration::from_secs(60);

/// A store on the shared server, with this table, made anew.
async fn store(table: &str) -> (Arc<PostgresServer>, PostgreSql) {
    let server = PostgresServer::shared();
    let store = PostgreSql::open(&server.url()).expect("a URL");
    let store = store.table(table).expect("a name");
    let made = connected(async || store.create_table().await).await;
    made.expect("a table");
    (server, store)
}

fn value(number: u64, bytes: &str) -> Value {
    Value {
        version: number,
        bytes: bytes.into(),
    }
}

/// Stores a value of a new key.
async fn insert(store: &PostgreSql, key: &str, new: &Value) {
    let swapped = store.swap(key, None, new, MINUTE).await;
    let swapped = swapped.expect("a server that responds");
    assert!(matches!(swapped, Swapped::Done(Some(_))), "{swapped:?}");
}

/// The value of a key.
async fn load(store: &PostgreSql, key: &str) -> Option<Value> {
    store.load(key).await.expect("a reply").value
}
