//! The state of one key, shared by threads.
//!
//! # Protocol
//! `word` holds a state that packs into 64 bits and changes by compare-and-swap. `spilled` holds
//! every other state: a log, large numbers, or a state of a replaced algorithm. `word` is `UNPACKED`
//! then.
//!
//! - `word` becomes `UNPACKED` only under the lock of `spilled`, which holds the same state by then.
//!   A thread that reads `UNPACKED` takes the lock and therefore sees that state.
//! - `word` stops being `UNPACKED` only under the lock, and only if the algorithm was never replaced.
//!   Words are packed by the first algorithm, so no other algorithm ever reads one.
//!
//! A rollover of a window is one swap of one word. No request can be lost or admitted twice between
//! the start of the new window and the reset of its count.

use crate::algorithm::{Inherit, Words};
use crate::clock::{Clock, Tick};
use crate::decision::Decision;
use crate::sync::{AtomicU64, Mutex, Ordering, lock};

/// In `word`: the state is in `spilled`. No state packs to this value.
const UNPACKED: u64 = u64::MAX;

pub(super) struct AtomicState<A: Words> {
    /// The first algorithm, which packs the words.
    algorithm: A,
    packs: bool,
    word: AtomicU64,
    spilled: Mutex<SpilledState<A>>,
}

struct SpilledState<A: Words> {
    /// The algorithm that replaced the first one.
    replacement: Option<A>,
    /// The state, only while `word` is `UNPACKED`.
    state: A::State,
}

impl<A: Words> AtomicState<A> {
    pub(super) fn new(algorithm: A, now: Tick) -> Self {
        let state = algorithm.fresh(now);
        // A state that allocates stays where it is.
        let packs = algorithm.facts().max_heap_bytes == 0;
        let new = Self {
            word: AtomicU64::new(UNPACKED),
            packs,
            spilled: Mutex::new(SpilledState {
                replacement: None,
                state: state.clone(),
            }),
            algorithm,
        };
        new.word
            .store(new.pack(&state).unwrap_or(UNPACKED), Ordering::Relaxed);
        new
    }

    #[inline]
    fn pack(&self, state: &A::State) -> Option<u64> {
        let mut words = [0];
        let packs = self.packs && A::pack_into(&self.algorithm, state, &mut words);
        packs.then_some(words[0])
    }

    #[inline]
    fn unpack(&self, word: u64) -> A::State {
        A::unpack_from(&self.algorithm, &[word])
    }

    /// `Algorithm::decide`. The fast path is inline and has no closure, so that the compiler drops
    /// the fields of the decision that the caller does not read. The slow path is a call.
    #[expect(
        clippy::inline_always,
        reason = "saves more than half of the time of a decision"
    )]
    #[inline(always)]
    pub(super) fn decide(&self, now: Tick, cost: u64) -> Decision {
        let word = self.word.load(Ordering::Acquire);
        if word != UNPACKED {
            let mut state = self.unpack(word);
            let decision = self.algorithm.decide(&mut state, now, cost);
            // A state that was a word is one that packs, so `packs` need not be read.
            let mut next = [0];
            if A::pack_into(&self.algorithm, &state, &mut next)
                && self.try_swap(word, next[0]).is_ok()
            {
                return decision;
            }
        }
        self.decide_slow(now, cost).hide_from_optimizer()
    }

    #[cold]
    fn decide_slow(&self, now: Tick, cost: u64) -> Decision {
        self.transition(|algorithm, state| algorithm.decide(state, now, cost))
    }

    /// Changes the state by `step`, which may run several times and must depend on nothing but
    /// its arguments.
    pub(super) fn transition<T>(&self, step: impl Fn(&A, &mut A::State) -> T) -> T {
        let mut word = self.word.load(Ordering::Acquire);
        while word != UNPACKED {
            let mut state = self.unpack(word);
            let result = step(&self.algorithm, &mut state);
            match self.try_publish(word, state) {
                Ok(()) => return result,
                Err(newer) => word = newer,
            }
        }
        self.transition_locked(step)
    }

    /// Replaces the state if `word` is still `seen`; else returns the newer word.
    #[inline]
    fn try_publish(&self, seen: u64, state: A::State) -> Result<(), u64> {
        let Some(next) = self.pack(&state) else {
            return self.spill(seen, state);
        };
        self.try_swap(seen, next)
    }

    #[inline]
    fn try_swap(&self, seen: u64, next: u64) -> Result<(), u64> {
        // A denial does not write, so threads that are denied share the cache line.
        if next == seen {
            return Ok(());
        }
        self.word
            .compare_exchange_weak(seen, next, Ordering::AcqRel, Ordering::Acquire)
            .map(|_| ())
    }

    pub(super) fn read<T>(&self, read: impl Fn(&A, &A::State) -> T) -> T {
        let word = self.word.load(Ordering::Acquire);
        if word == UNPACKED {
            self.transition_locked(|algorithm, state| read(algorithm, state))
        } else {
            read(&self.algorithm, &self.unpack(word))
        }
    }

    /// Replaces the algorithm.
    pub(super) fn replace(&self, algorithm: A, clock: &impl Clock, inherit: Inherit) {
        let mut spilled = lock(&self.spilled);
        self.spill_word(&mut spilled);
        // Read under the lock, so that it is not older than the state that the lock protects.
        let now = clock.now();
        let SpilledState { replacement, state } = &mut *spilled;
        let from = replacement.as_ref().unwrap_or(&self.algorithm);
        algorithm.rescale(state, from, now, inherit);
        *replacement = Some(algorithm);
    }

    /// Moves a state that does not pack to `spilled`, unless the word is no longer `seen`.
    #[cold]
    fn spill(&self, seen: u64, state: A::State) -> Result<(), u64> {
        let mut spilled = lock(&self.spilled);
        self.word
            .compare_exchange(seen, UNPACKED, Ordering::AcqRel, Ordering::Acquire)?;
        spilled.state = state;
        Ok(())
    }

    #[cold]
    fn transition_locked<T>(&self, step: impl Fn(&A, &mut A::State) -> T) -> T {
        let mut spilled = lock(&self.spilled);
        self.spill_word(&mut spilled);
        let SpilledState { replacement, state } = &mut *spilled;
        let result = step(replacement.as_ref().unwrap_or(&self.algorithm), state);
        if replacement.is_none() {
            if let Some(word) = self.pack(state) {
                self.word.store(word, Ordering::Release);
            }
        }
        result
    }

    /// Moves the state from `word` to `spilled`, which is locked, if it is not there yet.
    fn spill_word(&self, spilled: &mut SpilledState<A>) {
        let word = self.word.swap(UNPACKED, Ordering::AcqRel);
        if word != UNPACKED {
            spilled.state = self.unpack(word);
        }
    }
}

#[cfg(all(test, tower_throttle_loom))]
mod loom_models {
    use std::sync::Arc;
    use std::time::Duration;

    use loom::thread;

    use super::*;
    use crate::algorithm::{
        Algorithm, Cost, FixedWindow, GiveBack, SlidingWindow, TokenBucket, Words,
    };
    use crate::decision::Verdict;
    use crate::error::ConfigError;
    use crate::quota::Quota;

    fn at(ns: u64) -> Tick {
        Tick::from_nanos(ns)
    }

    #[derive(Debug)]
    struct At(u64);

    impl Clock for At {
        fn now(&self) -> Tick {
            at(self.0)
        }
    }

    fn quota(limit: u64) -> Quota {
        Quota::per(limit, Duration::from_nanos(10))
    }

    /// Checks once at each moment, with one thread per list. Returns which checks were admitted.
    fn check_all<A: Words>(cell: &Arc<AtomicState<A>>, threads: &[&[u64]]) -> Vec<Vec<bool>> {
        let handles: Vec<_> = threads
            .iter()
            .map(|times| {
                let (cell, times) = (Arc::clone(cell), times.to_vec());
                thread::spawn(move || {
                    times
                        .into_iter()
                        .map(|now| check(&cell, now))
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        handles
            .into_iter()
            .map(|handle| handle.join().expect("no thread panics"))
            .collect()
    }

    fn check<A: Words>(cell: &AtomicState<A>, now: u64) -> bool {
        cell.decide(at(now), 1).is_admitted()
    }

    fn count(results: &[Vec<bool>]) -> usize {
        results
            .iter()
            .flatten()
            .filter(|admitted| **admitted)
            .count()
    }

    /// Shows promise 36.
    #[test]
    fn loom_two_threads_share_a_bucket_exactly() {
        loom::model(|| {
            let cell = Arc::new(AtomicState::new(TokenBucket::new(quota(3)), at(0)));
            assert_eq!(count(&check_all(&cell, &[&[0, 0], &[0, 0]])), 3);
        });
    }

    #[test]
    fn loom_three_threads_share_a_bucket_exactly() {
        loom::model(|| {
            let cell = Arc::new(AtomicState::new(TokenBucket::new(quota(2)), at(0)));
            assert_eq!(count(&check_all(&cell, &[&[0], &[0], &[0]])), 2);
        });
    }

    #[test]
    fn loom_a_stale_now_mints_no_tokens() {
        loom::model(|| {
            // One token per ten nanoseconds, taken at 0: none at 9, one at 10.
            let cell = Arc::new(AtomicState::new(TokenBucket::new(quota(1)), at(0)));
            assert!(check(&cell, 0));
            let results = check_all(&cell, &[&[9], &[10, 10]]);
            assert_eq!(results[0], [false]);
            assert_eq!(results[1], [true, false]);
        });
    }

    /// Shows promise 36.
    #[test]
    fn loom_a_rollover_admits_exactly_the_limit() {
        loom::model(|| {
            let cell = Arc::new(AtomicState::new(FixedWindow::new(quota(1)), at(0)));
            assert!(check(&cell, 5));
            // The window that starts at 10 admits one; the window before it is full.
            let results = check_all(&cell, &[&[9], &[10], &[11]]);
            assert_eq!(results[0], [false]);
            assert_eq!(count(&results), 1);
        });
    }

    /// Shows promise 36.
    #[test]
    fn loom_a_state_that_no_longer_packs_is_not_lost() {
        loom::model(|| {
            let cell = Arc::new(AtomicState::new(SlidingWindow::new(quota(2)), at(0)));
            let debtor = Arc::clone(&cell);
            // A count of five does not pack with a limit of two, nor does four.
            let debt = thread::spawn(move || {
                debtor.transition(|algorithm, state| algorithm.charge(state, at(0), 5));
            });
            let before = check(&cell, 0);
            debt.join().expect("no thread panics");
            cell.transition(|algorithm, state| {
                algorithm.refund(state, at(0), Cost::new(5, at(0)), GiveBack::Refund)
            });
            let left = cell.read(|algorithm, state| algorithm.peek(state, at(0), 0).remaining());
            assert_eq!(left, 2 - u64::from(before));
        });
    }

    /// Shows promise 36.
    #[test]
    fn loom_a_changed_quota_counts_earlier_and_concurrent_requests() {
        loom::model(|| {
            let cell = Arc::new(AtomicState::new(FixedWindow::new(quota(1)), at(0)));
            let other = Arc::clone(&cell);
            let retune = thread::spawn(move || {
                other.replace(FixedWindow::new(quota(2)), &At(0), Inherit::AsIs);
            });
            let results = check_all(&cell, &[&[0, 0]]);
            retune.join().expect("no thread panics");
            let left = cell.read(|algorithm, state| algorithm.peek(state, at(0), 0).remaining());
            assert_eq!(left, 2 - count(&results) as u64);
        });
    }

    /// Its state is the latest moment that it was asked at.
    #[derive(Clone, Debug)]
    struct Latest(Quota);

    impl Words for Latest {}

    impl Algorithm for Latest {
        type State = Tick;

        fn quota(&self) -> Quota {
            self.0
        }

        fn with_quota(&self, quota: Quota) -> Result<Self, ConfigError> {
            Ok(Self(quota))
        }

        fn fresh(&self, _: Tick) -> Tick {
            Tick::ZERO
        }

        fn decide(&self, state: &mut Tick, now: Tick, _: u64) -> Decision {
            *state = now.max(*state);
            Decision::new(Verdict::Admit, 1, 1, None, 0)
        }

        fn refund(&self, _: &mut Tick, _: Tick, _: Cost, _: GiveBack) {}

        fn charge(&self, _: &mut Tick, _: Tick, _: u64) -> Duration {
            Duration::ZERO
        }

        fn rescale(&self, state: &mut Tick, _: &Self, now: Tick, _: Inherit) {
            assert!(
                now > *state,
                "a change at {now:?} after a decision at {state:?}"
            );
            *state = now;
        }

        fn forgettable_at(&self, state: &Tick) -> Tick {
            *state
        }
    }

    /// No two readings are equal.
    #[derive(Debug)]
    struct Steps(AtomicU64);

    impl Clock for Steps {
        fn now(&self) -> Tick {
            at(1 + self.0.fetch_add(1, Ordering::AcqRel))
        }
    }

    #[test]
    fn loom_a_change_is_not_older_than_the_state_that_it_changes() {
        loom::model(|| {
            let cell = Arc::new(AtomicState::new(Latest(quota(1)), at(0)));
            let clock = Arc::new(Steps(AtomicU64::new(0)));
            let (other, time) = (Arc::clone(&cell), Arc::clone(&clock));
            let decides = thread::spawn(move || {
                let now = time.now();
                other.transition(|algorithm, state| algorithm.decide(state, now, 1))
            });
            cell.replace(Latest(quota(2)), &*clock, Inherit::AsIs);
            let _ = decides.join().expect("no thread panics");
        });
    }

    /// The bug that the swap prevents: overwriting what another thread took in between.
    ///
    /// Shows promise 36.
    #[test]
    #[should_panic(expected = "two of one token")]
    fn loom_a_plain_store_is_caught() {
        loom::model(|| {
            let bucket = TokenBucket::new(quota(1));
            let word = Arc::new(AtomicU64::new(0));
            let take = move |word: &AtomicU64| {
                let mut state = TokenBucket::unpack_from(&bucket, &[word.load(Ordering::Acquire)]);
                let decision = bucket.decide(&mut state, at(0), 1);
                let mut words = [0];
                assert!(TokenBucket::pack_into(&bucket, &state, &mut words));
                word.store(words[0], Ordering::Release);
                decision.is_admitted()
            };
            let other = Arc::clone(&word);
            let thread = thread::spawn(move || take(&other));
            let first = take(&word);
            let second = thread.join().expect("no thread panics");
            assert!(!(first && second), "two of one token");
        });
    }
}
