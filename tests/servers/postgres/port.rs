//! The port: load and swap.

use std::time::{Duration, SystemTime};

use tower_throttle::{
    clock::Tick,
    store::cas::{
        CasStore, Swapped,
        postgres::{Connections, PostgreSql},
    },
};

use crate::wait::until;

use super::{
    MINUTE, connected, insert, load, postgres_server::PostgresServer, store, value, version,
};

#[tokio::test]
async fn a_key_without_a_value_has_none_and_still_the_servers_time() {
    let (_server, store) = store("absent").await;
    let before = unix_now();
    let loaded = store.load("key").await.expect("a reply");
    assert_eq!(loaded.value, None);
    let time = loaded.server_time.expect("the server's time");
    // Microseconds are rounded.
    assert!(time.plus(Duration::from_micros(1)) >= before && time <= unix_now());
}

#[tokio::test]
async fn a_swap_is_seen_by_the_next_load_and_returns_the_servers_time() {
    let (_server, store) = store("seen").await;
    let before = unix_now();
    let Swapped::Done(Some(at)) = store
        .swap("key", None, &value(7, "first"), MINUTE)
        .await
        .expect("a reply")
    else {
        panic!("the key had no value");
    };
    assert!(at.plus(Duration::from_micros(1)) >= before && at <= unix_now());
    assert_eq!(load(&store, "key").await, Some(value(7, "first")));
    let second = value(u64::MAX, "second");
    let swapped = store.swap("key", Some(version(7)), &second, MINUTE).await;
    assert!(matches!(swapped, Ok(Swapped::Done(Some(_)))), "{swapped:?}");
    assert_eq!(load(&store, "key").await, Some(second));
    let third = value(1 << 63, "third");
    let swapped = store.swap("key", Some(version(u64::MAX)), &third, MINUTE);
    assert!(matches!(swapped.await, Ok(Swapped::Done(_))));
    assert_eq!(load(&store, "key").await, Some(third));
    assert_eq!(load(&store, "other").await, None);
}

/// Values of several keys may be copies, with one version.
#[tokio::test]
async fn a_swap_writes_its_own_key_alone() {
    let (_server, store) = store("own_key").await;
    for key in ["a", "b", "c"] {
        insert(&store, key, &value(1, "copy")).await;
    }
    let new = value(2, "new");
    let swapped = store.swap("b", Some(version(1)), &new, MINUTE).await;
    assert!(matches!(swapped, Ok(Swapped::Done(_))), "{swapped:?}");
    for key in ["a", "c"] {
        assert_eq!(load(&store, key).await, Some(value(1, "copy")));
    }
}

/// Shows promise 85.
#[tokio::test]
async fn an_expired_value_counts_as_absent() {
    let (_server, store) = store("expired").await;
    let swapped = store
        .swap("key", None, &value(1, "old"), Duration::ZERO)
        .await;
    assert!(matches!(swapped, Ok(Swapped::Done(_))));
    assert_eq!(load(&store, "key").await, None);
    let swapped = store.swap("key", None, &value(2, "new"), MINUTE).await;
    assert!(matches!(swapped, Ok(Swapped::Done(_))), "{swapped:?}");
    assert_eq!(load(&store, "key").await, Some(value(2, "new")));
}

/// Shows promise 85.
#[tokio::test]
async fn a_value_is_kept_for_its_time_to_live() {
    let (server, store) = store("kept").await;
    let before = unix_now();
    let ttl = Duration::from_nanos(90_000_000_001);
    let new = value(1, "");
    store.swap("key", None, &new, ttl).await.expect("a reply");
    let longest = store.swap("for ever", None, &new, Duration::MAX).await;
    assert!(matches!(longest, Ok(Swapped::Done(_))), "{longest:?}");
    assert_eq!(load(&store, "for ever").await, Some(new));
    let query = "SELECT expires_at, sweep_at FROM kept WHERE key = 'key'";
    let row = server.client().await.query_one(query, &[]).await;
    let row = row.expect("a row");
    let (expires_at, sweep_at): (i64, i64) = (row.get(0), row.get(1));
    let expires_at = Duration::from_micros(expires_at.unsigned_abs());
    let sweep_at = Duration::from_micros(sweep_at.unsigned_abs());
    let micro = Duration::from_micros(1);
    assert!(expires_at + micro >= Duration::from_nanos(before.as_nanos()) + ttl);
    assert!(expires_at <= Duration::from_nanos(unix_now().as_nanos()) + ttl + micro);
    let slack = sweep_at.saturating_sub(expires_at);
    assert!(
        slack >= ttl && slack < ttl + Duration::from_secs(1),
        "{slack:?}"
    );
}

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
        (Some(version(2)), value(3, ""), 9 * MINUTE),
        (Some(version(3)), value(4, ""), 2 * MINUTE),
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
    let connections = Connections::open(&server.url()).expect("a URL");
    // Without the limit of a wait for a lock.
    let store = PostgreSql::new(connections.without_session_settings());
    let store = store.table("late").expect("a name").without_sweeps();
    let made = connected(async || store.create_table().await).await;
    made.expect("a table");
    insert(&store, "key", &value(1, "")).await;
    let (holder, observer) = (server.client().await, server.client().await);
    let hold = "BEGIN; UPDATE late SET value = value WHERE key = 'key'";
    holder.batch_execute(hold).await.expect("a lock");
    let new = value(2, "");
    let swap = store.swap("key", Some(version(1)), &new, MINUTE);
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
async fn a_value_may_be_large_or_empty_and_a_key_may_be_any_text() {
    let (_server, store) = store("sizes").await;
    for (number, (key, len)) in [("", 0), ("ключ'\"$1\\", 8_000), ("{a:b}", 200_000)]
        .into_iter()
        .enumerate()
    {
        let new = value(number as u64, &"é".repeat(len / 2));
        insert(&store, key, &new).await;
        assert_eq!(load(&store, key).await, Some(new));
    }
    let error = store.load("a\0b").await.expect_err("not text in SQL");
    assert!(!error.is_transient(), "{error}");
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

fn unix_now() -> Tick {
    let now = SystemTime::UNIX_EPOCH.elapsed().expect("after 1970");
    Tick::ZERO.plus(now)
}

/// Shows promise 370.
#[cfg(feature = "testkit")]
#[tokio::test]
async fn the_server_passes_the_check_of_stores() {
    let (_server, store) = store("testkit").await;
    let checked = tower_throttle::testkit::check_cas_store(store);
    assert_eq!(checked.await, Ok(()));
}
