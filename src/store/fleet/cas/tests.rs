//! Exchanges by transactions and by swaps.

#[cfg(feature = "postgres")]
mod postgres;

use super::super::exchange::{Limit, Report};
use super::super::shape::{NEVER, Shape};
use std::{
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use tokio::task::JoinSet;

use super::*;
use crate::algorithm::TokenBucket;
use crate::clock::Tick;
use crate::quota::Quota;
use crate::store::{
    cas::{Fault, Faulty, Loaded, MemoryStore, Swapped, Value},
    remote::join_all,
};
use crate::sync::Ordering;

/// A batch without a reply, or one for each key that is swapped.
struct Flights(Vec<Arc<Flight>>);

impl Flights {
    fn of<S: CasStore>(_: &Shared<S>, batch: &Batch) -> Self {
        let most = if S::RUNS == Runs::None {
            1
        } else {
            batch.keys.len()
        };
        let keys = batch.keys.chunks(most).map(<[_]>::to_vec);
        let batches = keys.map(|keys| Batch {
            keys,
            ..batch.clone()
        });
        Self(
            batches
                .map(|batch| {
                    Arc::new(Flight {
                        batch,
                        hashes: Vec::new(),
                        group: None,
                        begun: Tick::ZERO,
                        sent: Mutex::default(),
                    })
                })
                .collect(),
        )
    }
}

/// Exchanges all keys at once.
async fn exchange_all<S: CasStore>(
    shared: &Shared<S>,
    flights: &Flights,
) -> Result<Replies, StoreError> {
    let exchanging = flights.0.iter().map(|flight| exchange(shared, flight));
    let mut all = Replies::default();
    for replies in join_all(exchanging).await {
        let replies = replies?;
        all.now = all.now.max(replies.now);
        all.keys.extend(replies.keys);
    }
    Ok(all)
}

const LIFE: u64 = 10_000_000_000;

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
        expected: Option<u64>,
        new: &Value,
        ttl: Duration,
    ) -> Result<Swapped, StoreError> {
        self.0.swap(key, expected, new, ttl).await
    }
}

/// How often the machines' swaps found another version.
fn conflicts<S: CasStore>(machines: &[Arc<Shared<S>>]) -> u64 {
    let counts = machines.iter().map(|machine| &machine.conflicts);
    counts.map(|count| count.load(Ordering::Relaxed)).sum()
}

fn budgets<S: CasStore>(store: S) -> Arc<Shared<S>> {
    Arc::new(Shared::new(store, Duration::from_secs(1)))
}

fn limit(quota: Quota) -> Arc<Limit> {
    Arc::new(Limit {
        shape: Shape::of(&TokenBucket::new(quota), Tick::ZERO).unwrap(),
        interval: 1_000_000_000,
        life: LIFE,
        ahead: false,
    })
}

/// Odd machines name the keys in the opposite order.
fn batch(machine: u64, sequence: u64, units: u64) -> Batch {
    let report = Report {
        charged: units,
        at: NEVER,
        demand: 10,
        ..Report::default()
    };
    let mut keys = vec![("a".into(), report), ("b".into(), report)];
    if machine % 2 == 1 {
        keys.reverse();
    }
    Batch {
        machine,
        sequence,
        // No window that ends within an interval.
        limit: limit(Quota::per_day(1_000)),
        sequence_key: format!("machine {machine}").into(),
        keys,
    }
}

/// The units that are used and out, according to the store.
async fn taken<S: CasStore>(budgets: &Arc<Shared<S>>, key: &str) -> (i64, u64) {
    let loaded = budgets.store.load(key).await.unwrap();
    let bytes = loaded.value.map(|value| value.bytes);
    let text = bytes.map(|bytes| match S::RUNS {
        Runs::None => Record::from_bytes(&bytes).unwrap().state().to_vec(),
        _ => bytes,
    });
    let batch = batch(1, 1, 0);
    let record = batch.read(0, text.as_deref(), 0).unwrap();
    let free = batch.limit.shape.parts[0].free(&record.used[0], record.at);
    (1_000 - free, record.out[0] + record.out[1])
}

/// Machines exchange the same keys at once. Returns the units that are used of each then.
async fn used_by_all<S: CasStore>(machines: &[Arc<Shared<S>>]) -> Result<[i64; 2], StoreError> {
    let mut running = JoinSet::new();
    for (id, machine) in (1..).zip(machines.to_vec()) {
        running.spawn(async move {
            for sequence in 1..=5 {
                let flights = Flights::of(&machine, &batch(id, sequence, 3));
                exchange_all(&machine, &flights).await?;
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
    budgets: &Arc<Shared<Faulty<S>>>,
    flights: &Flights,
) {
    let lost = [Fault::LostRequest; 2];
    store.plan(
        [Fault::Delay(Duration::ZERO), Fault::LostReply]
            .into_iter()
            .chain(lost),
    );
    exchange_all(budgets, flights).await.unwrap_err();
    assert_eq!(store.planned(), 0);
    tokio::time::sleep(Duration::from_secs(60)).await;
    budgets.breakers.record_success("a");
}

/// A reply is lost: what the swap did is found by its name, and its grant is not lost. Another batch counts once more.
///
/// Shows promise 202.
#[tokio::test(start_paused = true)]
async fn a_batch_that_is_sent_again_counts_once() {
    for (again, used) in [(1, 3), (2, 6)] {
        let store = Faulty::new(MemoryStore::new());
        let budgets = budgets(store.clone());
        let first = Flights::of(&budgets, &batch(8, 1, 3));
        lose_the_reply(&store, &budgets, &first).await;
        let granted = taken(&budgets, "a").await.1;
        let sent = if again == 1 {
            first
        } else {
            Flights::of(&budgets, &batch(8, again, 3))
        };
        let replies = exchange_all(&budgets, &sent).await.unwrap();
        assert_eq!(taken(&budgets, "a").await.0, used);
        assert!(again == 2 || replies.keys[0].unwrap().grant.units == granted);
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
        expected: Option<u64>,
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
    let flights = Flights::of(&budgets, &batch(8, 1, 3));
    let exchanging = exchange_all(&budgets, &flights);
    let sent = tokio::time::timeout(Duration::from_millis(10), exchanging);
    sent.await.unwrap_err();
    assert_eq!(taken(&budgets, "a").await.0, 3);
    exchange_all(&budgets, &flights).await.unwrap();
    assert_eq!(taken(&budgets, "a").await.0, 3);
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
        let first = Flights::of(&budgets, &batch(8, 1, 0));
        let granted = exchange_all(&budgets, &first).await.unwrap();
        let mut second = batch(8, 2, 0);
        for ((_, report), reply) in second.keys.iter_mut().zip(&granted.keys) {
            let grant = reply.unwrap().grant;
            *report = Report {
                epoch: grant.epoch,
                used: 3,
                returned: grant.units - 3,
                at: NEVER,
                given_back: 1,
                given_back_at: NEVER,
                ..Report::default()
            };
        }
        let mut flights = Flights::of(&budgets, &second);
        lose_the_reply(&store, &budgets, &flights).await;
        for other in 10..18 {
            let flights = Flights::of(&others, &batch(other, 1, 0));
            exchange_all(&others, &flights).await.unwrap();
        }
        let (used, out) = taken(&budgets, "a").await;
        assert_eq!(used, 2);
        if !is_again {
            flights = Flights::of(&budgets, &second);
        }
        exchange_all(&budgets, &flights).await.unwrap();
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
        let (store, ttl) = (&budgets.store, Duration::from_secs(60));
        let value = Value { version: 1, bytes };
        store.swap("a", None, &value, ttl).await.unwrap();
        let first = Flights::of(&budgets, &batch(2, 1, 0));
        let replies = exchange_all(&budgets, &first).await.unwrap();
        assert!(replies.keys[0].is_none() && replies.keys[1].is_some());
        let mut reset = batch(2, 2, 0);
        reset.keys[0].1.resets = true;
        let reset = Flights::of(&budgets, &reset);
        let replies = exchange_all(&budgets, &reset).await.unwrap();
        assert!(replies.keys[0].is_some());
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
    for quota in [Quota::per_second(10), Quota::per_day(1_000)] {
        let batch = Batch {
            limit: limit(quota),
            ..batch(1, 1, 0)
        };
        let counts = (2 * batch.limit.shape.time_to_fill()).max(2 * LIFE);
        assert!(batch.ttl() > Duration::from_micros(counts), "{quota:?}");
    }
}
