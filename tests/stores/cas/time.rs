//! The time by which machines decide, and how long the store keeps values.

use std::time::Duration;

use tower_throttle::clock::{Clock, Tick};
use tower_throttle::store::cas::{Cas, CasStore, Fault, Faulty, Loaded, MemoryStore, Swapped};
use tower_throttle::store::{Backend, Op};
use tower_throttle::{ManualClock, Quota, StoreError, TokenBucket};

use crate::altered_store::{Altered, Change, Swap};
use crate::memory_fleet::stats;
use crate::set_clock::SetClock;

/// The clock of the store is set back by an hour before each swap.
#[derive(Clone, Debug)]
struct SetBack;

impl<S: CasStore> Change<S> for SetBack {
    async fn swap(&self, store: &S, swap: Swap<'_>) -> Result<Swapped, StoreError> {
        Ok(match swap.run(store).await? {
            Swapped::Done(Some(time)) => {
                let hour = 3_600_000_000_000;
                Swapped::Done(Some(Tick::from_nanos(time.as_nanos() - hour)))
            }
            other => other,
        })
    }
}

/// Shows promise 91.
#[tokio::test(start_paused = true)]
async fn no_decision_waits_for_a_clock_that_was_set_back() {
    let clock = ManualClock::new();
    clock.set(Tick::from_nanos(1 << 60));
    let store = Altered(MemoryStore::with_clock(clock), SetBack);
    let limit = Cas::new(store, "api", TokenBucket::new(Quota::per_day(2))).expect("a limit");
    let begun = tokio::time::Instant::now();
    let decision = limit.decide("key", 1).await.expect("a decision");
    assert!(decision.is_admitted() && begun.elapsed().is_zero());
}

/// The store does not report its time.
#[derive(Clone, Debug)]
struct Timeless;

impl<S: CasStore> Change<S> for Timeless {
    async fn load(&self, store: &S, key: &str) -> Result<Loaded, StoreError> {
        let loaded = store.load(key).await?;
        Ok(Loaded {
            value: loaded.value,
            server_time: None,
        })
    }

    async fn swap(&self, store: &S, swap: Swap<'_>) -> Result<Swapped, StoreError> {
        Ok(match swap.run(store).await? {
            Swapped::Conflict(Some(loaded)) => Swapped::Conflict(Some(Loaded {
                value: loaded.value,
                server_time: None,
            })),
            Swapped::Done(_) => Swapped::Done(None),
            other => other,
        })
    }
}

/// Shows promise 91.
#[tokio::test(start_paused = true)]
async fn without_the_time_of_the_store_that_of_the_machine_counts() {
    let store = Altered(MemoryStore::new(), Timeless);
    let limit = Cas::new(store, "api", TokenBucket::new(Quota::per_day(2))).expect("a limit");
    let first = limit.decide("key", 1).await.expect("a decision");
    assert_eq!(first.remaining(), 1);
    let since_1970 = Duration::from_nanos(first.receipt().moment());
    let year = Duration::from_secs(365 * 86_400);
    assert!(since_1970 > 56 * year && since_1970 < 200 * year);
    assert_eq!(
        limit
            .decide("key", 1)
            .await
            .expect("a decision")
            .remaining(),
        0
    );
    let denied = limit.decide("key", 1).await.expect("a decision");
    assert!(denied.is_denied());
}

/// Another server may reply next, by another clock.
///
/// Shows promise 91.
#[tokio::test(start_paused = true)]
async fn after_an_error_the_time_of_the_store_is_read_again() {
    let store = Faulty::new(MemoryStore::new());
    let limit =
        Cas::new(store.clone(), "api", TokenBucket::new(Quota::per_day(9))).expect("a limit");
    let decide = async |key| {
        let before = stats(&limit).store_calls;
        let decided = limit.decide(key, 1).await;
        (decided.is_ok(), stats(&limit).store_calls - before)
    };
    for (key, calls) in [("a", 2), ("b", 2), ("a", 1), ("b", 1)] {
        assert_eq!(decide(key).await, (true, calls), "{key}");
    }
    store.plan([Fault::LostRequest, Fault::Delay(Duration::from_secs(1))]);
    assert_eq!(decide("a").await, (false, 2));
    assert_eq!(decide("b").await, (true, 2), "although its record is known");
}

/// Shows promise 85.
#[tokio::test(start_paused = true)]
async fn a_value_is_kept_until_its_key_is_like_an_unused_one() {
    let clock = ManualClock::new();
    clock.set(Tick::from_nanos(1_000_000_000));
    let store = MemoryStore::with_clock(clock.clone());
    let limit = Cas::new(
        store.clone(),
        "api",
        TokenBucket::new(Quota::per_minute(60)),
    )
    .expect("a limit");
    assert!(limit.decide("key", 30).await.is_ok());
    let (_, kept_until) = store.get(&store.keys()[0]).expect("a value");
    // Full again after 30 s; a tenth and a second longer.
    let kept = kept_until.since(Tick::from_nanos(1_000_000_000));
    assert_eq!(kept, Duration::from_secs(34));

    // A bucket that does not start full is never forgotten; values live for at most 20 years.
    let slow = TokenBucket::new(Quota::per_day(10)).initial(3);
    let slow = Cas::new(store.clone(), "slow", slow).expect("a limit");
    assert!(slow.apply("key", Op::Charge(1)).await.is_ok());
    let key = store.keys().into_iter().find(|key| key.contains("slow"));
    let (_, kept_until) = store.get(&key.expect("a key")).expect("a value");
    let years = kept_until.since(clock.now()).as_secs() / (365 * 86_400);
    assert_eq!(years, 20);
}

/// Shows promise 91.
#[tokio::test(start_paused = true)]
async fn a_store_whose_clock_is_set_back_freezes_no_key() {
    let clock = SetClock::default();
    freezes_no_key(clock.clone(), MemoryStore::with_clock(clock)).await;
    let clock = SetClock::default();
    let cluster = Altered(MemoryStore::with_clock(clock.clone()), Cluster);
    freezes_no_key(clock, cluster).await;
}

#[derive(Clone, Debug)]
struct Cluster;

impl<S: CasStore> Change<S> for Cluster {
    const IS_CLUSTER: bool = true;
}

/// The store of two machines is set forward by an hour, used, and set back.
async fn freezes_no_key(clock: SetClock, store: impl CasStore + Clone) {
    let machine = || {
        let bucket = TokenBucket::new(Quota::per_minute(60));
        let limit = Cas::new(store.clone(), "api", bucket).expect("a limit");
        limit.without_deny_cache()
    };
    let machines = [machine(), machine()];
    let take = async |cost| {
        let mut admitted = 0;
        for machine in &machines {
            let decision = machine.decide("key", cost).await.expect("a decision");
            let wait = decision.retry_after.unwrap_or_default();
            assert!(wait <= Duration::from_secs(61), "{wait:?}");
            admitted += u64::from(decision.is_admitted());
        }
        admitted
    };
    take(1).await;
    clock.set_ahead(1);
    assert_eq!(take(30).await, 2);
    for _ in 0..3 {
        clock.set_ahead(-1);
        // Nothing is granted twice, and what is taken comes back as always.
        assert_eq!(take(1).await, 0);
        tokio::time::advance(Duration::from_secs(30)).await;
        assert_eq!(take(15).await, 2);
    }
    // An unused key has the store's time.
    tokio::time::advance(Duration::from_secs(120)).await;
    let decision = machines[0].decide("key", 0).await.expect("a decision");
    let moment = Tick::from_nanos(decision.receipt().moment());
    let now = clock.now();
    let apart = now.since(moment).max(moment.since(now));
    assert!(apart < Duration::from_secs(1), "{apart:?}");
    assert_eq!(take(30).await, 2);
}
