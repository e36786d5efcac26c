//! Limits in PostgreSQL, against real servers.

mod connections;
mod isolation;
mod limits;
mod mistakes;
mod pooler;
mod port;
mod sweeps;

use std::sync::Arc;

use tower_throttle::store::cas::postgres::PostgreSql;

use crate::{
    postgres_server::{self, PostgresServer},
    wait::connected,
};

/// A store on the shared server, with this table, made anew.
async fn store(table: &str) -> (Arc<PostgresServer>, PostgreSql) {
    let server = PostgresServer::shared();
    let store = PostgreSql::open(&server.url()).expect("a URL");
    let store = store.table(table).expect("a name");
    let made = connected(async || store.create_table().await).await;
    made.expect("a table");
    (server, store)
}
