//! Machines under load while a real server and its network fail: in no window they admit more than the bound,
//! and traffic goes on in time.

use std::any::Any;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tower_throttle::store::Backend;
use tower_throttle::store::cas::CasStore;
use tower_throttle::store::fleet::{
    FleetBuilder, FleetLimiter, LeasedBuilder, Mode, SyncedBuilder,
};
use tower_throttle::{Quota, StoreError, TokenBucket};

const MACHINES: u64 = 4;
/// Units per second, and at once. The machines ask for 25 times as much, or for less if the processor is busy.
const RATE: u64 = 40;
const BURST: u64 = 20;
const INTERVAL: Duration = Duration::from_millis(50);
/// A call of a store, and two intervals.
const DEADLINE: Duration = Duration::from_millis(1_100);
/// What a busy machine is late.
const GRACE: Duration = Duration::from_secs(15);
/// How long the load goes on after a fault at least.
const AFTERWARDS: Duration = Duration::from_secs(3);
/// How many calls each machine has decided before a fault at least.
const BEFORE: usize = 200;
/// How often each machine asks.
const TICK: Duration = Duration::from_millis(4);
/// Of a fault.
const LENGTH: Duration = Duration::from_millis(600);

/// A mistake, which a check must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plant {
    Nothing,
    /// Each machine has a limit of its own.
    Alone,
    /// A machine that heard an error after its first decisions asks no more.
    StaysAway,
}

/// What is said of each.
const PLANTS: [(Plant, &str); 2] = [
    (Plant::Alone, "above the limit"),
    (Plant::StaysAway, "after the fault"),
];

/// A decided call: when it began and ended, and whether it was admitted, unless it failed.
type Call = (Instant, Instant, Result<bool, StoreError>);

/// The machines of one mode, and their calls.
struct Fleet {
    is_synced: bool,
    calls: Vec<Arc<Mutex<Vec<Call>>>>,
}

impl Fleet {
    fn start<S: CasStore, M: Mode>(
        builder: impl Fn() -> FleetBuilder<S, M>,
        (is_synced, plant): (bool, Plant),
        load: &mut JoinSet<()>,
    ) -> Self {
        let calls = (0..MACHINES).map(|number| {
            let number = if plant == Plant::Alone { number } else { 0 };
            let bucket = TokenBucket::new(Quota::per_second(RATE).burst(BURST));
            let builder = builder().interval(INTERVAL);
            let limit = builder.build(&format!("{}{number}", M::NAME), bucket);
            let calls = Arc::default();
            load.spawn(ask(limit.expect("a limit"), plant, Arc::clone(&calls)));
            calls
        });
        let calls = calls.collect();
        Self { is_synced, calls }
    }

    /// What is wrong: `losses` is how often the store has lost its values, and `healed` when faults ended.
    fn fault(&self, losses: u64, healed: Instant) -> Option<String> {
        let mut admitted = Vec::new();
        for (machine, calls) in self.calls.iter().enumerate() {
            let calls = calls.lock().expect("no panic");
            let late = calls
                .iter()
                .find(|(begun, ended, _)| *ended - *begun > DEADLINE + GRACE);
            if let Some((begun, ended, _)) = late {
                return Some(format!(
                    "machine {machine}: a call of {:?}",
                    *ended - *begun
                ));
            }
            let again = calls
                .iter()
                .filter(|(_, ended, heard)| *ended > healed && heard.is_ok());
            let again = again.map(|(_, ended, _)| *ended - healed).min();
            if again.is_none_or(|after| after > 2 * INTERVAL + DEADLINE + GRACE) {
                return Some(format!(
                    "machine {machine}: a decision {again:?} after the fault"
                ));
            }
            let units = calls
                .iter()
                .filter(|(.., heard)| heard.as_ref().is_ok_and(|is| *is));
            admitted.extend(units.map(|(begun, ended, _)| (*begun, *ended)));
        }
        let excess = excess(&mut admitted);
        let ahead = 2 * (INTERVAL + DEADLINE).as_millis() * u128::from(RATE) / 1_000;
        let mut allowed = losses * BURST;
        if self.is_synced {
            allowed += BURST + 2 * MACHINES + u64::try_from(ahead).expect("small");
        }
        (excess > allowed).then(|| format!("{excess} units above the limit, of {allowed}"))
    }
}

async fn ask<S: CasStore, M: Mode>(
    limit: FleetLimiter<S, TokenBucket, M>,
    plant: Plant,
    log: Arc<Mutex<Vec<Call>>>,
) {
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let (mut calls, is_away) = (JoinSet::new(), Arc::new(Mutex::new(false)));
    loop {
        ticks.tick().await;
        let (limit, log, is_away) = (limit.clone(), Arc::clone(&log), Arc::clone(&is_away));
        calls.spawn(async move {
            let begun = Instant::now();
            let heard = if *is_away.lock().expect("no panic") {
                Err(StoreError::new("planted: no more calls", true))
            } else {
                limit
                    .decide("key", 1)
                    .await
                    .map(|decision| decision.is_admitted())
            };
            let mut log = log.lock().expect("no panic");
            if plant == Plant::StaysAway && heard.is_err() && decided(&log) >= BEFORE {
                *is_away.lock().expect("no panic") = true;
            }
            log.push((begun, Instant::now(), heard));
        });
        while calls.try_join_next().is_some() {}
    }
}

/// How many calls did not fail.
fn decided(calls: &[Call]) -> usize {
    calls.iter().filter(|(.., heard)| heard.is_ok()).count()
}

/// By how much the admissions exceed the bucket at worst. Each was at some time between two moments: of a window
/// those count that were certainly in it.
fn excess(admitted: &mut [(Instant, Instant)]) -> u64 {
    admitted.sort_unstable_by_key(|(_, ended)| *ended);
    let mut most = 0;
    for (start, _) in admitted.iter() {
        let mut count = 0_u128;
        for (_, end) in admitted.iter().filter(|(begun, _)| begun >= start) {
            count += 1;
            let refilled = (*end - *start).as_nanos() * u128::from(RATE) / 1_000_000_000;
            most = most.max(count.saturating_sub(u128::from(BURST) + refilled));
        }
    }
    u64::try_from(most).expect("small")
}

/// Lets machines of both modes ask while `cause` happens, which returns how often the store has lost its values,
/// and the store. Returns what is wrong.
async fn survive<S: CasStore + Clone>(
    store: impl Fn() -> S,
    plant: Plant,
    cause: impl FnOnce() -> (u64, Box<dyn Any + Send>) + Send + 'static,
) -> Option<String> {
    let mut load = JoinSet::new();
    let synced = Fleet::start(|| SyncedBuilder::new(store()), (true, plant), &mut load);
    let leased = Fleet::start(|| LeasedBuilder::new(store()), (false, plant), &mut load);
    let fleets = [synced, leased];
    let is_ready = || {
        let enough =
            |calls: &Arc<Mutex<Vec<Call>>>| decided(&calls.lock().expect("no panic")) >= BEFORE;
        fleets.iter().all(|fleet| fleet.calls.iter().all(enough))
    };
    let begun = Instant::now();
    let mut ticks = interval(TICK);
    while !is_ready() {
        if begun.elapsed() > Duration::from_secs(60) {
            return Some(format!(
                "a machine does not get {BEFORE} decisions in a minute"
            ));
        }
        ticks.tick().await;
    }
    let (losses, _store) = tokio::task::spawn_blocking(cause).await.expect("no panic");
    let healed = Instant::now();
    let decides_again = || {
        let again = |calls: &Arc<Mutex<Vec<Call>>>| {
            let calls = calls.lock().expect("no panic");
            calls
                .iter()
                .any(|(_, ended, heard)| *ended > healed && heard.is_ok())
        };
        fleets.iter().all(|fleet| fleet.calls.iter().all(again))
    };
    let most = 2 * INTERVAL + DEADLINE + GRACE;
    while healed.elapsed() < AFTERWARDS || (!decides_again() && healed.elapsed() < most) {
        ticks.tick().await;
    }
    load.shutdown().await;
    fleets.iter().find_map(|fleet| fleet.fault(losses, healed))
}

/// Lasts while the load goes on.
fn last() {
    let begun = Instant::now();
    while begun.elapsed() < LENGTH {
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

#[test]
fn an_excess_is_that_of_the_bucket() {
    let first = Instant::now();
    let at = |millis: u64| {
        let moment = first + Duration::from_millis(millis);
        (moment, moment)
    };
    // One more than the burst at once, and then what refills.
    let mut calls: Vec<_> = (0..=BURST).map(|_| at(0)).collect();
    calls.extend((0..100).map(|number| at(number * 1_000 / RATE)));
    assert!(
        (1..=3).contains(&excess(&mut calls)),
        "{}",
        excess(&mut calls)
    );
    calls.truncate(calls.len() - 101);
    assert_eq!(excess(&mut calls), 0);
}

#[cfg(feature = "redis")]
mod redis {
    use tower_throttle::store::redis::Redis;

    use super::{Duration, PLANTS, Plant, last, survive};
    use crate::proxy::{Harm, Protocol, Proxy};
    use crate::redis_server::RedisServer;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Fault {
        /// And restarted with nothing.
        Killed,
        Stopped,
        Harmed(Harm),
    }

    async fn fault_of(fault: Fault, plant: Plant) -> Option<String> {
        let mut server = RedisServer::start();
        let proxy = Proxy::before(Protocol::Redis, server.port());
        let url = proxy.url();
        let store = move || Redis::open(&url).expect("a URL");
        let cause = move || {
            match fault {
                Fault::Killed => server.kill(),
                Fault::Stopped => server.signal("STOP"),
                Fault::Harmed(harm) => proxy.harms_every(harm, 5),
            }
            last();
            match fault {
                Fault::Killed => server.restart(),
                Fault::Stopped => server.signal("CONT"),
                Fault::Harmed(_) => proxy.harms_none(),
            }
            let losses = u64::from(fault == Fault::Killed);
            (losses, Box::new((server, proxy)) as _)
        };
        survive(store, plant, cause).await
    }

    /// Shows promises 200, 201.
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn budgets_survive_faults_of_redis() {
        let faults = [
            Fault::Killed,
            Fault::Stopped,
            // A batch whose reply is lost or cut is sent again.
            Fault::Harmed(Harm::Lost),
            Fault::Harmed(Harm::Cut),
            Fault::Harmed(Harm::CutInside),
            Fault::Harmed(Harm::Delay(Duration::from_millis(30))),
        ];
        for fault in faults {
            assert_eq!(fault_of(fault, Plant::Nothing).await, None, "{fault:?}");
        }
        for (plant, expected) in PLANTS {
            let found = fault_of(Fault::Killed, plant).await.unwrap_or_default();
            assert!(found.contains(expected), "{plant:?}: {found}");
        }
    }
}

#[cfg(feature = "postgres")]
mod postgres {
    use tower_throttle::store::cas::postgres::PostgreSql;

    use super::{Duration, PLANTS, Plant, last, survive};
    use crate::postgres_server::PostgresServer;
    use crate::proxy::{Harm, Protocol, Proxy};
    use crate::wait::connected;

    /// A crash empties the table.
    async fn fault_of(harm: Option<Harm>, plant: Plant) -> Option<String> {
        let mut server = PostgresServer::start();
        let table = PostgreSql::open(&server.url()).expect("a URL");
        let made = connected(async || table.create_table().await).await;
        made.expect("a table");
        let proxy = Proxy::before(Protocol::PostgreSql, server.port());
        let port = proxy.port();
        let url = format!("postgres://postgres@127.0.0.1:{port}/postgres");
        let store = move || PostgreSql::open(&url).expect("a URL");
        let cause = move || {
            match harm {
                None => server.kill(),
                Some(harm) => proxy.harms_every(harm, 5),
            }
            last();
            match harm {
                None => server.restart(),
                Some(_) => proxy.harms_none(),
            }
            (u64::from(harm.is_none()), Box::new((server, proxy)) as _)
        };
        survive(store, plant, cause).await
    }

    /// Shows promises 200, 201.
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn budgets_survive_faults_of_postgresql() {
        let harms = [
            None,
            Some(Harm::Twice),
            Some(Harm::Lost),
            Some(Harm::Cut),
            Some(Harm::Delay(Duration::from_millis(30))),
        ];
        for harm in harms {
            assert_eq!(fault_of(harm, Plant::Nothing).await, None, "{harm:?}");
        }
        for (plant, expected) in PLANTS {
            let found = fault_of(None, plant).await.unwrap_or_default();
            assert!(found.contains(expected), "{plant:?}: {found}");
        }
    }
}
