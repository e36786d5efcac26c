//! Limits in Cassandra, against real servers. `tests/run cassandra` runs these tests: they need Java
//! and Maven.

mod agreement;
mod limits;
mod mistakes;
mod port;
mod sessions;

use std::sync::Arc;

use scylla::client::session_builder::SessionBuilder;
use tower_throttle::store::cas::cassandra::Cassandra;

use crate::{cassandra_server::CassandraServer, proxy::Proxy};

const KEYSPACE: &str = "CREATE KEYSPACE IF NOT EXISTS test WITH replication = \
                        {'class': 'SimpleStrategy', 'replication_factor': 1}";

/// A store on the shared server, with this table, made anew.
async fn store(table: &str) -> (Arc<CassandraServer>, Cassandra) {
    let server = CassandraServer::shared();
    let store = store_on(&server, table).await;
    (server, store)
}

async fn store_on(server: &CassandraServer, table: &str) -> Cassandra {
    let session = server.session().await;
    let made = session.query_unpaged(KEYSPACE, ()).await;
    made.expect("a right of the superuser");
    let store = Cassandra::with_session(Arc::new(session));
    let store = store.table(&format!("test.{table}")).expect("a name");
    store.create_table().await.expect("a table");
    store
}

/// A store behind a proxy of the server, with a table that is there.
async fn store_behind(proxy: &Proxy, table: &str) -> Cassandra {
    let builder = SessionBuilder::new()
        .known_node(format!("127.0.0.1:{}", proxy.port()))
        .user("cassandra", "cassandra");
    let session = Box::pin(builder.build()).await;
    let session = session.expect("a server that responds");
    let store = Cassandra::with_session(Arc::new(session));
    store.table(&format!("test.{table}")).expect("a name")
}
