//! The port: load and swap.

use std::time::Duration;

use tower_throttle::{
    clock::Tick,
    store::cas::{CasStore, Swapped, postgres::PostgreSql},
};

use crate::wait::until;

use super::{connected, postgres_server::PostgresServer, store};
use crate::stored::{MINUTE, insert, value};

/// Also one over a value that has expired, whose row is still there.
///
/// Shows promise 85.
#[tokio::test]
async fn each_swap_begins_the_time_to_live_anew() {
    let (server, store) = store("renewed").await;
    let client = server.client().await;
    let minutes_left = async || {
        let query = "SELECT round((expires_at - extract(epoch FROM clock_timestamp()) * 1000000) \
                     / 60000000)::bigint FROM renewed";
        let row = client.query_one(query, &[]).await.expect("a row");
        row.get::<_, i64>(0)
    };
    for (expected, new, ttl) in [
        (None, value(1, ""), Duration::ZERO),
        (None, value(2, ""), 5 * MINUTE),
        (Some(2), value(3, ""), 9 * MINUTE),
        (Some(3), value(4, ""), 2 * MINUTE),
    ] {
        let swapped = store.swap("key", expected, &new, ttl).await;
        assert!(matches!(swapped, Ok(Swapped::Done(_))), "{swapped:?}");
        let left = minutes_left().await;
        assert_eq!(left.unsigned_abs() * MINUTE.as_secs(), ttl.as_secs());
    }
}

/// A swap that waited for the lock of its row is as late as that. The moment at which its transaction
/// began would be too early.
#[tokio::test]
async fn the_time_of_a_swap_is_that_of_its_write() {
    let server = PostgresServer::shared();
    let store = PostgreSql::open(&server.url()).expect("a URL");
    // Without the limit of a wait for a lock.
    let store = store.table("late").expect("a name").behind_pooler();
    let made = connected(async || store.create_table().await).await;
    made.expect("a table");
    insert(&store, "key", &value(1, "")).await;
    let (holder, observer) = (server.client().await, server.client().await);
    let hold = "BEGIN; UPDATE late SET value = value WHERE key = 'key'";
    holder.batch_execute(hold).await.expect("a lock");
    let new = value(2, "");
    let swap = store.swap("key", Some(1), &new, MINUTE);
    let release = async {
        let waiting = "SELECT count(*) FROM pg_stat_activity \
                       WHERE wait_event_type = 'Lock' AND query LIKE 'UPDATE \"late\"%'";
        until("the swap waits", async || {
            let row = observer.query_one(waiting, &[]).await.expect("a count");
            row.get::<_, i64>(0) == 1
        })
        .await;
        let now = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
        let row = observer.query_one(now, &[]).await.expect("a moment");
        holder.batch_execute("COMMIT").await.expect("an end");
        Tick::from_nanos(row.get::<_, i64>(0).unsigned_abs() * 1_000)
    };
    let (swapped, released_at) = tokio::join!(swap, release);
    assert!(
        matches!(swapped, Ok(Swapped::Done(Some(at))) if at >= released_at),
        "{swapped:?} {released_at:?}"
    );
}

#[tokio::test]
async fn several_machines_may_make_the_table_at_once() {
    let (server, _) = store("unrelated").await;
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let store = PostgreSql::open(&server.url()).expect("a URL");
            let store = store.table("made_at_once").expect("a name");
            tokio::spawn(async move {
                store.create_table().await?;
                store.create_table().await?;
                store.check().await
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic").expect("a table");
    }
}

#[tokio::test]
async fn the_migration_makes_the_same_table() {
    let (server, store) = store("made_by_call").await;
    let migrated = store.clone().table("migrated").expect("a name").logged();
    let client = server.client().await;
    client
        .batch_execute(&migrated.migration())
        .await
        .expect("valid statements");
    migrated.check().await.expect("a table");
    insert(&migrated, "key", &value(1, "stored")).await;
    let columns = |table: &'static str| {
        let client = &client;
        async move {
            let query = "SELECT attname || ' ' || atttypid::regtype FROM pg_attribute \
                         WHERE attrelid = $1::text::regclass AND attnum > 0 ORDER BY attnum";
            let rows = client.query(query, &[&table]).await.expect("columns");
            rows.iter().map(|row| row.get(0)).collect::<Vec<String>>()
        }
    };
    assert_eq!(columns("made_by_call").await, columns("migrated").await);
    for (table, persistence) in [("made_by_call", "u"), ("migrated", "p")] {
        let query = "SELECT relpersistence::text FROM pg_class WHERE relname = $1";
        let row = client.query_one(query, &[&table]).await.expect("a table");
        assert_eq!(row.get::<_, String>(0), persistence);
    }
}
