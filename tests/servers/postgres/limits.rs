//! Decisions of limits whose states are in the server.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{sync::Barrier, task::JoinSet, time::Instant};
use tower_throttle::store::Backend;
use tower_throttle::store::cas::{
    CasBuilder,
    postgres::{Connections, Pool, PostgreSql},
};
use tower_throttle::{FixedWindow, Quota, SlidingLog, TokenBucket};

use super::{key_quotas, pools::OnlyShared, postgres_server::PostgresServer, settled_costs, store};

const LIMIT: u64 = 200;

fn open(url: &str) -> PostgreSql {
    let store = PostgreSql::open(url).expect("a URL");
    store.table("processes").expect("a name")
}

crate::suite::check_machines!(LIMIT, store, open, PostgresServer::url);

/// Shows promise 391.
#[tokio::test]
async fn a_key_is_counted_once_under_all_its_quotas() {
    let (_server, store) = store("quotas").await;
    let limit = |name: &str, algorithm| {
        let builder = CasBuilder::new(store.clone()).deadline(Duration::from_secs(10));
        builder.build(name, algorithm).expect("a limit")
    };
    key_quotas::a_key_is_counted_once_under_all_its_quotas(limit, false).await;
}

const MACHINES: u64 = 16;
const KEYS: u64 = 20;
const ROUNDS: u64 = 6;

/// The conflicts of machines that use many keys at once, each with one call for all keys after the other. No call
/// fails, and each key has what its limit is.
async fn conflicts_of_many_keys<P: Pool>(table: &str, pool: impl Fn(Connections) -> P) -> u64 {
    let (server, _) = store(table).await;
    let mut machines = JoinSet::new();
    let began = Arc::new(Barrier::new(usize::try_from(MACHINES).expect("few")));
    for _ in 0..MACHINES {
        let connections = Connections::open(&server.url()).and_then(|all| all.size(2));
        let store = PostgreSql::new(pool(connections.expect("a URL"))).without_sweeps();
        let builder = CasBuilder::new(store.table(table).expect("a name")).without_deny_cache();
        let limit = builder.deadline(Duration::from_secs(60));
        let window = FixedWindow::new(Quota::per_day(MACHINES * ROUNDS - 10)).anchored();
        let limit = limit.build("many", window).expect("a limit");
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
            (admitted, limit.counts().conflicts)
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
    let in_turns = conflicts_of_many_keys("many_in_turns", |connections| connections).await;
    let at_random = conflicts_of_many_keys("many_at_random", OnlyShared).await;
    // A machine finds out by a conflict that others use the key, and again after it has had several turns in a row.
    let most = MACHINES * KEYS * ROUNDS / 3;
    let is_right = |conflicts| conflicts <= most;
    assert!(
        is_right(in_turns) && !is_right(at_random),
        "{in_turns} and {at_random} of {most}"
    );
}

/// Two machines ask as often as they can, until most periods were used up. What begins and ends within a period is at
/// most the limit.
///
/// Shows promise 91.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_period_has_more_than_the_limit_of_a_log() {
    const LOG_LIMIT: u64 = 20;
    const PERIOD: Duration = Duration::from_millis(100);
    let (_server, store) = store("exact").await;
    let counts = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let mut tasks = JoinSet::new();
    for _ in 0..2 {
        let builder = CasBuilder::new(store.clone()).without_deny_cache();
        let log = SlidingLog::new(Quota::per(LOG_LIMIT, PERIOD));
        let limit = builder.deadline(Duration::from_secs(5)).build("exact", log);
        let limit = limit.expect("a limit");
        for _ in 0..8 {
            let (limit, counts) = (limit.clone(), Arc::clone(&counts));
            tasks.spawn(async move {
                let [admissions, denials] = &*counts;
                let mut admitted = Vec::new();
                let begun = Instant::now();
                while begun.elapsed() < 25 * PERIOD
                    || admissions.load(Ordering::Relaxed) <= 10 * LOG_LIMIT
                    || denials.load(Ordering::Relaxed) < 1_000
                {
                    assert!(begun.elapsed() < Duration::from_secs(60), "too few");
                    let sent_at = Instant::now();
                    let decision = limit.decide("key", 1).await.expect("a decision");
                    if decision.is_admitted() {
                        admitted.push((sent_at, Instant::now()));
                        admissions.fetch_add(1, Ordering::Relaxed);
                    } else {
                        denials.fetch_add(1, Ordering::Relaxed);
                    }
                }
                admitted
            });
        }
    }
    let mut admitted: Vec<_> = tasks.join_all().await.into_iter().flatten().collect();
    admitted.sort();
    assert!(admitted.len() as u64 > 10 * LOG_LIMIT, "{}", admitted.len());
    for (index, (first, _)) in admitted.iter().enumerate() {
        let until = *first + PERIOD;
        let within = admitted[index..].iter().filter(|(_, ended)| *ended < until);
        let count = within.count() as u64;
        assert!(count <= LOG_LIMIT, "{count} of {LOG_LIMIT} in a period");
    }
}

/// Shows promise 321.
#[tokio::test]
async fn a_cost_that_is_known_at_the_end_is_taken_however_the_request_ends() {
    let (_server, store) = store("costs").await;
    let bucket = TokenBucket::new(Quota::per(1, Duration::from_secs(1_000_000)).burst(200));
    let builder = CasBuilder::new(store).deadline(Duration::from_secs(10));
    let limit = builder.build("costs", bucket).expect("a limit");
    assert_eq!(settled_costs::fault(limit).await, None);
}

/// Shows promises 53, 321.
#[tokio::test]
async fn a_limit_of_requests_beside_one_of_tokens_takes_one_for_each() {
    let (_server, store) = store("two_costs").await;
    let window = |name, quota| {
        let builder = CasBuilder::new(store.clone()).deadline(Duration::from_secs(10));
        let window = FixedWindow::new(quota).anchored();
        builder.build(name, window).expect("a limit")
    };
    let requests = window("requests", Quota::per_minute(30));
    let tokens = window("tokens", Quota::per_day(700));
    assert_eq!(settled_costs::fault_of_two(requests, tokens).await, None);
}
