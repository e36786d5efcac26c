//! What is sent of calls that wait, and what becomes of them.

use std::sync::{
    atomic::{AtomicUsize, Ordering},
    mpsc::{Receiver, Sender, channel},
};
use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep};

use super::*;
use crate::algorithm::FixedWindow;
use crate::backend::Backend;
use crate::quota::Quota;
use crate::store::cas::{
    Cas, LeaseHolder, LeasePlan, LeaseView, Leases, Loaded, MemoryStore, Program, Settings,
    Swapped, Value,
};
use crate::store::fleet::Leased;
use crate::sync::{Mutex, lock};

const ROUND_TRIP: Duration = Duration::from_millis(10);
const DEADLINE: Duration = Duration::from_millis(100);

/// A store that takes its time, and fails as it is told to. It runs programs, or those that have a script.
#[derive(Clone, Debug, Default)]
struct Slow<const SCRIPTS: bool> {
    store: MemoryStore,
    seen: Arc<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    /// The number of keys of each operation.
    operations: Mutex<Vec<usize>>,
    in_flight: AtomicUsize,
    most_in_flight: AtomicUsize,
    /// How many operations fail.
    fails: AtomicUsize,
    hangs: AtomicUsize,
}

impl<const SCRIPTS: bool> Slow<SCRIPTS> {
    async fn operate(&self, keys: usize) -> Result<(), StoreError> {
        let seen = &self.seen;
        lock(&seen.operations).push(keys);
        let in_flight = seen.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
        seen.most_in_flight.fetch_max(in_flight, Ordering::Relaxed);
        sleep(ROUND_TRIP).await;
        if seen.hangs.load(Ordering::Relaxed) > 0 {
            std::future::pending::<()>().await;
        }
        seen.in_flight.fetch_sub(1, Ordering::Relaxed);
        let left = |fails: usize| fails.checked_sub(1);
        let fails = seen
            .fails
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, left);
        fails.map_or(Ok(()), |_| Err(StoreError::new("refused", false)))
    }

    fn operations(&self) -> Vec<usize> {
        std::mem::take(&mut *lock(&self.seen.operations))
    }
}

impl<const SCRIPTS: bool> CasStore for Slow<SCRIPTS> {
    const RUNS: Runs = if SCRIPTS { Runs::Scripts } else { Runs::All };

    async fn load(&self, key: &str) -> Result<Loaded, StoreError> {
        self.operate(1).await?;
        self.store.load(key).await
    }

    async fn swap(
        &self,
        key: &str,
        expected: Option<u64>,
        new: &Value,
        ttl: Duration,
    ) -> Result<Swapped, StoreError> {
        self.operate(1).await?;
        self.store.swap(key, expected, new, ttl).await
    }

    async fn run<P: Program>(&self, program: &P) -> Result<P::Reply, StoreError> {
        self.operate(program.keys().len()).await?;
        self.store.run(program).await
    }
}

type Limit<const SCRIPTS: bool> = Cas<Slow<SCRIPTS>, FixedWindow>;

fn limit<const SCRIPTS: bool>(most: u64, caches: bool) -> (Slow<SCRIPTS>, Limit<SCRIPTS>) {
    let store = Slow::default();
    let window = FixedWindow::new(Quota::per_hour(most));
    let limit = Cas::new(store.clone(), "api", window).expect("a limit");
    let limit = limit.deadline(DEADLINE);
    let limit = if caches {
        limit
    } else {
        limit.without_deny_cache()
    };
    (store, limit)
}

/// The results of calls, one per key, of which the first are sent one after the other, before the others come.
async fn after<const SCRIPTS: bool>(
    first: usize,
    limit: &Limit<SCRIPTS>,
    keys: impl IntoIterator<Item = u64>,
) -> Vec<Result<Decision, StoreError>> {
    let mut keys = keys.into_iter();
    let (mut calls, mut results) = (Vec::new(), Vec::new());
    for key in keys.by_ref().take(first) {
        let limit = limit.clone();
        calls.push(tokio::spawn(async move { limit.decide(&key, 1).await }));
        sleep(ROUND_TRIP / 5).await;
    }
    let others: Vec<_> = keys.map(|key| limit.decide(&key, 1)).collect();
    for call in calls {
        results.push(call.await.expect("no panic"));
    }
    for call in others {
        results.push(call.await);
    }
    results
}

async fn queued<const SCRIPTS: bool>(
    limit: &Limit<SCRIPTS>,
    keys: impl IntoIterator<Item = u64>,
) -> Vec<Result<Decision, StoreError>> {
    after(1, limit, keys).await
}

fn admitted(results: &[Result<Decision, StoreError>]) -> usize {
    let decisions = results.iter().map(|one| one.as_ref().expect("a decision"));
    decisions.filter(|one| one.is_admitted()).count()
}

/// A limiter that forgets denials asks once more for those that wait.
///
/// Shows promise 89.
#[tokio::test(start_paused = true)]
async fn one_denial_answers_all_calls_that_have_waited_for_it() {
    // One that its caller sends, and one of each task.
    let most = 1 + IN_FLIGHT;
    for caches in [true, false] {
        let (store, limit) = limit::<true>(1, caches);
        for admits in [1, 0, 1] {
            let results = after(most, &limit, [7; 100]).await;
            assert_eq!(admitted(&results), admits);
            let asked = store.operations().len();
            assert_eq!(asked == most, caches, "{asked}: the others are denied too");
            // Denials are repeated for ten seconds, and after an hour time gives back.
            sleep(Duration::from_secs(if admits == 0 { 3_600 } else { 11 })).await;
        }
    }
}

/// The same where the process decides.
///
/// Shows promise 89.
#[tokio::test(start_paused = true)]
async fn a_denial_that_was_read_answers_all_calls_that_have_waited_for_it() {
    for caches in [true, false] {
        let (store, limit) = limit::<false>(1, caches);
        assert_eq!(admitted(&queued(&limit, [7]).await), 1);
        store.operations();
        assert_eq!(admitted(&queued(&limit, [7; 100]).await), 0);
        assert_eq!(store.operations().len() == 1, caches, "one reply for all");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_is_sent_at_once_and_those_behind_it_in_full_batches() {
    let (store, limit) = limit::<true>(1_000, true);
    let keys = 0..1 + 3 * MAX_BATCH as u64;
    assert_eq!(admitted(&queued(&limit, keys.clone()).await), keys.count());
    let operations = store.operations();
    assert_eq!(operations.first(), Some(&1));
    assert_eq!(operations.iter().max(), Some(&MAX_BATCH));
    assert_eq!(operations.iter().sum::<usize>(), 1 + 3 * MAX_BATCH);
    let most = store.seen.most_in_flight.load(Ordering::Relaxed);
    assert!(most <= 1 + IN_FLIGHT, "{most} at once");
}

#[tokio::test(start_paused = true)]
async fn calls_that_repeat_others_are_in_the_batch_of_these() {
    let (store, limit) = limit::<true>(100, true);
    let keys = (0..1_000).map(|call| call % 3);
    assert_eq!(admitted(&queued(&limit, keys).await), 3 * 100);
    assert_eq!(store.operations(), [1, 3]);
}

/// A key that other machines use too.
#[tokio::test(start_paused = true)]
async fn one_program_is_in_flight_and_the_next_one_takes_all_that_wait() {
    let (store, limit) = limit::<false>(500, true);
    let shared = &limit.inner.shared;
    for key in 0..20 {
        let key = format!("{{throttle:api:{key}}}{}", limit.decider.layout);
        for _ in 0..10 {
            shared.contended.note(&key.as_str().into(), true, DEADLINE);
        }
    }
    let keys = (0..=1_000).map(|call| call % 20);
    assert_eq!(admitted(&queued(&limit, keys).await), 1_001);
    // Those of the first key join while it is in flight.
    assert_eq!(store.operations(), [1, 19]);
    assert_eq!(store.seen.most_in_flight.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_holds_for_all_that_wait() {
    let (store, limit) = limit::<true>(5, true);
    store.seen.hangs.store(1, Ordering::Relaxed);
    let begun = Instant::now();
    let results = queued(&limit, (0..500).map(|call| call % 100)).await;
    assert!(results.iter().all(Result::is_err));
    assert_eq!(begun.elapsed(), ROUND_TRIP / 5 + DEADLINE);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_before_it_is_sent_leaves_nothing() {
    let (store, limit) = limit::<true>(5, true);
    let limited = limit.clone();
    let first = tokio::spawn(async move { limited.decide(&7, 1).await });
    sleep(ROUND_TRIP / 2).await;
    drop([7, 8, 9].map(|key| limit.decide(&key, 1)));
    assert!(first.await.expect("no panic").is_ok());
    sleep(DEADLINE).await;
    assert_eq!(store.store.keys().len(), 1);
    let decision = limit.decide(&7, 1).await.expect("a decision");
    assert_eq!(decision.remaining(), 3, "two were counted");
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_fails_fails_its_calls_and_no_others() {
    let (store, limit) = limit::<true>(5, true);
    store.seen.fails.store(1, Ordering::Relaxed);
    let results = queued(&limit, [7, 7, 8]).await;
    assert!(results[0].is_err());
    assert_eq!(admitted(&results[1..]), 2);
}

/// A store on a server, whose batches run on threads of this crate or not.
#[derive(Debug)]
struct Served {
    store: MemoryStore,
    has_own_threads: bool,
    /// Is told of each program and swap, while the test waits.
    ran: Sender<()>,
}

impl CasStore for Served {
    const RUNS: Runs = Runs::Scripts;

    async fn load(&self, key: &str) -> Result<Loaded, StoreError> {
        self.store.load(key).await
    }

    async fn swap(
        &self,
        key: &str,
        expected: Option<u64>,
        new: &Value,
        ttl: Duration,
    ) -> Result<Swapped, StoreError> {
        let swapped = self.store.swap(key, expected, new, ttl).await;
        let _ = self.ran.send(());
        swapped
    }

    async fn run<P: Program>(&self, program: &P) -> Result<P::Reply, StoreError> {
        let reply = self.store.run(program).await;
        let _ = self.ran.send(());
        reply
    }

    fn settings(&self) -> Settings {
        Settings {
            has_own_threads: self.has_own_threads,
            ..Settings::new("store")
        }
    }
}

/// Makes calls at once in a thread that then runs nothing else, until the store is called or `waits` is over.
async fn is_called_meanwhile(
    limit: impl Backend<u64>,
    called: Receiver<()>,
    waits: Duration,
) -> bool {
    let mut calls: Vec<_> = (0..100).map(|_| limit.decide(&7, 1)).collect();
    // It is not polled before the others have come.
    let first = calls.remove(0);
    let is_called = called.recv_timeout(waits).is_ok();
    for call in calls {
        assert!(call.await.is_ok());
    }
    assert!(first.await.is_ok());
    is_called
}

/// Holds a permit.
struct Holder;

impl LeaseHolder for Holder {
    fn plan(&self, _: &LeaseView, _: bool) -> LeasePlan {
        LeasePlan {
            holds: 1,
            wants: 1,
            grants: 1,
        }
    }

    fn confirm(&self, _: &LeasePlan, _: u64, _: Tick) {}

    fn fail(&self, _: Option<StoreError>) {}

    fn end(&self) -> bool {
        true
    }
}

/// Shows promise 644.
#[tokio::test]
async fn a_runtime_that_is_busy_delays_no_batch_no_exchange_of_a_fleet_and_no_permit() {
    for has_own_threads in [true, false] {
        let (minute, window) = (
            Duration::from_secs(60),
            FixedWindow::new(Quota::per_hour(5)),
        );
        let waits = if has_own_threads {
            minute
        } else {
            Duration::ZERO
        };
        let served = || {
            let (ran, called) = channel();
            let store = Served {
                store: MemoryStore::new(),
                has_own_threads,
                ran,
            };
            (store, called)
        };
        let (store, called) = served();
        let exact = Cas::new(store, "api", window).expect("a limit");
        let exact = is_called_meanwhile(exact.deadline(minute), called, waits).await;
        let (store, called) = served();
        let leased = Leased::new(store, "api", window).expect("a limit");
        let leased = is_called_meanwhile(leased.deadline(minute), called, waits).await;
        let (store, called) = served();
        let leases = Leases::new(store, "exports", minute, minute);
        let leases = Arc::new(leases);
        let runtime = leases.runtime().expect("a runtime");
        let keeper = runtime.spawn(leases.keep("key".to_owned(), Arc::default(), Holder));
        let permits = called.recv_timeout(waits).is_ok();
        keeper.abort();
        assert_eq!([exact, leased, permits], [has_own_threads; 3]);
    }
}
