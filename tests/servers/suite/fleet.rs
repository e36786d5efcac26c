//! What a limit of a fleet promises of it: one machine alone admits the limit and no more, whatever happens to
//! the store and the network.
//!
//! What it does not promise: the decisions of the algorithm at each moment, as a budget arrives in portions; that
//! configurations in turn admit no more than their sum, as they share one record; a moment of each decision by
//! the store's clock.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep, timeout};
use tower_throttle::algorithm::AnyAlgorithm;
use tower_throttle::store::cas::CasStore;
use tower_throttle::store::fleet::FleetLimiter;
use tower_throttle::store::{Backend, Op};
use tower_throttle::{
    Decision, FixedWindow, LeakyBucket, Quota, SlidingGrid, SlidingLog, SlidingWindow, StoreError,
    TokenBucket,
};

use super::chaos::KILLED;
use super::{Fault, Store, block_on};

const INTERVAL: Duration = Duration::from_millis(20);
/// In which no unit comes back during a test.
const PERIOD: Duration = Duration::from_secs(100 * 86_400);
const LIMIT: u64 = 20;
const PATIENCE: Duration = Duration::from_secs(30);

/// A store over which a fleet can share a limit.
pub(crate) trait Port: Store {
    type Port: CasStore + Clone;

    fn port(&self) -> Self::Port;
}

/// A limit of a fleet of one machine over a store.
type Of<S, const AHEAD: bool> = FleetLimiter<<S as Port>::Port, AnyAlgorithm, AHEAD>;

fn limit<S: Port, const AHEAD: bool>(
    port: S::Port,
    policy: &str,
    algorithm: AnyAlgorithm,
    [interval, deadline]: [Duration; 2],
) -> Of<S, AHEAD> {
    // What a machine holds does not lapse during a fault.
    let limit = FleetLimiter::new(port, policy, algorithm).expect("a limit");
    let limit = limit.interval(interval).life(2 * PATIENCE);
    limit.deadline(deadline)
}

/// Takes a unit at a time, and waits as it is told, until nothing is left. Returns what was taken. The store may
/// fail for a while.
async fn taken<S: Port>(store: &S, limit: &impl Backend<str>, most: u64) -> Result<u64, String> {
    let (begun, mut taken) = (Instant::now(), 0);
    while begun.elapsed() < PATIENCE {
        match limit.decide("key", 1).await {
            Ok(decision) if decision.is_admitted() => taken += 1,
            Ok(decision) => {
                let wait = decision.retry_after.unwrap_or_default();
                if wait > 100 * INTERVAL {
                    return Ok(taken);
                }
                store.pass(wait);
                sleep(wait).await;
            }
            Err(error) if error.is_transient() => sleep(INTERVAL).await,
            Err(error) => return Err(error.to_string()),
        }
        if taken > most {
            return Err(format!("more than {most} admitted"));
        }
    }
    Err(format!(
        "{taken} of {most}, and then neither units nor a denial"
    ))
}

/// Takes so many units.
async fn take<S: Port>(
    store: &S,
    limit: &impl Backend<str>,
    units: u64,
) -> Result<Vec<Decision>, String> {
    let (begun, mut admitted) = (Instant::now(), Vec::new());
    while (admitted.len() as u64) < units {
        match limit.decide("key", 1).await {
            Ok(decision) if decision.is_admitted() => admitted.push(decision),
            _ if begun.elapsed() > PATIENCE => {
                return Err(format!("{} of {units}", admitted.len()));
            }
            _ => {
                store.pass(INTERVAL);
                sleep(INTERVAL).await;
            }
        }
    }
    Ok(admitted)
}

fn equal(what: &str, found: u64, expected: u64) -> Result<(), String> {
    if found == expected {
        return Ok(());
    }
    Err(format!("{what}: {found}, not {expected}"))
}

fn limit_of<S: Port, const AHEAD: bool>(store: &S, policy: &str) -> Of<S, AHEAD> {
    let bucket = AnyAlgorithm::new(TokenBucket::new(Quota::per(LIMIT, PERIOD)));
    limit::<S, AHEAD>(store.port(), policy, bucket, [INTERVAL, PATIENCE])
}

/// One machine admits the limit, and no more.
pub(crate) fn total<S: Port, const AHEAD: bool>() -> Option<String> {
    let (store, quota) = (S::start(), Quota::per(LIMIT, PERIOD));
    let all = [
        AnyAlgorithm::new(FixedWindow::new(quota)),
        AnyAlgorithm::new(SlidingLog::new(quota)),
        AnyAlgorithm::new(SlidingWindow::new(quota)),
        AnyAlgorithm::new(SlidingGrid::new(quota)),
        AnyAlgorithm::new(SlidingGrid::new(quota).strict()),
        AnyAlgorithm::new(TokenBucket::new(quota)),
        AnyAlgorithm::new(LeakyBucket::new(quota)),
        #[cfg(feature = "governor")]
        AnyAlgorithm::new(tower_throttle::Gcra::new(quota)),
    ];
    block_on(async {
        for (number, algorithm) in all.into_iter().enumerate() {
            let policy = format!("total-{number}");
            let times = [INTERVAL, PATIENCE];
            let limit = limit::<S, AHEAD>(store.port(), &policy, algorithm.clone(), times);
            let found = taken(&store, &limit, LIMIT).await;
            let found = found.and_then(|taken| equal("in all", taken, LIMIT));
            if let Err(found) = found {
                return Some(format!("{algorithm:?}: {found}"));
            }
        }
        None
    })
}

async fn operations_of<S: Port, const AHEAD: bool>(store: &S) -> Result<(), String> {
    let failed = |error: StoreError| error.to_string();
    let limit = limit_of::<S, AHEAD>(store, "operations");
    let admitted = take(store, &limit, LIMIT).await?;
    for decision in &admitted[..5] {
        let refund = Op::Refund(1, decision.receipt());
        let _ = limit.apply("key", refund).await.map_err(failed)?;
    }
    limit.close().await.map_err(failed)?;
    equal("after a refund", taken(store, &limit, 5).await?, 5)?;
    let _ = limit.apply("key", Op::Reset).await.map_err(failed)?;
    equal("after a reset", taken(store, &limit, LIMIT).await?, LIMIT)
}

/// What is given back, reset or set counts at once on the machine where that is done.
pub(crate) fn operations<S: Port, const AHEAD: bool>() -> Option<String> {
    let store = S::start();
    block_on(operations_of::<S, AHEAD>(&store)).err()
}

async fn close_of<S: Port, const AHEAD: bool>(mut store: S) -> Result<(), String> {
    let [one, other]: [Of<S, AHEAD>; 2] = ["close"; 2].map(|name| limit_of(&store, name));
    let _ = take(&store, &one, 12).await?;
    one.close().await.map_err(|error| error.to_string())?;
    let rest = LIMIT - 12;
    equal("after close", taken(&store, &other, rest).await?, rest)?;
    let faults = S::faults();
    let Some(killed) = faults.iter().find(|fault| fault.name == KILLED) else {
        return Ok(());
    };
    (killed.harm)(&mut store);
    let _ = one.apply("key", Op::Charge(1)).await;
    if one.close().await.is_ok() {
        return Err("closed without a store".to_owned());
    }
    (killed.heal)(&mut store);
    closed::<S, AHEAD>(&one).await
}

/// Closes a limit as soon as the store is reached.
async fn closed<S: Port, const AHEAD: bool>(limit: &Of<S, AHEAD>) -> Result<(), String> {
    let begun = Instant::now();
    while let Err(error) = limit.close().await {
        if begun.elapsed() > PATIENCE {
            return Err(error.to_string());
        }
        sleep(INTERVAL).await;
    }
    Ok(())
}

/// A limit that is closed has reported what was used, or returns an error.
pub(crate) fn close<S: Port, const AHEAD: bool>() -> Option<String> {
    block_on(close_of::<S, AHEAD>(S::start())).err()
}

/// Of machines that start together, of which every other one has a longer interval.
async fn fault_of<S: Port, const AHEAD: bool>(
    fault: &Fault<S>,
    machines: u32,
) -> Result<(), String> {
    let mut store = S::start();
    let (port, most) = (store.port(), u64::from(10 * machines).max(2 * LIMIT));
    let bucket = AnyAlgorithm::new(TokenBucket::new(Quota::per(most, PERIOD)));
    let machine = |number| {
        let interval = INTERVAL * machines.div_ceil(16) * (1 + 4 * (number % 2));
        let times = [interval, Duration::from_millis(500)];
        limit::<S, AHEAD>(port.clone(), "chaos", bucket.clone(), times)
    };
    let fleet: Vec<_> = (0..machines).map(machine).collect();
    let first = most / 4 / u64::from(machines);
    let taking = fleet.iter().map(|limit| take(&store, limit, first));
    let mut before = 0;
    for taken in join_all(taking).await {
        before += taken?.len() as u64;
    }
    (fault.harm)(&mut store);
    let mut during = 0;
    for round in 0..9 {
        let calls = fleet
            .iter()
            .map(|limit| timeout(PATIENCE, limit.decide("key", 1)));
        for call in join_all(calls).await {
            let decision = call.map_err(|_| "a call did not end by its deadline")?;
            during += u64::from(decision.is_ok_and(|decision| decision.is_admitted()));
        }
        if round % 3 == 2 {
            // An exchange, which may fail.
            join_all(fleet.iter().map(FleetLimiter::close)).await;
        }
    }
    if !(fault.has_harmed)(&store) {
        return Err("it harmed nothing".to_owned());
    }
    (fault.heal)(&mut store);
    // What a server has forgotten can be taken again.
    let forgotten = u64::from(fault.loses_states) * (before + during);
    let (mut sum, mut last, begun) = (before + during, 0, Instant::now());
    // The last units come back from machines that hold them but have no request any more.
    while sum > last || sum < most && begun.elapsed() < PATIENCE {
        last = sum;
        // Until then a machine may know of units that the store has lost.
        for is_closed in join_all(fleet.iter().map(closed::<S, AHEAD>)).await {
            is_closed?;
        }
        let taking = fleet
            .iter()
            .map(|limit| taken(&store, limit, most + forgotten));
        for taken in join_all(taking).await {
            sum += taken?;
        }
    }
    if !(most..=most + forgotten).contains(&sum) {
        return Err(format!("{sum} admitted of {most} and {forgotten}"));
    }
    Ok(())
}

/// What is wrong without a fault, or under each of these.
fn fault_of_any<S: Port, const AHEAD: bool>(faults: &[Fault<S>], machines: u32) -> Option<String> {
    let none = Fault::new("no fault", |_: &mut S| {}, |_| {});
    [none].iter().chain(faults).find_map(|fault| {
        let found = block_on(fault_of::<S, AHEAD>(fault, machines));
        found.err().map(|found| format!("{}: {found}", fault.name))
    })
}

/// The limit is admitted, and no more, without a fault and under each.
pub(crate) fn fault<S: Port, const AHEAD: bool>() -> Option<String> {
    fault_of_any::<S, AHEAD>(&S::faults(), 1)
}

/// So is that of many machines, also if the store stops for a while or loses its values.
pub(crate) fn fault_of_many<S: Port, const AHEAD: bool>(machines: u32) -> Option<String> {
    let mut faults = S::faults();
    faults.retain(|fault| ["stopped", "FLUSHALL"].contains(&&*fault.name));
    assert_eq!(faults.len(), 2);
    fault_of_any::<S, AHEAD>(&faults, machines)
}

/// The tests of both kinds of a fleet over one store.
macro_rules! check_fleet {
    ($store:ty) => {
        crate::suite::fleet::check_fleet!($store, synced, true);
        crate::suite::fleet::check_fleet!($store, leased, false);
    };
    ($store:ty, $name:ident, $ahead:literal) => {
        mod $name {
            use crate::suite::fleet::{close, fault, operations, total};

            /// Shows promise 200.
            #[test]
            fn one_machine_admits_the_limit() {
                assert_eq!(total::<$store, $ahead>(), None);
            }

            /// Shows promise 202.
            #[test]
            fn what_is_given_back_or_changed_counts() {
                assert_eq!(operations::<$store, $ahead>(), None);
            }

            /// Shows promise 202.
            #[test]
            fn a_closed_limit_has_reported_what_was_used() {
                assert_eq!(close::<$store, $ahead>(), None);
            }

            /// Shows promise 202.
            #[test]
            fn a_fleet_admits_no_more_under_faults_and_recovers() {
                assert_eq!(fault::<$store, $ahead>(), None);
            }
        }
    };
}
pub(crate) use check_fleet;
