//! The decisions of several machines and threads on one key are those of one machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::sync::Barrier;
use tokio::task::{JoinSet, yield_now};
use tower_throttle::algorithm::Algorithm;
use tower_throttle::clock::Tick;
use tower_throttle::store::cas::{Cas, CasStore, Loaded, MemoryStore, Swapped};
use tower_throttle::store::{Backend, Op};
use tower_throttle::{
    FixedWindow, ManualClock, Quota, SlidingLog, SlidingWindow, StoreError, TokenBucket,
};

use crate::altered_store::{Altered, Change, Swap};
use crate::linearizable::{Event, any_op, is_linearizable, shown};
use crate::random::Random;
use test_support::from_env;

/// A mistake in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    None,
    /// A swap replaces the value whatever its version is.
    ChecksNoVersion,
    /// A swap whose reply is lost is sent again with the version that is there now.
    RetriesBlindly,
    /// A value expires after a tenth of its time.
    ExpiresEarly,
}

/// Operations let other tasks go first, and every fifth reply is lost, unless there is a mistake that shows
/// without that: a machine that cannot find out what became of a swap ends its history.
#[derive(Clone, Debug)]
struct Losing {
    operations: Arc<AtomicU64>,
    mistake: Mistake,
}

impl Losing {
    fn loses_reply(&self) -> bool {
        let may_lose = matches!(self.mistake, Mistake::None | Mistake::RetriesBlindly);
        may_lose && self.operations.fetch_add(1, Ordering::Relaxed) % 5 == 4
    }

    fn lost() -> StoreError {
        StoreError::new("the reply was lost", true)
    }
}

async fn current_version<S: CasStore>(store: &S, key: &str) -> Result<Option<u64>, StoreError> {
    let current = store.load(key).await?.value;
    Ok(current.map(|value| value.version))
}

impl<S: CasStore> Change<S> for Losing {
    async fn load(&self, store: &S, key: &str) -> Result<Loaded, StoreError> {
        yield_now().await;
        if self.loses_reply() {
            return Err(Self::lost());
        }
        store.load(key).await
    }

    async fn swap(&self, store: &S, mut swap: Swap<'_>) -> Result<Swapped, StoreError> {
        yield_now().await;
        match self.mistake {
            Mistake::ExpiresEarly => swap.ttl /= 10,
            Mistake::ChecksNoVersion => swap.expected = current_version(store, swap.key).await?,
            Mistake::None | Mistake::RetriesBlindly => {}
        }
        let swapped = swap.run(store).await?;
        if !self.loses_reply() {
            return Ok(swapped);
        }
        if self.mistake == Mistake::RetriesBlindly {
            for _ in 0..3 {
                yield_now().await;
            }
            swap.expected = current_version(store, swap.key).await?;
            return swap.run(store).await;
        }
        Err(Self::lost())
    }
}

/// What two machines with two tasks each decide on one key. One machine keeps records.
///
/// An error if a machine could not find out whether a call was counted, because the other one made many
/// swaps after a reply was lost.
async fn record<A: Algorithm>(
    algorithm: &A,
    mistake: Mistake,
    seed: u64,
) -> Result<Vec<Event>, StoreError> {
    let clock = ManualClock::new();
    clock.set(Tick::from_nanos(1_000_000_000_000));
    let losing = Losing {
        operations: Arc::default(),
        mistake,
    };
    let store = Altered(MemoryStore::with_clock(clock.clone()), losing);
    let machine = |cached_keys| -> Cas<Altered<MemoryStore<ManualClock>, Losing>, A> {
        let limit = Cas::new(store.clone(), "api", algorithm.clone()).expect("a limit");
        let limit = limit.cached_keys(cached_keys).without_deny_cache();
        limit.deadline(Duration::from_secs(30))
    };
    let machines = [machine(0), machine(100)];
    let (steps, start) = (Arc::new(AtomicU64::new(0)), Arc::new(Barrier::new(4)));
    let mut tasks = JoinSet::new();
    for task in 0..4_u64 {
        let machine = machines[usize::from(task > 1)].clone();
        let (steps, start, clock) = (Arc::clone(&steps), Arc::clone(&start), clock.clone());
        let mut random = Random::new(seed << 8 | task);
        tasks.spawn(async move {
            let (mut events, mut before) = (Vec::new(), None);
            start.wait().await;
            for _ in 0..8 {
                clock.advance(Duration::from_millis(random.below(150)));
                // A reset also forgets which swaps were executed: one whose reply was lost is done again.
                let op = match any_op(&mut random, before) {
                    Op::Reset => Op::Take(1),
                    op => op,
                };
                let called = steps.fetch_add(1, Ordering::SeqCst);
                let decision = machine.apply("key", op).await?;
                let returned = steps.fetch_add(1, Ordering::SeqCst);
                before = before.filter(|_| random.below(4) > 0).or(Some(decision));
                events.push(Event {
                    key: 0,
                    now: Tick::from_nanos(decision.receipt().moment()),
                    op,
                    decision,
                    called,
                    returned,
                });
            }
            Ok(events)
        });
    }
    let events: Result<Vec<_>, _> = tasks.join_all().await.into_iter().collect();
    Ok(events?.concat())
}

fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let built = builder.worker_threads(4).enable_all().build();
    built.expect("a runtime")
}

fn quota() -> Quota {
    Quota::per(5, Duration::from_secs(1))
}

/// Whether an order of the decisions explains a history.
fn is_explained<A: Algorithm>(
    algorithm: &A,
    mistake: Mistake,
    seed: u64,
) -> Result<bool, StoreError> {
    let events = runtime().block_on(record(algorithm, mistake, seed))?;
    assert_eq!(events.len(), 32);
    let is_explained = is_linearizable(algorithm, &events);
    if !is_explained && mistake == Mistake::None {
        print!("{}", shown(&events));
    }
    Ok(is_explained)
}

/// Shows promise 83.
#[test]
fn decisions_of_several_machines_and_threads_are_linearizable() {
    fn check<A: Algorithm>(algorithm: &A, seed: u64) -> u64 {
        match is_explained(algorithm, Mistake::None, seed) {
            Ok(is_explained) => {
                assert!(is_explained, "{algorithm:?}, seed {seed}");
                1
            }
            Err(error) => {
                let is_lost = error.to_string().contains("to find out");
                assert!(
                    is_lost || error.to_string().contains("not asked"),
                    "{error}"
                );
                0
            }
        }
    }
    let (seeds, mut explained) = (from_env("HISTORIES", 10), 0);
    for seed in 0..seeds {
        explained += check(&TokenBucket::new(quota()), seed)
            + check(&FixedWindow::new(quota()), seed)
            + check(&SlidingLog::new(quota()), seed)
            + check(&SlidingWindow::new(quota()), seed);
    }
    assert!(explained > 2 * seeds, "{explained} of {}", 4 * seeds);
}

/// Shows promise 83.
#[test]
fn a_mistake_in_a_store_breaks_a_history() {
    for mistake in [
        Mistake::ChecksNoVersion,
        Mistake::RetriesBlindly,
        Mistake::ExpiresEarly,
    ] {
        let log = SlidingLog::new(quota());
        let breaks = |seed| is_explained(&log, mistake, seed).is_ok_and(|explained| !explained);
        assert!((0..100).any(breaks), "{mistake:?}");
    }
}
