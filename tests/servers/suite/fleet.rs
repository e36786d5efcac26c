//! What a limit of a fleet promises of it: one machine alone admits the limit and no more, whatever happens to
//! the store and the network.
//!
//! What it does not promise: the decisions of the algorithm at each moment, as a budget arrives in portions; that
//! configurations in turn admit no more than their sum, as they share one record; a moment of each decision by
//! the store's clock; bans, which concern lockouts, and no fleet takes these.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tower_throttle::algorithm::{Algorithm, AnyAlgorithm};
use tower_throttle::clock::Tick;
use tower_throttle::store::cas::CasStore;
use tower_throttle::store::fleet::{FleetBuilder, FleetLimiter};
use tower_throttle::store::{Backend, Op};
use tower_throttle::{
    Decision, FixedWindow, LeakyBucket, Quota, SlidingGrid, SlidingLog, SlidingWindow, StoreError,
    TokenBucket,
};

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

/// A limit that reports what was used.
pub(crate) trait Close {
    async fn close(&self) -> Result<(), StoreError>;
}

impl<S: CasStore, A: Algorithm, const AHEAD: bool> Close for FleetLimiter<S, A, AHEAD> {
    async fn close(&self) -> Result<(), StoreError> {
        Self::close(self).await
    }
}

/// A fleet of one machine over a store.
pub(crate) struct OfOne<S, const AHEAD: bool>(S);

impl<S: Port, const AHEAD: bool> Store for OfOne<S, AHEAD> {
    type Limit = FleetLimiter<S::Port, AnyAlgorithm, AHEAD>;

    fn start() -> Self {
        Self(S::start())
    }

    fn limit(&self, policy: &str, algorithm: AnyAlgorithm, deadline: Duration) -> Self::Limit {
        // What a machine holds does not lapse during a fault.
        let builder = FleetBuilder::new(self.0.port())
            .interval(INTERVAL)
            .life(2 * PATIENCE);
        let built = builder.deadline(deadline).build(policy, algorithm);
        built.expect("a limit")
    }

    fn pass(&self, span: Duration) -> Option<Tick> {
        self.0.pass(span)
    }

    fn loses_states(fault: Fault) -> bool {
        S::loses_states(fault)
    }

    fn inflict(&mut self, fault: Fault) -> bool {
        self.0.inflict(fault)
    }

    fn heal(&mut self, fault: Fault) {
        self.0.heal(fault);
    }
}

/// Takes a unit at a time, and waits as it is told, until nothing is left. Returns what was taken. The store may
/// fail for a while.
async fn taken<S: Store>(store: &S, limit: &S::Limit, most: u64) -> Result<u64, String> {
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
async fn take<S: Store>(store: &S, limit: &S::Limit, units: u64) -> Result<Vec<Decision>, String> {
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

fn limit_of<S: Store>(store: &S, policy: &str) -> S::Limit {
    let bucket = AnyAlgorithm::new(TokenBucket::new(Quota::per(LIMIT, PERIOD)));
    store.limit(policy, bucket, PATIENCE)
}

/// One machine admits the limit, and no more.
pub(crate) fn total<S: Store>() -> Option<String> {
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
            let limit = store.limit(&format!("total-{number}"), algorithm.clone(), PATIENCE);
            let found = taken(&store, &limit, LIMIT).await;
            let found = found.and_then(|taken| equal("in all", taken, LIMIT));
            if let Err(found) = found {
                return Some(format!("{algorithm:?}: {found}"));
            }
        }
        None
    })
}

async fn operations_of<S: Store<Limit: Close>>(store: &S) -> Result<(), String> {
    let failed = |error: StoreError| error.to_string();
    let limit = limit_of(store, "operations");
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
pub(crate) fn operations<S: Store<Limit: Close>>() -> Option<String> {
    let store = S::start();
    block_on(operations_of(&store)).err()
}

async fn close_of<S: Store<Limit: Close>>(mut store: S) -> Result<(), String> {
    let (one, other) = (limit_of(&store, "close"), limit_of(&store, "close"));
    let _ = take(&store, &one, 12).await?;
    one.close().await.map_err(|error| error.to_string())?;
    equal(
        "after close",
        taken(&store, &other, LIMIT - 12).await?,
        LIMIT - 12,
    )?;
    if !store.inflict(Fault::Killed) {
        return Ok(());
    }
    let _ = one.apply("key", Op::Charge(1)).await;
    if one.close().await.is_ok() {
        return Err("closed without a store".to_owned());
    }
    store.heal(Fault::Killed);
    closed(&one).await
}

/// Closes a limit as soon as the store is reached.
async fn closed(limit: &impl Close) -> Result<(), String> {
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
pub(crate) fn close<S: Store<Limit: Close>>() -> Option<String> {
    block_on(close_of(S::start())).err()
}

async fn fault_of<S: Store<Limit: Close>>(fault: Option<Fault>) -> Result<(), String> {
    let mut store = S::start();
    let bucket = AnyAlgorithm::new(TokenBucket::new(Quota::per(2 * LIMIT, PERIOD)));
    let limit = store.limit("chaos", bucket, Duration::from_millis(500));
    let before = take(&store, &limit, LIMIT / 2).await?.len() as u64;
    if fault.is_some_and(|fault| !store.inflict(fault)) {
        return Ok(());
    }
    let mut during = 0;
    for round in 0..9 {
        let call = tokio::time::timeout(PATIENCE, limit.decide("key", 1)).await;
        let decision = call.map_err(|_| "a call did not end by its deadline")?;
        during += u64::from(decision.is_ok_and(|decision| decision.is_admitted()));
        if round % 3 == 2 {
            // An exchange, which may fail.
            let _ = limit.close().await;
        }
    }
    if let Some(fault) = fault {
        store.heal(fault);
    }
    // Until then the machine may know of units that the store has lost.
    closed(&limit).await?;
    // What a server has forgotten can be taken again.
    let forgotten = if fault.is_some_and(S::loses_states) {
        before + during
    } else {
        0
    };
    let after = taken(&store, &limit, 2 * LIMIT + forgotten).await?;
    let sum = before + during + after;
    if !(2 * LIMIT..=2 * LIMIT + forgotten).contains(&sum) {
        return Err(format!("{sum} admitted of {} and {forgotten}", 2 * LIMIT));
    }
    Ok(())
}

/// The limit is admitted, and no more, without a fault and under each.
pub(crate) fn fault<S: Store<Limit: Close>>() -> Option<String> {
    let faults = [None].into_iter().chain(Fault::ALL.map(Some));
    faults.into_iter().find_map(|fault| {
        let found = block_on(fault_of::<S>(fault));
        found.err().map(|found| format!("{fault:?}: {found}"))
    })
}

/// The tests of both kinds of a fleet over one store.
macro_rules! check_fleet {
    ($store:ty) => {
        crate::suite::fleet::check_fleet!($store, synced, true);
        crate::suite::fleet::check_fleet!($store, leased, false);
    };
    ($store:ty, $name:ident, $ahead:literal) => {
        mod $name {
            use crate::suite::fleet::{OfOne, close, fault, operations, total};

            type Fleet = OfOne<$store, $ahead>;

            /// Shows promise 200.
            #[test]
            fn one_machine_admits_the_limit() {
                assert_eq!(total::<Fleet>(), None);
            }

            /// Shows promise 202.
            #[test]
            fn what_is_given_back_or_changed_counts() {
                assert_eq!(operations::<Fleet>(), None);
            }

            /// Shows promise 202.
            #[test]
            fn a_closed_limit_has_reported_what_was_used() {
                assert_eq!(close::<Fleet>(), None);
            }

            /// Shows promise 202.
            #[test]
            fn a_fleet_admits_no_more_under_faults_and_recovers() {
                assert_eq!(fault::<Fleet>(), None);
            }
        }
    };
}
pub(crate) use check_fleet;
