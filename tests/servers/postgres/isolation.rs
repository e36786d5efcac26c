//! Other transactions, and other levels of isolation.

use std::sync::Arc;

use tower_throttle::store::{
    Backend,
    cas::{Cas, CasStore, Swapped, postgres::PostgreSql},
};
use tower_throttle::{Quota, TokenBucket};

use super::{connected, postgres_server::PostgresServer, store};
use crate::stored::{MINUTE, load, value};
use test_support::wait::until;

/// A store of a role that has this setting.
async fn store_with(role: &str, setting: &str) -> (Arc<PostgresServer>, PostgreSql) {
    let (server, _) = store(role).await;
    let client = server.client().await;
    let made = format!(
        "CREATE ROLE {role} LOGIN; GRANT ALL ON TABLE {role} TO {role}; ALTER ROLE {role} SET {setting}"
    );
    client.batch_execute(&made).await.expect("a role");
    let store = PostgreSql::open(&server.url_of(role)).expect("a URL");
    // Without the short timeout of locks: on a busy machine another swap may hold one for as long.
    (server, store.table(role).expect("a name").behind_pooler())
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
            expected = load(&*store, "key").await.map(|value| value.version);
        }
    }
}

/// Of one machine that swaps, and of several that run programs.
///
/// Shows promise 94.
#[tokio::test]
async fn a_row_that_is_locked_for_long_cuts_off_its_key_alone() {
    let (server, store) = store("held").await;
    let holder = server.client().await;
    for name in ["alone", "shared"] {
        let bucket = TokenBucket::new(Quota::per_hour(1_000));
        let machine = || Cas::new(store.clone(), name, bucket).expect("a limit");
        let machines = [machine(), machine()];
        let used = &machines[..if name == "alone" { 1 } else { 2 }];
        for machine in used.iter().chain(used) {
            for key in ["a", "b", "c", "other"] {
                let decided = async || machine.decide(key, 1).await.is_ok();
                until("it decides", decided).await;
            }
        }
        let hold = "BEGIN; SELECT key FROM held WHERE key NOT LIKE '%:other}%' FOR UPDATE";
        holder.batch_execute(hold).await.expect("locks");
        for _ in 0..2 {
            for key in ["a", "b", "c"] {
                let error = machines[0].decide(key, 1).await.expect_err("it is locked");
                assert!(error.is_transient(), "{error}");
            }
            let decided = format!("{:?}", machines[0].decide("other", 1).await);
            assert!(!decided.contains("not asked"), "{name}: {decided}");
        }
        holder.batch_execute("ROLLBACK").await.expect("an end");
    }
}
