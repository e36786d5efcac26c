//! Rows that have expired are removed by later writes.

use std::time::Duration;

use tokio_postgres::Client;
use tower_throttle::store::cas::{CasStore, Swapped, postgres::PostgreSql};

use super::{connected, store};
use crate::stored::{MINUTE, insert, load, value};
use crate::wait::until;

/// Lets an hour pass for some rows.
async fn age(client: &Client, table: &str, keys: &str) {
    let age = format!(
        "UPDATE {table} SET expires_at = expires_at - 3600000000, sweep_at = sweep_at - 3600000000 \
         WHERE key LIKE '{keys}'"
    );
    client.batch_execute(&age).await.expect("a table");
}

async fn rows(client: &Client, table: &str) -> i64 {
    let query = format!("SELECT count(*) FROM {table}");
    client.query_one(&query, &[]).await.expect("a count").get(0)
}

/// The rows that a sweep would read.
async fn overdue(client: &Client, table: &str) -> i64 {
    let query = format!(
        "SELECT count(*) FROM {table} \
         WHERE sweep_at < extract(epoch FROM clock_timestamp()) * 1000000"
    );
    client.query_one(&query, &[]).await.expect("a count").get(0)
}

/// Shows promise 85.
#[tokio::test]
async fn some_writes_remove_rows_that_have_expired_and_no_others() {
    let (server, store) = store("swept").await;
    let client = server.client().await;
    for number in 0..60 {
        insert(&store, &format!("old-{number}"), &value(1, "")).await;
    }
    insert(&store, "new", &value(1, "kept")).await;
    age(&client, "swept", "old-%").await;
    for number in 1..25 {
        insert(&store, &format!("other-{number}"), &value(number, "")).await;
    }
    assert_eq!(rows(&client, "swept").await, 60 + 1 + 24);
    insert(&store, "other-25", &value(25, "")).await;
    until("50 of them are gone", async || {
        rows(&client, "swept").await == 10 + 1 + 25
    })
    .await;
    insert(&store, "other-26", &value(50, "")).await;
    until("all are gone", async || {
        rows(&client, "swept").await == 1 + 26
    })
    .await;
    assert_eq!(load(&store, "new").await, Some(value(1, "kept")));
}

/// Rows in use are due before those that have expired, and are more than a write reads.
///
/// Shows promise 85.
#[tokio::test]
async fn a_sweep_passes_rows_in_use() {
    let (server, store) = store("passed").await;
    let client = server.client().await;
    let fill = "INSERT INTO passed SELECT 'used-' || n, 1, '', 4000000000000000, 1 \
                FROM generate_series(1, 120) n";
    client.batch_execute(fill).await.expect("a table");
    insert(&store, "old", &value(1, "")).await;
    age(&client, "passed", "old").await;
    for write in 1..=3 {
        insert(&store, &format!("new-{write}"), &value(25 * write, "")).await;
    }
    until("what has expired is gone", async || {
        rows(&client, "passed").await == 120 + 3
    })
    .await;
    assert_eq!(overdue(&client, "passed").await, 0);
}

/// Shows promise 85.
#[tokio::test]
async fn sweeps_and_swaps_at_once_lose_no_value() {
    let (server, _) = store("raced").await;
    let client = server.client().await;
    let on_own_connection = async || {
        let store = PostgreSql::open(&server.url()).expect("a URL");
        // Without the short timeout of locks: on a busy machine a sweep may hold one for as long.
        let store = store.table("raced").expect("a name").behind_pooler();
        let checked = connected(async || store.check().await).await;
        assert_eq!(checked, Ok(()));
        store
    };
    let (store, sweeper) = (on_own_connection().await, on_own_connection().await);
    for round in 0..100 {
        let old = value(2 * round + 1, "old");
        let new = value(2 * round + 2, "new");
        // The row of the round before has expired, or was swept.
        insert(&store, "key", &old).await;
        age(&client, "raced", "key").await;
        let sweep = value(25 * (round + 1), "");
        let (swapped, swept) = tokio::join!(
            store.swap("key", None, &new, MINUTE),
            sweeper.swap("other", None, &sweep, Duration::ZERO)
        );
        assert!(matches!(swapped, Ok(Swapped::Done(_))), "{swapped:?}");
        assert!(matches!(swept, Ok(Swapped::Done(_))), "{swept:?}");
        assert_eq!(load(&store, "key").await, Some(new));
        age(&client, "raced", "key").await;
    }
}

/// Shows promise 86.
#[test]
fn connections_and_calls_need_no_timers_of_the_runtime() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_io()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let server = crate::postgres::PostgresServer::shared();
        let store = PostgreSql::open(&server.url()).expect("a URL");
        let store = store.table("no_timers").expect("a name");
        let made = connected(async || store.create_table().await).await;
        made.expect("a table");
        insert(&store, "key", &value(1, "")).await;
        assert_eq!(load(&store, "key").await, Some(value(1, "")));
    });
}
