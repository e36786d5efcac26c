//! Exchanges by transactions and by swaps.

#[cfg(feature = "postgres")]
mod postgres;

use super::super::record::{Report, Terms};
use super::super::shape::{NEVER, Shape};
use super::super::shaped::shape_of;
use std::{sync::atomic::AtomicBool, time::Duration};

use super::*;
use crate::algorithm::TokenBucket;
use crate::clock::Tick;
use crate::quota::Quota;
use crate::store::cas::{Fault, Faulty, Loaded, MemoryStore, Swapped, Value, Version};
use crate::sync::Ordering;

const TERMS: Terms = Terms {
    interval: 1_000_000_000,
    life: 10_000_000_000,
    ahead: false,
};

/// A store with swaps only. Between a load and its swap, other machines load and swap.
#[derive(Clone, Debug)]
struct Yielding(MemoryStore);

impl CasStore for Yielding {
    async fn load(&self, key: &str) -> Result<Loaded, StoreError> {
        let loaded = self.0.load(key).await;
        tokio::task::yield_now().await;
        loaded
    }

    async fn swap(
        &self,
        key: &str,
        expected: Option<Version>,
        new: &Value,
        ttl: Duration,
    ) -> Result<Swapped, StoreError> {
        self.0.swap(key, expected, new, ttl).await
    }
}

/// How often the machines' swaps found another version.
fn conflicts<S: CasStore>(machines: &[Arc<Exchanger<S>>]) -> u64 {
    let counts = machines.iter().map(|machine| &machine.shared.conflicts);
    counts.map(|count| count.load(Ordering::Relaxed)).sum()
}

fn budgets<S: CasStore>(store: S) -> Arc<Exchanger<S>> {
    let shared = Shared::new(store, Duration::from_secs(1));
    Arc::new(Exchanger::new(Arc::new(shared)))
}

fn shape() -> Shape {
    // No window that ends within an interval.
    shape_of(&TokenBucket::new(Quota::per_day(1_000)), Tick::ZERO).unwrap()
}

/// Odd machines name the keys in the opposite order.
fn batch(machine: u64, sequence: u64, units: u64) -> Arc<Batch> {
    let report = Report {
        charged: units,
        at: NEVER,
        demand: 10,
        ..Report::default()
    };
    let mut keys = vec![("a".into(), report.clone()), ("b".into(), report)];
    if machine % 2 == 1 {
        keys.reverse();
    }
    Arc::new(Batch {
        machine,
        sequence,
        terms: TERMS,
        shape: Arc::new(shape()),
        sequence_key: format!("machine {machine}").into(),
        keys,
    })
}

/// Shows promise 77.
#[test]
fn debug_output_of_a_batch_has_no_keys() {
    let mut batch = Arc::unwrap_or_clone(batch(1, 1, 0));
    batch.keys[0].0 = "ann@example.com".into();
    let shown = format!("{batch:?}");
    assert!(
        shown.contains("keys: 2") && !shown.contains("example.com"),
        "{shown}"
    );
}

/// The units that are used and out, according to the store.
async fn taken<S: CasStore>(budgets: &Arc<Exchanger<S>>, key: &str) -> (i64, u64) {
    let loaded = budgets.shared.store.load(key).await.unwrap();
    let stored = loaded.value.map(|value| Record::from_bytes(&value.bytes));
    let stored = stored.map(Option::unwrap);
    let state = stored.as_ref().map(Record::state);
    let record = batch(1, 1, 0).read(0, state, 0).unwrap();
    let free = shape().parts[0].free(&record.used[0]);
    (1_000 - free, record.out[0] + record.out[1])
}

/// Machines exchange the same keys at once. Returns the units that are used of each then.
async fn used_by_all<S: CasStore>(machines: &[Arc<Exchanger<S>>]) -> Result<[i64; 2], StoreError> {
    let mut running = JoinSet::new();
    for (id, machine) in (1..).zip(machines.to_vec()) {
        running.spawn(async move {
            for sequence in 1..=5 {
                machine.exchange(&batch(id, sequence, 3)).await?;
            }
            Ok(())
        });
    }
    for done in running.join_all().await {
        done?;
    }
    let (a, b) = (taken(&machines[0], "a"), taken(&machines[0], "b"));
    let taken = [a.await, b.await];
    for (_, out) in taken {
        assert!(out > 0 && out <= 1_000, "{out}");
    }
    Ok(taken.map(|(used, _)| used))
}

const ALL: [i64; 2] = [16 * 5 * 3; 2];

/// Shows promise 202.
#[tokio::test(start_paused = true)]
async fn machines_that_exchange_at_once_lose_nothing() {
    /// Returns the number of conflicts.
    async fn check<S: CasStore + Clone>(store: S) -> u64 {
        let machines: Vec<_> = (0..16).map(|_| budgets(store.clone())).collect();
        assert_eq!(used_by_all(&machines).await, Ok(ALL));
        conflicts(&machines)
    }
    assert_eq!(check(MemoryStore::new()).await, 0);
    assert!(check(Yielding(MemoryStore::new())).await > 0);
}

/// The reply to the swap of the first key is lost, and then the store is not reached.
async fn lose_the_reply<S: CasStore>(
    store: &Faulty<S>,
    budgets: &Arc<Exchanger<Faulty<S>>>,
    batch: &Arc<Batch>,
) {
    let lost = [Fault::LostRequest; 2];
    store.plan([Fault::None, Fault::LostReply].into_iter().chain(lost));
    budgets.exchange(batch).await.unwrap_err();
    assert_eq!(store.planned(), 0);
    tokio::time::sleep(Duration::from_secs(60)).await;
    budgets.reach("a").await.unwrap();
}

/// A reply is lost: what the swap did is found by its name, and its grant is not lost. Another batch counts once more.
///
/// Shows promise 202.
#[tokio::test(start_paused = true)]
async fn a_batch_that_is_sent_again_counts_once() {
    for (again, used) in [(1, 3), (2, 6)] {
        let store = Faulty::new(MemoryStore::new());
        let budgets = budgets(store.clone());
        let first = batch(8, 1, 3);
        lose_the_reply(&store, &budgets, &first).await;
        let granted = taken(&budgets, "a").await.1;
        let sent = if again == 1 {
            first
        } else {
            batch(8, again, 3)
        };
        let replies = budgets.exchange(&sent).await.unwrap();
        assert_eq!(taken(&budgets, "a").await.0, used);
        assert!(again == 2 || replies.keys[0].grant.units == granted);
        // Nor if it is sent a third time.
        budgets.exchange(&sent).await.unwrap();
        assert_eq!(taken(&budgets, "a").await.0, used);
        assert_eq!(taken(&budgets, "b").await.0, 3);
    }
}

/// A store whose first swap is executed, and never replied to.
#[derive(Debug)]
struct Silent(MemoryStore, AtomicBool);

impl CasStore for Silent {
    async fn load(&self, key: &str) -> Result<Loaded, StoreError> {
        self.0.load(key).await
    }

    async fn swap(
        &self,
        key: &str,
        expected: Option<Version>,
        new: &Value,
        ttl: Duration,
    ) -> Result<Swapped, StoreError> {
        let swapped = self.0.swap(key, expected, new, ttl).await;
        if !self.1.swap(true, Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        swapped
    }
}

/// The runtime of the task is shut down, and another one sends it again.
///
/// Shows promise 202.
#[tokio::test(start_paused = true)]
async fn a_batch_that_is_dropped_in_flight_and_sent_again_counts_once() {
    let budgets = budgets(Silent(MemoryStore::new(), AtomicBool::new(false)));
    let batch = batch(8, 1, 3);
    let sent = tokio::time::timeout(Duration::from_millis(10), budgets.exchange(&batch));
    sent.await.unwrap_err();
    assert_eq!(taken(&budgets, "a").await.0, 3);
    budgets.exchange(&batch).await.unwrap();
    assert_eq!(taken(&budgets, "a").await.0, 3);
}

#[tokio::test]
async fn a_batch_that_is_sent_again_in_one_step_counts_once() {
    for (again, used) in [(1, 3), (2, 6)] {
        let budgets = budgets(MemoryStore::new());
        budgets.exchange(&batch(8, 1, 3)).await.unwrap();
        sent_again(&budgets, again, used).await;
    }
}

/// The first batch of machine 8 was executed.
async fn sent_again<S: CasStore>(budgets: &Arc<Exchanger<S>>, sequence: u64, used: i64) {
    let granted = taken(budgets, "a").await.1;
    let replies = budgets.exchange(&batch(8, sequence, 3)).await.unwrap();
    assert_eq!(taken(budgets, "a").await.0, used);
    if sequence == 1 {
        assert!(granted > 0);
        assert_eq!(replies.keys[0].grant.units, granted);
        assert_eq!(taken(budgets, "a").await.1, granted);
    }
}

/// The names of eight others stand where its own would be, so it may have been executed before: nothing is taken from
/// what those hold. If it counted as a first one, it would be.
///
/// Shows promise 200.
#[tokio::test(start_paused = true)]
async fn a_batch_of_unknown_outcome_gives_nothing_back_twice() {
    for is_again in [true, false] {
        let store = Faulty::new(MemoryStore::new());
        let (budgets, others) = (budgets(store.clone()), budgets(store.clone()));
        let granted = budgets.exchange(&batch(8, 1, 0)).await.unwrap();
        let mut second = Batch::clone(&batch(8, 2, 0));
        for ((_, report), reply) in second.keys.iter_mut().zip(&granted.keys) {
            *report = Report {
                epoch: reply.grant.epoch,
                used: 3,
                returned: reply.grant.units - 3,
                at: NEVER,
                given_back: 1,
                given_back_at: NEVER,
                ..Report::default()
            };
        }
        let mut second = Arc::new(second);
        lose_the_reply(&store, &budgets, &second).await;
        for other in 10..18 {
            others.exchange(&batch(other, 1, 0)).await.unwrap();
        }
        let (used, out) = taken(&budgets, "a").await;
        assert_eq!(used, 2);
        if !is_again {
            second = Arc::new(Batch::clone(&second));
        }
        budgets.exchange(&second).await.unwrap();
        let (used, still_out) = taken(&budgets, "a").await;
        let expected = if is_again { (5, true) } else { (4, false) };
        assert_eq!((used, still_out == out), expected);
    }
}

/// Shows promise 205.
#[tokio::test]
async fn a_damaged_value_is_left_until_it_is_reset() {
    async fn check<S: CasStore>(store: S, bytes: Vec<u8>) {
        let budgets = budgets(store);
        let (store, ttl) = (&budgets.shared.store, Duration::from_secs(60));
        let value = Value::new(Version::from_u64(1), bytes);
        store.swap("a", None, &value, ttl).await.unwrap();
        let replies = budgets.exchange(&batch(2, 1, 0)).await.unwrap();
        assert!(replies.keys[0].is_damaged && !replies.keys[1].is_damaged);
        let mut reset = Batch::clone(&batch(2, 2, 0));
        reset.keys[0].1.resets = true;
        let replies = budgets.exchange(&Arc::new(reset)).await.unwrap();
        assert!(!replies.keys[0].is_damaged);
    }
    let text = b"1 2 three".to_vec();
    check(MemoryStore::new(), text.clone()).await;
    // It has swaps only.
    check(Faulty::new(MemoryStore::new()), text.clone()).await;
    let record = Record::default().with_state(text, Tick::ZERO);
    check(Faulty::new(MemoryStore::new()), record.to_bytes()).await;
}

/// What is out lapses after two lives at the latest, and what is used counts for the memory of its shape.
#[test]
fn a_value_is_kept_while_anything_in_it_counts() {
    let shape = |quota| shape_of(&TokenBucket::new(quota), Tick::ZERO).unwrap();
    for quota in [Quota::per_second(10), Quota::per_day(1_000)] {
        let mut batch = Batch::clone(&batch(1, 1, 0));
        batch.shape = Arc::new(shape(quota));
        let counts = batch.shape.memory().max(2 * TERMS.life);
        assert!(batch.ttl() > Duration::from_micros(counts), "{quota:?}");
    }
}
