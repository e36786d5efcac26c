//! Decisions of limits whose states are in the server.

use std::{sync::Arc, time::Duration};

use tokio::{sync::Barrier, task::JoinSet};
use tower_throttle::store::Backend;
use tower_throttle::store::cas::{Cas, CasStore, Faulty, postgres::PostgreSql};
use tower_throttle::{FixedWindow, Quota};

use super::{postgres_server::PostgresServer, store};

const LIMIT: u64 = 200;

fn open(url: &str) -> PostgreSql {
    let store = PostgreSql::open(url).expect("a URL");
    store.table("machines").expect("a name")
}

crate::suite::check_machines!(LIMIT, store, open, PostgresServer::url);

const MACHINES: u64 = 16;
const KEYS: u64 = 20;
const ROUNDS: u64 = 6;

/// The conflicts of machines that use many keys at once, each with one call for all keys after the other. No call
/// fails, and each key has what its limit is.
async fn conflicts_of_many_keys<S: CasStore>(table: &str, of: impl Fn(PostgreSql) -> S) -> u64 {
    let (server, _) = store(table).await;
    let mut machines = JoinSet::new();
    let began = Arc::new(Barrier::new(usize::try_from(MACHINES).expect("few")));
    for _ in 0..MACHINES {
        let store = PostgreSql::open(&server.url()).and_then(|store| store.connections(2));
        let store = store.and_then(|store| store.table(table));
        let store = of(store.expect("a URL and a name"));
        let window = FixedWindow::new(Quota::per_day(MACHINES * ROUNDS - 10)).anchored();
        let limit = Cas::new(store, "many", window).expect("a limit");
        let limit = limit.without_deny_cache().deadline(Duration::from_secs(60));
        let began = Arc::clone(&began);
        machines.spawn(async move {
            let connected = limit.decide("other", 1).await;
            assert!(connected.expect("a decision").is_admitted());
            began.wait().await;
            let mut admitted = 0;
            for _ in 0..ROUNDS {
                let calls: JoinSet<_> = (0..KEYS).map(|key| limit.decide(&key, 1)).collect();
                for decision in calls.join_all().await {
                    admitted += u64::from(decision.expect("a decision").is_admitted());
                }
            }
            (admitted, Backend::<str>::stats(&limit).conflicts)
        });
    }
    let machines = machines.join_all().await;
    let admitted: u64 = machines.iter().map(|(admitted, _)| admitted).sum();
    assert_eq!(admitted, KEYS * (MACHINES * ROUNDS - 10));
    machines.iter().map(|(_, conflicts)| conflicts).sum()
}

/// Counts conflicts, as the time that they take is what makes a limit collapse.
///
/// Shows promise 83.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_machines_on_many_keys_do_not_work_in_vain() {
    let in_turns = conflicts_of_many_keys("many_in_turns", |store| store).await;
    // It runs no programs.
    let at_random = conflicts_of_many_keys("many_at_random", Faulty::new).await;
    // A machine finds out by a conflict that others use the key, and again after it has had several turns in a row.
    let most = MACHINES * KEYS * ROUNDS / 3;
    let is_right = |conflicts| conflicts <= most;
    assert!(
        is_right(in_turns) && !is_right(at_random),
        "{in_turns} and {at_random} of {most}"
    );
}
