//! The state of one key, shared by threads.
//!
//! # Protocol
//! A state that packs into a word stands in `word` and changes by compare-and-swap. Whatever does
//! not fit (a log, figures too large for 64 bits, an algorithm that was replaced) stands in `wide`,
//! and `word` then holds `WIDE`.
//!
//! - `word` becomes `WIDE` only under the lock of `wide`, which already holds the state that the
//!   swapped-out word stood for. Whoever reads `WIDE` takes the lock and so sees it.
//! - `word` stops being `WIDE` only under the lock, and only while the algorithm is still the first
//!   one, for that is the one words are packed by. So a word is never read by another algorithm.
//!
//! A whole window's rollover is one swap of one word: there is no moment between taking over a
//! window and clearing its count in which a request could be lost or let through.

use crate::algorithm::{Algorithm, Inherit};
use crate::clock::Tick;
use crate::sync::{AtomicU64, Mutex, Ordering, lock};

/// In `word`: look into `wide`. No state packs to it.
const WIDE: u64 = u64::MAX;

pub(super) struct Cell<A: Algorithm> {
    /// The algorithm that words are packed by.
    first: A,
    word: AtomicU64,
    wide: Mutex<Wide<A>>,
}

struct Wide<A: Algorithm> {
    /// The algorithm that took the first one's place.
    replaced: Option<A>,
    /// The state, only while `word` is `WIDE`.
    state: A::State,
}

impl<A: Algorithm> Cell<A> {
    pub(super) fn new(algorithm: A, now: Tick) -> Self {
        let state = algorithm.fresh(now);
        Self {
            word: AtomicU64::new(algorithm.pack(&state).unwrap_or(WIDE)),
            wide: Mutex::new(Wide {
                replaced: None,
                state,
            }),
            first: algorithm,
        }
    }

    /// Changes the state by `step`, which may run several times and must depend on nothing but
    /// its arguments.
    #[inline]
    pub(super) fn transition<T>(&self, step: impl Fn(&A, &mut A::State) -> T) -> T {
        let mut word = self.word.load(Ordering::Acquire);
        while word != WIDE {
            let mut state = self.first.unpack(word);
            let answer = step(&self.first, &mut state);
            let Some(next) = self.first.pack(&state) else {
                match self.spill(word, state) {
                    Ok(()) => return answer,
                    Err(newer) => {
                        word = newer;
                        continue;
                    }
                }
            };
            // A denial reads and does not write, so a refused crowd shares the cache line.
            if next == word {
                return answer;
            }
            match self
                .word
                .compare_exchange_weak(word, next, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => return answer,
                Err(newer) => word = newer,
            }
        }
        self.wide_transition(step)
    }

    /// Reads the state.
    pub(super) fn look<T>(&self, read: impl Fn(&A, &A::State) -> T) -> T {
        let word = self.word.load(Ordering::Acquire);
        if word == WIDE {
            self.wide_transition(|algorithm, state| read(algorithm, state))
        } else {
            read(&self.first, &self.first.unpack(word))
        }
    }

    /// Puts `algorithm` in the place of the present one.
    pub(super) fn replace(&self, algorithm: A, now: Tick, inherit: Inherit) {
        let mut wide = lock(&self.wide);
        self.take_over(&mut wide);
        let Wide { replaced, state } = &mut *wide;
        let from = replaced.as_ref().unwrap_or(&self.first);
        algorithm.rescale(state, from, now, inherit);
        *replaced = Some(algorithm);
    }

    /// Moves a state that does not pack to `wide`, unless the word is no longer `seen`.
    #[cold]
    fn spill(&self, seen: u64, state: A::State) -> Result<(), u64> {
        let mut wide = lock(&self.wide);
        self.word
            .compare_exchange(seen, WIDE, Ordering::AcqRel, Ordering::Acquire)?;
        wide.state = state;
        Ok(())
    }

    fn wide_transition<T>(&self, step: impl Fn(&A, &mut A::State) -> T) -> T {
        let mut wide = lock(&self.wide);
        self.take_over(&mut wide);
        let Wide { replaced, state } = &mut *wide;
        let answer = step(replaced.as_ref().unwrap_or(&self.first), state);
        if replaced.is_none() {
            if let Some(word) = self.first.pack(state) {
                self.word.store(word, Ordering::Release);
            }
        }
        answer
    }

    /// Makes `wide`, which is locked, hold the state, wherever it stood.
    fn take_over(&self, wide: &mut Wide<A>) {
        let word = self.word.swap(WIDE, Ordering::AcqRel);
        if word != WIDE {
            wide.state = self.first.unpack(word);
        }
    }
}
