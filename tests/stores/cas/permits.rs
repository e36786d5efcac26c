//! Permits of a fleet: several machines over one store, in paused time.

use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};
use tower::{BoxError, Layer, ServiceExt, service_fn};
use tower_throttle::clock::{Clock, MonotonicClock};
use tower_throttle::concurrency::fleet::{Fleet, FleetLimit};
use tower_throttle::concurrency::{ConcurrencyLimitLayer, UntilResponse};
use tower_throttle::respond::Responder;
use tower_throttle::store::cas::{CasStore, Fault, Faulty, Loaded, MemoryStore, Swapped};
use tower_throttle::{AsError, Global, RateLimited, StoreError};

use crate::altered_store::{Altered, Change, Swap};
use crate::overwrite::overwrite;
use crate::random::Random;
use crate::set_clock::SetClock;

const LIFE: Duration = Duration::from_secs(10);
const SECOND: Duration = Duration::from_secs(1);
const KEY: &str = "{throttle:exports:}:permits";

/// One machine of a fleet.
#[derive(Clone)]
struct Machine<S: CasStore>(
    ConcurrencyLimitLayer<Global, Responder<AsError>, UntilResponse, Fleet<S>>,
);

/// A request in flight. It ends when this is dropped.
struct InFlight(AbortHandle);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<S: CasStore> Machine<S> {
    fn new(store: S, limit: u32) -> Self {
        Self::of(FleetLimit::new(store, "exports", limit))
    }

    fn of(limit: FleetLimit<S>) -> Self {
        let layer = ConcurrencyLimitLayer::new(Global, limit).release_at_response();
        Self(layer.deny_on_store_error().respond(AsError))
    }

    /// The same machine, where up to 1,000 requests wait for a minute.
    fn queued(self) -> Self {
        Self(self.0.queue(1_000).max_wait(60 * SECOND))
    }

    /// Begins a request. The error is that of a denial.
    async fn acquire(&self) -> Result<InFlight, BoxError> {
        let service = self
            .0
            .layer(service_fn(async |entered: oneshot::Sender<()>| {
                let _ = entered.send(());
                pending::<Result<(), BoxError>>().await
            }));
        let (entered, has_entered) = oneshot::channel();
        let call = tokio::spawn(service.oneshot(entered));
        let held = InFlight(call.abort_handle());
        match has_entered.await {
            Ok(()) => Ok(held),
            Err(_) => Err(call.await.expect("no panic").expect_err("not served")),
        }
    }

    /// How many of `wanted` requests go on at once.
    async fn acquire_many(&self, wanted: u32) -> Vec<InFlight> {
        let mut admitted = Vec::new();
        for _ in 0..wanted {
            admitted.extend(self.acquire().await.ok());
        }
        admitted
    }
}

fn denial(result: Result<InFlight, BoxError>) -> RateLimited {
    let error = result.err().expect("a denial");
    *error.downcast::<RateLimited>().expect("of the limit")
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_a_slow_store_until_the_deadline_of_its_limit() {
    for (deadline, is_admitted) in [(400, true), (200, false)] {
        let store = Faulty::new(MemoryStore::new());
        let limit = FleetLimit::new(store.clone(), "exports", 1);
        let machine = Machine::of(limit.deadline(Duration::from_millis(deadline)));
        store.plan([Fault::Delay(Duration::from_millis(300))]);
        assert_eq!(machine.acquire().await.is_ok(), is_admitted);
    }
}

/// Shows promise 360.
#[tokio::test(start_paused = true)]
async fn machines_share_their_permits_and_a_release_frees_one_for_all() {
    let store = MemoryStore::new();
    let [a, b] = [(); 2].map(|()| Machine::new(store.clone(), 2));
    let first = a.acquire().await.expect("a permit");
    let second = b.acquire().await.expect("a permit");
    for machine in [&a, &b] {
        let denied = denial(machine.acquire().await);
        let decision = denied.decision().expect("a denial");
        assert_eq!((decision.limit, decision.remaining()), (2, 0));
        let handle = machine.0.handle();
        assert_eq!((handle.in_flight(&()), handle.waiting()), (1, 0));
        let stats = handle.counts();
        assert_eq!((stats.admitted, stats.denied, stats.waited), (1, 1, 0));
    }
    assert_eq!(store.keys(), [KEY]);
    let stored = store.get(KEY);
    let fresh = Machine::new(store.clone(), 2);
    assert!(fresh.acquire().await.is_err());
    assert_eq!(store.get(KEY), stored, "a denial writes nothing");
    drop(first);
    sleep(Duration::from_millis(1)).await;
    let third = b.acquire().await.expect("what the other has released");
    assert!(a.acquire().await.is_err());
    drop((second, third));
    sleep(2 * SECOND).await;
    assert_eq!((a.0.handle().keys(), b.0.handle().keys()), (0, 0));
    let tasks = tokio::runtime::Handle::current().metrics();
    assert_eq!(tasks.num_alive_tasks(), 0);
    let (_, kept_until) = store.get(KEY).expect("a value");
    assert!(kept_until < MonotonicClock.now(), "nothing is kept");
}

/// Shows promise 641.
#[tokio::test(start_paused = true)]
async fn permits_are_reserved_of_all_machines_together() {
    let store = MemoryStore::new();
    let [a, b] = [(); 2].map(|()| {
        let limit = FleetLimit::new(store.clone(), "exports", 3);
        let layer = ConcurrencyLimitLayer::new(Global, limit).release_at_response();
        let layer = layer.priority(|job: &u8| *job).respond(AsError);
        let serve = async |_: u8| pending::<Result<(), BoxError>>().await;
        layer.reserve(100, 1).layer(service_fn(serve))
    });
    let mut calls = Vec::new();
    for (service, priority, is_admitted) in [
        (&a, 50, true),
        (&b, 80, true),
        (&a, 50, false),
        (&b, 80, false),
        (&b, 100, true),
        (&a, 100, false),
    ] {
        let call = tokio::spawn(service.clone().oneshot(priority));
        sleep(SECOND).await;
        assert_eq!(!call.is_finished(), is_admitted, "{priority:?}");
        calls.push(call);
    }
    for call in calls {
        call.abort();
    }
}

/// How many requests were in flight at most, of how many that were served.
#[derive(Default)]
struct Gauge {
    now: AtomicU64,
    most: AtomicU64,
    served: AtomicU64,
}

/// Runs a fleet under load. Each swap may be lost, doubled, late or slow.
async fn load(seed: u64) -> Gauge {
    let store = MemoryStore::new();
    let gauge = Arc::new(Gauge::default());
    let mut random = Random::new(seed);
    let mut requests = JoinSet::new();
    for _ in 0..4 {
        let faulty = Faulty::new(store.clone());
        let machine = Machine::new(faulty.clone(), 5).queued();
        faulty.plan((0..200).map(|_| match random.below(20) {
            0 => Fault::LostRequest,
            1 => Fault::LostReply,
            2 => Fault::Late,
            3 => Fault::Twice,
            4 => Fault::Conflict,
            5 => Fault::Delay(Duration::from_millis(random.below(40))),
            _ => Fault::Delay(Duration::ZERO),
        }));
        for _ in 0..40 {
            let (machine, gauge) = (machine.clone(), Arc::clone(&gauge));
            let [begin, length] =
                [2_000, 200].map(|most| Duration::from_millis(random.below(most)));
            requests.spawn(async move {
                sleep(begin).await;
                let Ok(permit) = machine.acquire().await else {
                    return;
                };
                let now = gauge.now.fetch_add(1, Ordering::Relaxed) + 1;
                gauge.most.fetch_max(now, Ordering::Relaxed);
                gauge.served.fetch_add(1, Ordering::Relaxed);
                sleep(length).await;
                gauge.now.fetch_sub(1, Ordering::Relaxed);
                drop(permit);
            });
        }
    }
    requests.join_all().await;
    sleep(2 * SECOND).await;
    let fresh = Machine::new(store, 5);
    assert_eq!(fresh.acquire_many(7).await.len(), 5, "no permit was lost");
    Arc::into_inner(gauge).expect("no request is left")
}

/// Shows promise 360.
#[tokio::test(start_paused = true)]
async fn swaps_that_are_lost_late_or_doubled_admit_no_more_and_lose_no_permit() {
    for seed in 0..40 {
        let gauge = load(seed).await;
        let (most, served) = (gauge.most.into_inner(), gauge.served.into_inner());
        assert!(most <= 5, "seed {seed}: {most}");
        // A request fails if the store is not reached within a deadline.
        assert!(served >= 100, "seed {seed}: {served}");
    }
}

/// A store that a machine does not reach any more.
#[derive(Clone, Debug, Default)]
struct Cable(Arc<AtomicBool>);

impl Cable {
    fn cut(&self, is_cut: bool) {
        self.0.store(is_cut, Ordering::Relaxed);
    }

    fn check(&self) -> Result<(), StoreError> {
        if self.0.load(Ordering::Relaxed) {
            return Err(StoreError::new("unreachable", true));
        }
        Ok(())
    }
}

impl<S: CasStore> Change<S> for Cable {
    async fn load(&self, store: &S, key: &str) -> Result<Loaded, StoreError> {
        self.check()?;
        store.load(key).await
    }

    async fn swap(&self, store: &S, swap: Swap<'_>) -> Result<Swapped, StoreError> {
        self.check()?;
        swap.run(store).await
    }
}

/// Shows promise 360.
#[tokio::test(start_paused = true)]
async fn the_permits_of_a_machine_that_crashed_are_free_within_a_life() {
    let (store, cable) = (MemoryStore::new(), Cable::default());
    let crashed = Machine::new(Altered(store.clone(), cable.clone()), 3);
    let _held = crashed.acquire_many(3).await;
    // Later than a renewal.
    sleep(LIFE / 2).await;
    cable.cut(true);
    let crashed_at = Instant::now();
    let other = Machine::new(store, 3).queued();
    let all = timeout(2 * LIFE, other.acquire_many(3)).await;
    assert_eq!(all.expect("in time").len(), 3);
    let recovered = crashed_at.elapsed();
    assert!(recovered > LIFE / 2 && recovered <= LIFE, "{recovered:?}");
}

/// Shows promise 360.
#[tokio::test(start_paused = true)]
async fn a_machine_that_is_cut_off_admits_no_more_after_a_life_and_counts_again_later() {
    let (store, cable) = (MemoryStore::new(), Cable::default());
    let cut_off = Machine::new(Altered(store.clone(), cable.clone()), 2).queued();
    let other = Machine::new(store, 2);
    let mut held = cut_off.acquire_many(2).await;
    cable.cut(true);
    // A permit that is released here goes to the next request here, until its life is over.
    held.pop();
    let within_its_life = cut_off.acquire().await;
    held.push(within_its_life.expect("what it holds"));
    sleep(LIFE).await;
    assert_eq!(other.acquire_many(2).await.len(), 2, "lost");
    let taken = other.acquire_many(2).await;
    assert_eq!(taken.len(), 2, "and free again");
    held.pop();
    let refused = denial(cut_off.acquire().await);
    assert!(refused.store_error().is_some_and(StoreError::is_transient));
    // Its request goes on, and counts as soon as the store is reached.
    cable.cut(false);
    sleep(2 * SECOND).await;
    drop(taken);
    sleep(SECOND).await;
    assert_eq!(other.acquire_many(2).await.len(), 1);
}

/// The time that another machine computes may be ahead by as much as a call may take.
///
/// Shows promise 360.
#[tokio::test(start_paused = true)]
async fn a_machine_that_is_cut_off_admits_no_more_from_a_deadline_before_the_end_of_its_life() {
    let deadline = Duration::from_millis(100);
    for (before, is_admitted) in [(deadline * 2, true), (deadline / 2, false)] {
        let cable = Cable::default();
        let machine = Machine::new(Altered(MemoryStore::new(), cable.clone()), 2).queued();
        let mut held = machine.acquire_many(2).await;
        cable.cut(true);
        sleep(LIFE.saturating_sub(before)).await;
        held.pop();
        let admitted = machine.acquire().await;
        assert_eq!(admitted.is_ok(), is_admitted, "{before:?} before its end");
    }
}

/// Shows promise 360.
#[tokio::test(start_paused = true)]
async fn a_clock_of_the_store_that_is_set_back_or_ahead_loses_no_permit() {
    for hours in [-1, 1] {
        let clock = SetClock::default();
        let (store, cable) = (MemoryStore::with_clock(clock.clone()), Cable::default());
        let holder = Machine::new(store.clone(), 3);
        let crashed = Machine::new(Altered(store.clone(), cable.clone()), 3);
        let held = holder.acquire().await.expect("a permit");
        let _lost = crashed.acquire().await.expect("a permit");
        cable.cut(true);
        clock.set_ahead(hours);
        // A renewal, with which the leases of the clock as it was are bounded, and a life.
        sleep(LIFE / 3 + LIFE + SECOND).await;
        let other = Machine::new(store, 3);
        let taken = other.acquire_many(3).await;
        // What is in flight counts, what is lost does not.
        assert_eq!(taken.len(), 2, "{hours}");
        drop(held);
        sleep(SECOND).await;
        assert!(other.acquire().await.is_ok(), "{hours}");
    }
}

/// Shows promise 360.
#[tokio::test(start_paused = true)]
async fn what_is_in_flight_counts_again_after_a_store_has_lost_or_damaged_its_values() {
    for is_damaged in [false, true] {
        let store = MemoryStore::new();
        let [a, b] = [(); 2].map(|()| Machine::new(store.clone(), 2));
        let _held = a.acquire_many(2).await;
        if is_damaged {
            overwrite(&store, KEY, 1, b"damaged").await;
        } else {
            store.clear();
        }
        assert!(b.acquire().await.is_ok(), "nothing is known of the other");
        sleep(LIFE / 3 + SECOND).await;
        assert!(denial(b.acquire().await).decision().is_some());
    }
}

/// Shows promise 365.
#[tokio::test(start_paused = true)]
async fn requests_of_one_machine_wait_in_order_and_no_machine_starves() {
    let store = MemoryStore::new();
    let busy = Machine::new(store.clone(), 2).queued();
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut requests = JoinSet::new();
    for n in 0..200 {
        let (busy, served) = (busy.clone(), Arc::clone(&served));
        requests.spawn(async move {
            // In the order of their numbers.
            sleep(Duration::from_micros(n)).await;
            let permit = busy.acquire().await.expect("a permit");
            served.lock().expect("no panic").push(n);
            sleep(Duration::from_millis(50)).await;
            drop(permit);
        });
    }
    sleep(SECOND).await;
    let other = Machine::new(store, 2).queued();
    // Half of the permits are its share.
    for _ in 0..5 {
        let permit = timeout(SECOND / 2, other.acquire()).await.expect("in time");
        sleep(Duration::from_millis(50)).await;
        drop(permit);
    }
    requests.join_all().await;
    let served = served.lock().expect("no panic");
    assert!(served.is_sorted() && served.len() == 200, "{served:?}");
    // All of them have waited for the store.
    let stats = busy.0.handle().counts();
    assert_eq!((stats.admitted, stats.waited, stats.denied), (200, 0, 0));
}

/// How many requests of each of `N` machines have had the only permit after this time, with so many of each at a time.
async fn served_in<const N: usize>(time: Duration, callers: usize) -> [u64; N] {
    let store = MemoryStore::new();
    let served = Arc::new([const { AtomicU64::new(0) }; N]);
    let mut requests = JoinSet::new();
    for at in 0..N {
        let machine = Machine::new(store.clone(), 1).queued();
        for _ in 0..callers {
            let (machine, served) = (machine.clone(), Arc::clone(&served));
            requests.spawn(async move {
                loop {
                    let permit = machine.acquire().await.expect("a permit");
                    sleep(Duration::from_millis(10)).await;
                    drop(permit);
                    served[at].fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    }
    sleep(time).await;
    served
        .each_ref()
        .map(|served| served.load(Ordering::Relaxed))
}

/// Shows promise 365.
#[tokio::test(start_paused = true)]
async fn machines_have_the_only_permit_in_turn() {
    // No request waits on the machine that has it.
    let served = served_in::<2>(3 * SECOND, 1).await;
    assert!(served.iter().all(|served| *served >= 80), "{served:?}");
    let served = served_in::<3>(60 * SECOND, 4).await;
    // 6,000 would be served by one machine.
    let is_fair = |served: &u64| (1_500..=2_300).contains(served);
    assert!(served.iter().all(is_fair), "{served:?}");
    let served = served_in::<64>(10 * SECOND, 1).await;
    assert!(served.iter().all(|served| *served > 0), "{served:?}");
}

/// Shows promise 360.
#[tokio::test(start_paused = true)]
async fn a_request_that_leaves_while_it_waits_takes_no_permit() {
    let store = MemoryStore::new();
    let a = Machine::new(store.clone(), 1);
    let b = Machine::new(store, 1).queued();
    let held = a.acquire().await.expect("a permit");
    assert!(timeout(SECOND, b.acquire()).await.is_err(), "it waits");
    drop(held);
    sleep(SECOND).await;
    let held = a.acquire().await.expect("a permit");
    let late = Machine(b.0.clone().max_wait(3 * SECOND));
    let begun = Instant::now();
    let denied = denial(late.acquire().await);
    assert!(denied.decision().is_some());
    let waited = begun.elapsed();
    assert!(waited >= 3 * SECOND && waited < 4 * SECOND, "{waited:?}");
    drop(held);
}

/// Shows promise 360.
#[tokio::test(start_paused = true)]
async fn a_request_that_leaves_during_its_swap_gives_its_permit_back() {
    let store = MemoryStore::new();
    let faulty = Faulty::new(store.clone());
    let (a, b) = (Machine::new(faulty.clone(), 1), Machine::new(store, 1));
    // The task is there, and has nothing to do.
    drop(a.acquire().await.expect("a permit"));
    sleep(Duration::from_millis(10)).await;
    faulty.plan([Fault::Delay(Duration::from_millis(50))]);
    let left = timeout(Duration::from_millis(20), a.acquire()).await;
    assert!(left.is_err());
    sleep(Duration::from_millis(100)).await;
    assert!(b.acquire().await.is_ok());
}

/// Shows promise 86.
#[tokio::test(start_paused = true)]
async fn a_store_that_is_down_denies_or_admits_as_set_and_limits_again_when_it_is_back() {
    let (store, cable) = (MemoryStore::new(), Cable::default());
    let denies = Machine::new(Altered(store.clone(), cable.clone()), 1);
    let limit = FleetLimit::new(Altered(store, cable.clone()), "exports", 1);
    let layer = ConcurrencyLimitLayer::new(Global, limit).release_at_response();
    let admits = Machine(layer.respond(AsError));
    cable.cut(true);
    for _ in 0..5 {
        let denied = denial(denies.acquire().await);
        assert!(denied.store_error().is_some_and(StoreError::is_transient));
    }
    let passed = admits.acquire_many(5).await;
    assert_eq!(passed.len(), 5);
    let stats = |machine: &Machine<_>| machine.0.handle().counts().store_errors;
    assert_eq!((stats(&denies), stats(&admits)), (5, 5));
    cable.cut(false);
    sleep(15 * SECOND).await;
    let _held = denies.acquire().await.expect("a permit");
    assert!(denial(admits.acquire().await).decision().is_some());
}

/// Shows promise 86.
#[test]
fn a_runtime_that_shuts_down_leaves_no_key_without_a_task() {
    let machine = Machine::new(MemoryStore::new(), 2).queued();
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().start_paused(true);
        builder.build().expect("a runtime")
    };
    let first = runtime();
    let held = first.block_on(machine.acquire_many(1));
    assert_eq!(held.len(), 1);
    drop(first);
    let admitted = runtime().block_on(async {
        let permits = [machine.acquire().await, machine.acquire().await];
        permits.iter().filter(|permit| permit.is_ok()).count()
    });
    assert_eq!(admitted, 2);
    drop(held);
}
