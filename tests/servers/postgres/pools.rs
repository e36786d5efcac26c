//! A pool that is not of this crate.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio_postgres::Client;
use tower_throttle::{
    StoreError,
    store::cas::{
        CasStore, Swapped,
        postgres::{Connections, Pool, PooledClient, PostgreSql, Statements},
    },
};

use super::{MINUTE, insert, load, postgres_server::PostgresServer, store, value, version};

/// One client for all calls.
#[derive(Clone)]
struct OneClient(Arc<Parts>);

struct Parts {
    client: Client,
    statements: Option<Statements>,
    released: AtomicUsize,
    unusable: AtomicUsize,
}

impl Pool for OneClient {
    type Connection = Self;

    async fn get(&self) -> Result<Self, StoreError> {
        Ok(self.clone())
    }

    fn client(connection: &Self) -> &Client {
        &connection.0.client
    }

    fn statements(connection: &Self) -> Option<&Statements> {
        connection.0.statements.as_ref()
    }

    fn release(connection: Self, usable: bool) {
        connection.0.released.fetch_add(1, Ordering::Relaxed);
        let unusable = usize::from(!usable);
        connection.0.unusable.fetch_add(unusable, Ordering::Relaxed);
    }
}

impl fmt::Debug for OneClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OneClient")
    }
}

async fn pooled(
    table: &str,
    statements: Option<Statements>,
) -> (Arc<PostgresServer>, OneClient, PostgreSql<OneClient>) {
    let (server, _) = store(table).await;
    let pool = OneClient(Arc::new(Parts {
        client: server.client().await,
        statements,
        released: AtomicUsize::new(0),
        unusable: AtomicUsize::new(0),
    }));
    let store = PostgreSql::new(pool.clone()).table(table).expect("a name");
    (server, pool, store.without_sweeps())
}

async fn prepared(pool: &OneClient) -> i64 {
    let query = "SELECT count(*) FROM pg_prepared_statements";
    let rows = pool.0.client.simple_query(query).await.expect("a count");
    let count = rows.iter().find_map(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    count.expect("a row").parse().expect("a number")
}

async fn use_it(store: &PostgreSql<OneClient>) {
    insert(store, "key", &value(1, "stored")).await;
    let new = value(2, "new");
    let swapped = store.swap("key", Some(version(1)), &new, MINUTE).await;
    assert!(matches!(swapped, Ok(Swapped::Done(_))), "{swapped:?}");
    assert_eq!(load(store, "key").await, Some(new));
}

/// A pool with no more than it must have: connections that calls share, none of which a transaction gets for itself,
/// without a place for statements.
#[derive(Debug)]
pub(crate) struct OnlyShared(pub(crate) Connections);

impl Pool for OnlyShared {
    type Connection = PooledClient;

    async fn get(&self) -> Result<PooledClient, StoreError> {
        self.0.get().await
    }

    fn client(connection: &PooledClient) -> &Client {
        Connections::client(connection)
    }
}

#[tokio::test]
async fn a_pool_with_statements_prepares_each_once() {
    let (_server, pool, store) = pooled("pool_prepared", Some(Statements::default())).await;
    use_it(&store).await;
    assert_eq!(load(&store, "other").await, None);
    assert_eq!(prepared(&pool).await, 3);
    assert_eq!(pool.0.unusable.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn statements_that_the_session_has_lost_are_prepared_anew() {
    let (_server, pool, store) = pooled("pool_lost", Some(Statements::default())).await;
    use_it(&store).await;
    let client = &pool.0.client;
    client
        .batch_execute("DEALLOCATE ALL")
        .await
        .expect("a session");
    let new = value(3, "once");
    let swapped = store.swap("key", Some(version(2)), &new, MINUTE).await;
    assert!(matches!(swapped, Ok(Swapped::Done(_))), "{swapped:?}");
    assert_eq!(load(&store, "key").await, Some(new));
}

#[tokio::test]
async fn a_pool_is_told_of_a_connection_that_broke() {
    let (server, pool, store) = pooled("pool_broken", None).await;
    let query = "SELECT pg_backend_pid()";
    let row = pool.0.client.query_one(query, &[]).await.expect("a number");
    let pid: i32 = row.get(0);
    let kill = "SELECT pg_terminate_backend($1)";
    let killed = server.client().await.execute(kill, &[&pid]).await;
    killed.expect("a right of the superuser");
    let error = store.load("key").await.expect_err("a broken connection");
    assert!(error.is_transient(), "{error}");
    assert_eq!(pool.0.unusable.load(Ordering::Relaxed), 1);
}
