//! Expired rows are removed.

use std::time::Duration;

use tokio::time::Instant;
use tokio_postgres::{Client, Config};
use tower_throttle::store::cas::{
    CasStore, Swapped,
    postgres::{Connections, PostgreSql},
};

use super::{MINUTE, connected, insert, load, store, value};
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
async fn a_sweep_removes_expired_rows_and_no_more_than_it_may() {
    let (server, store) = store("swept").await;
    let client = server.client().await;
    for number in 0..30 {
        insert(&store, &format!("old-{number}"), &value(1, "")).await;
    }
    insert(&store, "new", &value(1, "kept")).await;
    assert_eq!(store.sweep(100).await, Ok(0));
    age(&client, "swept", "old-%").await;
    assert_eq!(store.sweep(10).await, Ok(10));
    assert_eq!(rows(&client, "swept").await, 21);
    assert_eq!(store.sweep(100).await, Ok(20));
    assert_eq!(store.sweep(100).await, Ok(0));
    assert_eq!(load(&store, "new").await, Some(value(1, "kept")));
}

/// Rows in use are due before those that have expired, and are more than a batch.
///
/// Shows promise 85.
#[tokio::test]
async fn a_sweep_passes_rows_in_use() {
    let (server, store) = store("passed").await;
    let client = server.client().await;
    let fill = "INSERT INTO passed SELECT 'used-' || n, 1, '', 4000000000000000, 1 \
                FROM generate_series(1, 250) n";
    client.batch_execute(fill).await.expect("a table");
    insert(&store, "old", &value(1, "")).await;
    age(&client, "passed", "old").await;
    assert_eq!(store.sweep(1).await, Ok(1));
    assert_eq!(rows(&client, "passed").await, 250);
    assert_eq!(overdue(&client, "passed").await, 0);
}

/// Shows promise 85.
#[tokio::test]
async fn sweeps_and_swaps_at_once_lose_no_value() {
    let (server, _) = store("raced").await;
    let client = server.client().await;
    let on_own_connection = async || {
        let connections = Connections::open(&server.url()).expect("a URL");
        // Without the short timeout of locks: on a busy machine a sweep may hold one for as long.
        let store = PostgreSql::new(connections.without_session_settings());
        let store = store.table("raced").expect("a name").without_sweeps();
        let swept = connected(async || store.sweep(100).await).await;
        assert_eq!(swept, Ok(0));
        store
    };
    let (store, sweeper) = (on_own_connection().await, on_own_connection().await);
    for round in 0..100 {
        let old = value(2 * round + 1, "old");
        let new = value(2 * round + 2, "new");
        // The row of the round before has expired, or was swept.
        insert(&store, "key", &old).await;
        age(&client, "raced", "key").await;
        let (swapped, swept) =
            tokio::join!(store.swap("key", None, &new, MINUTE), sweeper.sweep(100));
        assert!(matches!(swapped, Ok(Swapped::Done(_))), "{swapped:?}");
        assert!(swept.is_ok(), "{swept:?}");
        assert_eq!(load(&store, "key").await, Some(new));
        age(&client, "raced", "key").await;
    }
}

/// Inserts rows that have expired.
async fn fill(client: &Client, table: &str, count: u32) {
    let fill = format!(
        "INSERT INTO {table} SELECT 'old-' || n, 1, '', 1, 1 FROM generate_series(1, {count}) n"
    );
    client.batch_execute(&fill).await.expect("a table");
}

/// Shows promise 85.
#[tokio::test]
async fn the_store_sweeps_in_the_background_until_it_is_dropped() {
    let (server, _) = store("background").await;
    let client = server.client().await;
    let mut config: Config = server.url().parse().expect("a URL");
    config.application_name("sweeps");
    let store = PostgreSql::new(Connections::new(config));
    let store = store.table("background").expect("a name");
    let connections = async || {
        let query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'sweeps'";
        let row = client.query_one(query, &[]).await.expect("a count");
        row.get::<_, i64>(0)
    };
    let store = store
        .sweep_every(Duration::from_millis(20))
        .expect("an interval");
    // More than a batch.
    fill(&client, "background", 2_500).await;
    insert(&store, "new", &value(1, "")).await;
    until("the expired rows are gone", async || {
        rows(&client, "background").await == 1
    })
    .await;
    until("they are counted", async || store.sweeps().removed == 2_500).await;
    assert_eq!(store.sweeps().failures, 0);
    let clone = store.clone();
    drop(store);
    insert(&clone, "newer", &value(1, "")).await;
    assert!(connections().await > 0);
    drop(clone);
    until("the task has ended", async || connections().await == 0).await;
}

/// Rows in use are due before one that has expired. With a batch per interval it would take 25 seconds.
///
/// Shows promise 85.
#[tokio::test]
async fn the_store_sweeps_all_that_is_due_in_one_interval() {
    let (server, store) = store("at_once").await;
    let client = server.client().await;
    let fill = "INSERT INTO at_once SELECT 'used-' || n, 1, '', 4000000000000000, 1 \
                FROM generate_series(1, 5000) n";
    client.batch_execute(fill).await.expect("a table");
    insert(&store, "old", &value(1, "")).await;
    age(&client, "at_once", "old").await;
    let store = store
        .sweep_every(Duration::from_secs(1))
        .expect("an interval");
    let begun = Instant::now();
    assert_eq!(load(&store, "key").await, None);
    until("the expired row is gone", async || {
        rows(&client, "at_once").await == 5_000
    })
    .await;
    assert!(begun.elapsed() < Duration::from_secs(20));
}

/// Shows promise 85.
#[tokio::test]
async fn a_sweep_that_fails_is_counted_and_the_next_one_runs() {
    let (server, owner) = store("failing").await;
    let store = owner
        .sweep_every(Duration::from_millis(20))
        .expect("an interval");
    let client = server.client().await;
    assert_eq!(load(&store, "key").await, None);
    let hide = "ALTER TABLE failing RENAME TO hidden";
    client.batch_execute(hide).await.expect("a table");
    until("a sweep has failed", async || store.sweeps().failures >= 2).await;
    let error = store.sweeps().last_error.expect("a cause");
    assert!(error.to_string().contains("create_table"), "{error}");
    let show = "ALTER TABLE hidden RENAME TO failing";
    client.batch_execute(show).await.expect("a table");
    until("a sweep has succeeded", async || {
        store.sweeps().last_error.is_none()
    })
    .await;
}

/// Shows promise 86.
#[test]
fn connections_calls_and_sweeps_need_no_timers_of_the_runtime() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_io()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let server = crate::postgres::PostgresServer::shared();
        let store = PostgreSql::open(&server.url()).expect("a URL");
        let store = store.table("no_timers").expect("a name");
        let store = store.sweep_every(Duration::from_millis(10));
        let store = store.expect("an interval");
        let made = connected(async || store.create_table().await).await;
        made.expect("a table");
        let client = server.client().await;
        insert(&store, "key", &value(1, "")).await;
        age(&client, "no_timers", "key").await;
        let begun = tokio::time::Instant::now();
        while store.sweeps().removed == 0 {
            assert!(begun.elapsed().as_secs() < 30, "{:?}", store.sweeps());
            // A reply from time to time, so that the task runs.
            let _ = rows(&client, "no_timers").await;
        }
    });
}
