//! The state of one key, shared by threads.
//!
//! # Protocol
//! A state that packs into a word stands in `word` and changes by compare-and-swap. Whatever does
//! not fit (a log, figures too large for 64 bits, an algorithm that was replaced) stands in `wide`,
//! and `word` then holds `UNPACKED`.
//!
//! - `word` becomes `UNPACKED` only under the lock of `wide`, which already holds the state that the
//!   swapped-out word stood for. Whoever reads `UNPACKED` takes the lock and so sees it.
//! - `word` stops being `UNPACKED` only under the lock, and only while the algorithm is still the first
//!   one, for that is the one words are packed by. So a word is never read by another algorithm.
//!
//! A whole window's rollover is one swap of one word: there is no moment between taking over a
//! window and clearing its count in which a request could be lost or let through.

use crate::algorithm::{Algorithm, Inherit, Packing};
use crate::clock::Tick;
use crate::decision::Decision;
use crate::sync::{AtomicU64, Mutex, Ordering, lock};

/// In `word`: look into `wide`. No state packs to it.
const UNPACKED: u64 = u64::MAX;

pub(super) struct AtomicState<A: Algorithm> {
    /// The algorithm that words are packed by.
    first: A,
    word: AtomicU64,
    wide: Mutex<SpilledState<A>>,
}

struct SpilledState<A: Algorithm> {
    /// The algorithm that took the first one's place.
    replaced: Option<A>,
    /// The state, only while `word` is `UNPACKED`.
    state: A::State,
}

impl<A: Algorithm> AtomicState<A> {
    pub(super) fn new(algorithm: A, now: Tick) -> Self {
        let state = algorithm.fresh(now);
        Self {
            word: AtomicU64::new(A::Packing::pack(&algorithm, &state).unwrap_or(UNPACKED)),
            wide: Mutex::new(SpilledState {
                replaced: None,
                state,
            }),
            first: algorithm,
        }
    }

    /// `Algorithm::decide`. What every request does is written out here, all inline and without a
    /// closure, so that the compiler sees which figures of the decision the caller reads and
    /// computes no others; what is rare stands apart.
    #[expect(clippy::inline_always, reason = "half of the time, and more")]
    #[inline(always)]
    pub(super) fn decide(&self, now: Tick, cost: u64) -> Decision {
        let word = self.word.load(Ordering::Acquire);
        if word != UNPACKED {
            let mut state = A::Packing::unpack(&self.first, word);
            let decision = self.first.decide(&mut state, now, cost);
            if let Some(next) = A::Packing::pack(&self.first, &state) {
                if self.swap(word, next).is_ok() {
                    return decision;
                }
            }
        }
        self.decide_apart(now, cost).elsewhere()
    }

    #[cold]
    #[inline(never)]
    fn decide_apart(&self, now: Tick, cost: u64) -> Decision {
        self.transition(|algorithm, state| algorithm.decide(state, now, cost))
    }

    /// Changes the state by `step`, which may run several times and must depend on nothing but
    /// its arguments.
    pub(super) fn transition<T>(&self, step: impl Fn(&A, &mut A::State) -> T) -> T {
        let mut word = self.word.load(Ordering::Acquire);
        while word != UNPACKED {
            let mut state = A::Packing::unpack(&self.first, word);
            let answer = step(&self.first, &mut state);
            match self.publish(word, state) {
                Ok(()) => return answer,
                Err(newer) => word = newer,
            }
        }
        self.transition_locked(step)
    }

    /// Makes `state` the state if that is still what `seen` stands for; else answers the newer
    /// word.
    #[inline]
    fn publish(&self, seen: u64, state: A::State) -> Result<(), u64> {
        let Some(next) = A::Packing::pack(&self.first, &state) else {
            return self.spill(seen, state);
        };
        self.swap(seen, next)
    }

    #[inline]
    fn swap(&self, seen: u64, next: u64) -> Result<(), u64> {
        // A denial reads and does not write, so a refused crowd shares the cache line.
        if next == seen {
            return Ok(());
        }
        self.word
            .compare_exchange_weak(seen, next, Ordering::AcqRel, Ordering::Acquire)
            .map(|_| ())
    }

    /// Reads the state.
    pub(super) fn look<T>(&self, read: impl Fn(&A, &A::State) -> T) -> T {
        let word = self.word.load(Ordering::Acquire);
        if word == UNPACKED {
            self.transition_locked(|algorithm, state| read(algorithm, state))
        } else {
            read(&self.first, &A::Packing::unpack(&self.first, word))
        }
    }

    /// Puts `algorithm` in the place of the present one.
    pub(super) fn replace(&self, algorithm: A, now: Tick, inherit: Inherit) {
        let mut wide = lock(&self.wide);
        self.spill_word(&mut wide);
        let SpilledState { replaced, state } = &mut *wide;
        let from = replaced.as_ref().unwrap_or(&self.first);
        algorithm.rescale(state, from, now, inherit);
        *replaced = Some(algorithm);
    }

    /// Moves a state that does not pack to `wide`, unless the word is no longer `seen`.
    #[cold]
    fn spill(&self, seen: u64, state: A::State) -> Result<(), u64> {
        let mut wide = lock(&self.wide);
        self.word
            .compare_exchange(seen, UNPACKED, Ordering::AcqRel, Ordering::Acquire)?;
        wide.state = state;
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn transition_locked<T>(&self, step: impl Fn(&A, &mut A::State) -> T) -> T {
        let mut wide = lock(&self.wide);
        self.spill_word(&mut wide);
        let SpilledState { replaced, state } = &mut *wide;
        let answer = step(replaced.as_ref().unwrap_or(&self.first), state);
        if replaced.is_none() {
            if let Some(word) = A::Packing::pack(&self.first, state) {
                self.word.store(word, Ordering::Release);
            }
        }
        answer
    }

    /// Makes `wide`, which is locked, hold the state, wherever it stood.
    fn spill_word(&self, wide: &mut SpilledState<A>) {
        let word = self.word.swap(UNPACKED, Ordering::AcqRel);
        if word != UNPACKED {
            wide.state = A::Packing::unpack(&self.first, word);
        }
    }
}

#[cfg(all(test, tower_throttle_loom))]
mod loom_models {
    use std::sync::Arc;
    use std::time::Duration;

    use loom::thread;

    use super::*;
    use crate::algorithm::{FixedWindow, SlidingWindow, TokenBucket};
    use crate::quota::Quota;

    fn at(ns: u64) -> Tick {
        Tick::from_nanos(ns)
    }

    fn quota(limit: u64) -> Quota {
        Quota::per(limit, Duration::from_nanos(10))
    }

    /// Asks once at each moment, one thread a list, and answers how often each was admitted.
    fn admitted<A: Algorithm>(cell: &Arc<AtomicState<A>>, threads: &[&[u64]]) -> Vec<Vec<bool>> {
        let handles: Vec<_> = threads
            .iter()
            .map(|moments| {
                let (cell, moments) = (Arc::clone(cell), moments.to_vec());
                thread::spawn(move || {
                    moments
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

    fn check<A: Algorithm>(cell: &AtomicState<A>, now: u64) -> bool {
        cell.transition(|algorithm, state| algorithm.decide(state, at(now), 1))
            .is_admitted()
    }

    fn count(answers: &[Vec<bool>]) -> usize {
        answers
            .iter()
            .flatten()
            .filter(|admitted| **admitted)
            .count()
    }

    #[test]
    fn loom_two_threads_share_a_bucket_exactly() {
        loom::model(|| {
            let cell = Arc::new(AtomicState::new(TokenBucket::new(quota(3)), at(0)));
            assert_eq!(count(&admitted(&cell, &[&[0, 0], &[0, 0]])), 3);
        });
    }

    #[test]
    fn loom_three_threads_share_a_bucket_exactly() {
        loom::model(|| {
            let cell = Arc::new(AtomicState::new(TokenBucket::new(quota(2)), at(0)));
            assert_eq!(count(&admitted(&cell, &[&[0], &[0], &[0]])), 2);
        });
    }

    #[test]
    fn loom_a_stale_now_mints_no_tokens() {
        loom::model(|| {
            // One token in ten nanoseconds, taken at 0: at 9 there is none, at 10 there is one.
            let cell = Arc::new(AtomicState::new(TokenBucket::new(quota(1)), at(0)));
            assert!(check(&cell, 0));
            let answers = admitted(&cell, &[&[9], &[10, 10]]);
            assert_eq!(answers[0], [false]);
            assert_eq!(answers[1], [true, false]);
        });
    }

    #[test]
    fn loom_a_rollover_admits_exactly_the_limit() {
        loom::model(|| {
            let cell = Arc::new(AtomicState::new(FixedWindow::new(quota(1)), at(0)));
            assert!(check(&cell, 5));
            // The window of 10 holds one, whoever takes it over; the old one is full.
            let answers = admitted(&cell, &[&[9], &[10], &[11]]);
            assert_eq!(answers[0], [false]);
            assert_eq!(count(&answers), 1);
        });
    }

    #[test]
    fn loom_a_state_that_outgrows_the_word_is_not_lost() {
        loom::model(|| {
            let cell = Arc::new(AtomicState::new(SlidingWindow::new(quota(2)), at(0)));
            let debtor = Arc::clone(&cell);
            // Five against a limit of two do not pack, one given back or not.
            let debt = thread::spawn(move || {
                debtor.transition(|algorithm, state| algorithm.charge(state, at(0), 5));
            });
            let before = check(&cell, 0);
            debt.join().expect("no thread panics");
            cell.transition(|algorithm, state| algorithm.refund(state, at(0), 5));
            let left = cell.look(|algorithm, state| algorithm.peek(state, at(0), 0).remaining());
            assert_eq!(left, 2 - u64::from(before));
        });
    }

    #[test]
    fn loom_a_changed_quota_counts_what_came_before_and_during_it() {
        loom::model(|| {
            let cell = Arc::new(AtomicState::new(FixedWindow::new(quota(1)), at(0)));
            let other = Arc::clone(&cell);
            let retune = thread::spawn(move || {
                other.replace(FixedWindow::new(quota(2)), at(0), Inherit::AsIs);
            });
            let answers = admitted(&cell, &[&[0, 0]]);
            retune.join().expect("no thread panics");
            let left = cell.look(|algorithm, state| algorithm.peek(state, at(0), 0).remaining());
            assert_eq!(left, 2 - count(&answers) as u64);
        });
    }

    /// The bug the swap is there against: what another thread took in between is overwritten.
    #[test]
    #[should_panic(expected = "two of one token")]
    fn loom_a_store_in_place_of_the_swap_is_caught() {
        loom::model(|| {
            let bucket = TokenBucket::new(quota(1));
            let word = Arc::new(AtomicU64::new(0));
            let take = move |word: &AtomicU64| {
                let mut state = TokenBucket::unpack(&bucket, word.load(Ordering::Acquire));
                let decision = bucket.decide(&mut state, at(0), 1);
                word.store(
                    TokenBucket::pack(&bucket, &state).unwrap_or(UNPACKED),
                    Ordering::Release,
                );
                decision.is_admitted()
            };
            let other = Arc::clone(&word);
            let thread = thread::spawn(move || take(&other));
            let here = take(&word);
            let there = thread.join().expect("no thread panics");
            assert!(!(here && there), "two of one token");
        });
    }
}
