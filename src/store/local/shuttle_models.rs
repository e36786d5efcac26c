//! Shuttle models of `Local`: random interleavings of more and longer threads than loom can
//! explore.

use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

use shuttle::thread;

use super::inner::LocalInner;
use super::{Local, Overflow};
use crate::algorithm::{SlidingLog, TokenBucket, Words};
use crate::clock::ManualClock;
use crate::quota::Quota;

/// Hashes integers to themselves, so the home of every small integer is the first set.
#[derive(Clone, Debug, Default)]
struct IdentityHasher(u64);

impl BuildHasher for IdentityHasher {
    type Hasher = Self;
    fn build_hasher(&self) -> Self {
        Self(0)
    }
}

impl Hasher for IdentityHasher {
    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are integers");
    }
    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

type Table<A> = Local<A, ManualClock, IdentityHasher>;

fn table<A: Words>(
    algorithm: A,
    capacity: usize,
    overflow: Overflow,
    clock: &ManualClock,
) -> Table<A> {
    let (clock, hasher) = (clock.clone(), IdentityHasher(0));
    let table: Table<A> = LocalInner::new(algorithm, capacity, overflow, clock, hasher).into();
    // The first use takes a lock that the model does not know.
    table.allocate();
    table
}

const THREADS: usize = 3;
const KEYS: usize = 6;

/// Each thread sends `limit * KEYS` requests, in an order of its own. Returns how often each key
/// was admitted.
fn run_threads<A: Words>(local: &Table<A>, limit: usize) -> Vec<usize> {
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let local = local.clone();
            thread::spawn(move || {
                let mut granted = vec![0; KEYS];
                for turn in 0..limit * KEYS {
                    let key = (turn * (2 * thread + 1) + thread) % KEYS;
                    let admitted = local.check(&(key as u64 + 1)).is_admitted();
                    granted[key] += usize::from(admitted);
                }
                granted
            })
        })
        .collect();
    let mut sum = vec![0; KEYS];
    for thread in threads {
        let granted = thread.join().expect("no thread panics");
        sum.iter_mut()
            .zip(granted)
            .for_each(|(sum, part)| *sum += part);
    }
    sum
}

fn check_schedules(model: impl Fn() + Send + Sync + Clone + 'static) {
    shuttle::check_random(model.clone(), 2_000);
    shuttle::check_pct(model, 2_000, 3);
}

/// How many requests of `key` all threads of `run_threads` send together.
fn requests_for(limit: usize, key: usize) -> usize {
    (0..THREADS)
        .flat_map(|thread| {
            (0..limit * KEYS).map(move |turn| (turn * (2 * thread + 1) + thread) % KEYS)
        })
        .filter(|requested| *requested == key)
        .count()
}

/// Shows promise 37.
#[test]
fn shuttle_keys_of_one_home_set_are_each_granted_their_limit() {
    check_schedules(|| {
        let clock = ManualClock::new();
        let quota = Quota::per_hour(2);
        // Two sets, eight slots.
        let local = table(TokenBucket::new(quota), 5, Overflow::EvictLeast, &clock);
        for (key, granted) in (0..).zip(run_threads(&local, 2)) {
            assert_eq!(granted, 2.min(requests_for(2, key)), "key {key}");
        }
        assert_eq!(local.stats().evicted, 0);
    });
}

/// Shows promise 46.
#[test]
fn shuttle_a_full_table_grants_no_key_more_than_the_limit() {
    check_schedules(|| {
        let clock = ManualClock::new();
        let bucket = TokenBucket::new(Quota::per_hour(2));
        // One set, four slots: two of six keys find no slot.
        let local = table(bucket, 1, Overflow::Deny, &clock);
        let granted = run_threads(&local, 2);
        assert!(granted.iter().all(|granted| *granted <= 2), "{granted:?}");
        assert_eq!(granted.iter().filter(|granted| **granted > 0).count(), 4);
    });
}

/// Shows promise 37.
#[test]
fn shuttle_spilled_states_are_each_granted_their_limit() {
    check_schedules(|| {
        let clock = ManualClock::new();
        let log = SlidingLog::new(Quota::per_hour(2));
        let local = table(log, 5, Overflow::EvictLeast, &clock);
        for (key, granted) in (0..).zip(run_threads(&local, 2)) {
            assert_eq!(granted, 2.min(requests_for(2, key)), "key {key}");
        }
    });
}

#[test]
fn shuttle_an_expired_slot_is_reused_atomically() {
    check_schedules(|| {
        let clock = ManualClock::new();
        let bucket = TokenBucket::new(Quota::per(2, Duration::from_secs(2)));
        let local = table(bucket, 1, Overflow::EvictLeast, &clock);
        for key in 10..14_u64 {
            assert!(local.check_n(&key, 2).is_admitted());
        }
        clock.advance(Duration::from_secs(2));
        // Four slots for six keys, so keys evict each other. A new key takes over the usage of the
        // key that it evicts.
        let granted: usize = run_threads(&local, 1).iter().sum();
        assert!(granted <= 4 * 2, "{granted}");
    });
}

/// Shows promise 47.
#[test]
fn shuttle_a_concurrent_quota_change_loses_no_count() {
    check_schedules(|| {
        let clock = ManualClock::new();
        let local = table(
            TokenBucket::new(Quota::per_hour(3)),
            5,
            Overflow::Deny,
            &clock,
        );
        let other = local.clone();
        let change = thread::spawn(move || {
            // The change keeps the tokens: three minus those taken.
            other
                .set_quota(Quota::per_day(3))
                .expect("a quota that fits the slots");
        });
        let granted = run_threads(&local, 3);
        change.join().expect("no thread panics");
        for (key, granted) in (0..).zip(granted) {
            assert_eq!(granted, 3.min(requests_for(3, key)), "key {key}");
        }
    });
}

/// Deciding at one version and writing at another is a bug.
///
/// Shows promise 37.
#[test]
#[should_panic(expected = "granted twice")]
fn shuttle_a_decision_on_a_stale_state_is_detected() {
    check_schedules(|| {
        let clock = ManualClock::new();
        let local = table(
            TokenBucket::new(Quota::per_hour(1)),
            1,
            Overflow::Deny,
            &clock,
        );
        let _ = local.check_n(&1_u64, 0);
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let local = local.clone();
                thread::spawn(move || {
                    let admitted = local.peek(&1_u64).is_admitted();
                    let _ = local.check(&1_u64);
                    admitted
                })
            })
            .collect();
        let granted = threads
            .into_iter()
            .map(|thread| thread.join().expect("no thread panics"))
            .filter(|granted| *granted)
            .count();
        assert!(granted <= 1, "granted twice");
    });
}
