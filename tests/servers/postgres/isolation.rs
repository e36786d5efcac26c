//! Other transactions, and other levels of isolation.

use std::sync::Arc;

use tower_throttle::store::cas::{
    CasStore, Swapped,
    postgres::{Connections, PostgreSql},
};

use crate::wait::until;

use super::{
    MINUTE, connected, insert, load, postgres_server::PostgresServer, store, value, version,
};

/// A store of a role that has this setting.
async fn store_with(role: &str, setting: &str) -> (Arc<PostgresServer>, PostgreSql) {
    let (server, _) = store(role).await;
    let client = server.client().await;
    let made = format!(
        "CREATE ROLE {role} LOGIN; GRANT ALL ON TABLE {role} TO {role}; ALTER ROLE {role} SET {setting}"
    );
    client.batch_execute(&made).await.expect("a role");
    let connections = Connections::open(&server.url_of(role)).expect("a URL");
    // Without the short timeout of locks: on a busy machine another swap may hold one for as long.
    let store = PostgreSql::new(connections.without_session_settings());
    (server, store.table(role).expect("a name").without_sweeps())
}

/// Shows promise 83.
#[tokio::test]
async fn a_waiting_swap_sees_what_the_other_transaction_has_done() {
    // Without the store's own limit of such waits.
    let (server, _) = store("waits").await;
    let connections = Connections::open(&server.url()).expect("a URL");
    let store = PostgreSql::new(connections.without_session_settings());
    let store = store.table("waits").expect("a name").without_sweeps();
    let loaded = connected(async || store.load("commit").await).await;
    assert_eq!(loaded.expect("a reply").value, None);
    for (key, end, is_done) in [("commit", "COMMIT", false), ("rollback", "ROLLBACK", true)] {
        insert(&store, key, &value(1, "stored")).await;
        let client = server.client().await;
        let begin = format!("BEGIN; UPDATE waits SET version = 9 WHERE key = '{key}'");
        client.batch_execute(&begin).await.expect("a lock");
        let new = value(2, "new");
        let swap = store.swap(key, Some(version(1)), &new, MINUTE);
        let end = async {
            until("the swap waits", async || {
                let query = "SELECT count(*) FROM pg_stat_activity \
                             WHERE wait_event_type = 'Lock' AND query LIKE '%\"waits\"%'";
                let row = client.query_one(query, &[]).await.expect("a count");
                row.get::<_, i64>(0) > 0
            })
            .await;
            client.batch_execute(end).await.expect("an end");
        };
        let (swapped, ()) = tokio::join!(swap, end);
        let swapped = swapped.expect("a reply");
        if is_done {
            assert!(matches!(swapped, Swapped::Done(_)), "{swapped:?}");
        } else {
            assert!(matches!(swapped, Swapped::Conflict(_)), "{swapped:?}");
            assert_eq!(load(&store, key).await, Some(value(9, "stored")));
        }
    }
}

/// Shows promise 83.
#[tokio::test]
async fn every_level_of_isolation_admits_one_swap_of_a_version() {
    for level in ["read committed", "repeatable read", "serializable"] {
        let role = level.replace(' ', "_");
        let setting = format!("default_transaction_isolation = '{level}'");
        let (_server, store) = store_with(&role, &setting).await;
        let store = Arc::new(store);
        let loaded = connected(async || store.load("key").await).await;
        let mut expected = loaded.expect("a reply").value.map(|value| value.version);
        for round in 1..=30 {
            let swaps: Vec<_> = (0..16)
                .map(|task| {
                    let store = Arc::clone(&store);
                    let new = value(round * 100 + task, "");
                    tokio::spawn(async move { store.swap("key", expected, &new, MINUTE).await })
                })
                .collect();
            let mut done = 0;
            for swap in swaps {
                let swapped = swap.await.expect("no panic");
                // A conflict is never an error.
                let swapped = swapped.expect("a reply");
                done += usize::from(matches!(swapped, Swapped::Done(_)));
            }
            assert_eq!(done, 1, "{level}");
            expected = load(&store, "key").await.map(|value| value.version);
        }
    }
}
