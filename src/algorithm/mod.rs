//! How much: one pure transition per algorithm.
//!
//! An algorithm is a small plain value that says what happens to the state of one key. It has no
//! clock, no lock and does no I/O; the present moment is an argument. Whoever keeps states (a
//! [`Limiter`](crate::Limiter) for one key, a table for many) calls it.
//!
//! # The laws
//!
//! 1. [`fresh`](Algorithm::fresh) is the state of a key never seen.
//! 2. A denied request changes nothing, and neither does a cost of zero, which is admitted.
//! 3. A cost above the capacity is denied for good: no `retry_after`.
//! 4. `retry_after` is exact: alone, the same request passes then and not one nanosecond earlier.
//! 5. A moment older than the state admits no more than the newest one would.
//! 6. From [`forgettable_at`](Algorithm::forgettable_at) on the state decides like a fresh one.
//! 7. Nothing rounds twice: what a division leaves over is carried in the state.
//!
//! # The algorithms and what they promise
//!
//! L per period W, burst B, t = W/L; A(T) is the cost admitted in any interval of length T: for
//! buckets both ends included, for windows, which begin as the one before ends, the first only.
//!
//! | algorithm | promise |
//! |---|---|
//! | [`FixedWindow`] | at most L in each window, so at most 2L in any W |
//! | [`SlidingLog`] | A(W) <= L in every W |
//! | [`SlidingWindow`] | A(W) <= 2L; smooth traffic within one of the log |
//! | [`SlidingGrid`] | at most L in any W(1 - 1/G); strict: in any W |
//! | [`TokenBucket`] | A(T) <= B + T/t |
//! | [`LeakyBucket`] | as a meter A(T) <= B + T/t; as a queue released at least t apart |
//! | [`WarmUp`] | as a queue of rising rate: from L/cold to L over the warm-up time |
//! | tuples, [`All`] | each part's own |

mod all;
mod any;
mod at_most;
mod bucket;
mod fixed_window;
#[cfg(feature = "governor")]
mod gcra;
mod interval;
mod leaky_bucket;
mod packing;
mod sliding_grid;
mod sliding_log;
mod sliding_window;
mod timestamps;
mod token_bucket;
mod u256;
mod warm_up;
mod windows;

#[cfg(feature = "governor")]
pub use self::gcra::{Gcra, GcraState};
pub use self::{
    all::{All, IntoAlgorithm},
    any::{AnyAlgorithm, AnyState},
    at_most::AtMost,
    fixed_window::{FixedWindow, FixedWindowState},
    interval::ExactNanos,
    leaky_bucket::{Charge, LeakyBucket},
    sliding_grid::{SlidingGrid, SlidingGridState},
    sliding_log::{SlidingLog, SlidingLogState},
    sliding_window::{SlidingWindow, SlidingWindowState},
    token_bucket::TokenBucket,
    warm_up::{WarmUp, WarmUpState},
};

use std::{fmt, time::Duration};

use crate::clock::Tick;
use crate::decision::Decision;
use crate::error::ConfigError;
use crate::quota::Quota;

/// Decides over the state of one key.
///
/// The provided algorithms cover most wishes; one of your own needs the state and the required
/// methods, and then works wherever they do.
///
/// ```
/// use tower_throttle::{FixedWindow, Quota, algorithm::Algorithm, clock::Tick};
///
/// let window = FixedWindow::new(Quota::per_second(1));
/// let mut state = window.fresh(Tick::ZERO);
/// assert!(window.decide(&mut state, Tick::ZERO, 1).is_admitted());
/// assert!(window.decide(&mut state, Tick::from_nanos(999_999_999), 1).is_denied());
/// assert!(window.decide(&mut state, Tick::from_nanos(1_000_000_000), 1).is_admitted());
/// ```
pub trait Algorithm: Clone + fmt::Debug + Send + Sync + 'static {
    /// What is remembered of one key.
    type State: Clone + fmt::Debug + Send + Sync + 'static;

    /// The quota it was made with.
    fn quota(&self) -> Quota;

    /// The quotas of all its limits, in the order in which [`Decision::policy`] counts them.
    fn quotas(&self) -> Vec<Quota> {
        vec![self.quota()]
    }

    /// The same algorithm for another quota.
    ///
    /// # Errors
    /// If it has no such quota, as a set of several limits does.
    fn with_quota(&self, quota: Quota) -> Result<Self, ConfigError>;

    /// The state of a key first seen `now`.
    fn fresh(&self, now: Tick) -> Self::State;

    /// Decides on a request of `cost` and takes the cost unless it is denied.
    fn decide(&self, state: &mut Self::State, now: Tick, cost: u64) -> Decision;

    /// The decision [`decide`](Self::decide) would give, taking nothing.
    #[inline]
    fn peek(&self, state: &Self::State, now: Tick, cost: u64) -> Decision {
        let mut copy = state.clone();
        let rest = self.decide(&mut copy, now, 0);
        if cost == 0 {
            return rest;
        }
        self.decide(&mut copy, now, cost).with_figures_of(&rest)
    }

    /// Takes a place in line: the cost is taken now and the request goes through after the wait
    /// that the decision states. Denied if that is longer than `max_wait`.
    ///
    /// An algorithm that keeps no line decides as always, without a wait.
    #[inline]
    fn reserve(
        &self,
        state: &mut Self::State,
        now: Tick,
        cost: u64,
        max_wait: Duration,
    ) -> Decision {
        let _ = max_wait;
        self.decide(state, now, cost)
    }

    /// Whether [`reserve`](Self::reserve) gives places in a line.
    #[inline]
    fn keeps_line(&self) -> bool {
        false
    }

    /// Whether [`rescale`](Self::rescale) plans anew for those in line: as many units are before each
    /// of them as before, at the new pace. Else they keep the moments that they were granted.
    #[inline]
    fn replans_line(&self) -> bool {
        false
    }

    /// Takes what is there, at most `most`; answers how much that was.
    fn take_up_to(&self, state: &mut Self::State, now: Tick, most: u64) -> (u64, Decision) {
        let taken = self.peek(state, now, 0).remaining().min(most);
        (taken, self.decide(state, now, taken))
    }

    /// Gives `cost` back, up to a state never used. A waiting request that leaves its line gives
    /// its place back this way, and everyone behind moves up.
    fn refund(&self, state: &mut Self::State, now: Tick, cost: u64);

    /// Counts `cost` as admitted elsewhere, even if that is more than allowed. Answers how long
    /// until the debt this leaves, if any, is paid.
    fn charge(&self, state: &mut Self::State, now: Tick, cost: u64) -> Duration;

    /// Turns a state made by `from` into one of this algorithm.
    fn rescale(&self, state: &mut Self::State, from: &Self, now: Tick, inherit: Inherit);

    /// The moment from which the state decides like a fresh one, so that it may be forgotten.
    fn forgettable_at(&self, state: &Self::State) -> Tick;

    /// How many limits it holds, for [`Decision::policy`].
    #[inline]
    fn limits(&self) -> usize {
        1
    }

    /// The state as one word, if it fits; never `u64::MAX`. A state that fits is kept in a single
    /// atomic.
    #[inline]
    fn pack(&self, state: &Self::State) -> Option<u64> {
        let _ = state;
        None
    }

    /// The state that [`pack`](Self::pack) turned into `word`; any state for any other word.
    #[inline]
    fn unpack(&self, word: u64) -> Self::State {
        let _ = word;
        self.fresh(Tick::ZERO)
    }

    /// The bytes that a state has allocated, beside its own size: what a log holds.
    #[inline]
    fn held_bytes(&self, state: &Self::State) -> usize {
        let _ = state;
        0
    }

    /// The most that [`held_bytes`](Self::held_bytes) answers for any of its states.
    #[inline]
    fn max_heap_bytes(&self) -> usize {
        0
    }

    /// How many words a packed state takes in a table of many keys.
    ///
    /// A table has room for up to four words a key in the slot itself. States that do not pack, or
    /// not into these, stand in memory of their own.
    #[inline]
    fn words(&self) -> usize {
        1
    }

    /// Packs the state into [`words`](Self::words) words, if it fits; the first stays below 2^63.
    /// Words beyond those are left zero.
    #[inline]
    fn pack_into(&self, state: &Self::State, words: &mut [u64]) -> bool {
        match (self.pack(state), words.first_mut()) {
            (Some(packed), Some(word)) if packed < 1 << 63 => {
                *word = packed;
                true
            }
            _ => false,
        }
    }

    /// [`decide`](Self::decide) on the state in `words`. `None` if the state it leaves does not
    /// pack; then the words are of no use. An algorithm whose states are dear to unpack may decide
    /// on them as they are.
    #[expect(
        clippy::inline_always,
        reason = "so that the figures a caller does not read are not computed"
    )]
    #[inline(always)]
    fn decide_packed(&self, words: &mut [u64], now: Tick, cost: u64) -> Option<Decision> {
        let mut state = self.unpack_from(words);
        let decision = self.decide(&mut state, now, cost);
        self.pack_into(&state, words).then_some(decision)
    }

    /// The state that [`pack_into`](Self::pack_into) turned into `words`; any state for any other
    /// words.
    #[inline]
    fn unpack_from(&self, words: &[u64]) -> Self::State {
        self.unpack(words.first().copied().unwrap_or_default())
    }
}

/// What a state keeps when its quota changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Inherit {
    /// What was earned at the old rate stays: windows, meters and lines keep what is used, a token
    /// bucket keeps the tokens it holds, up to its new capacity.
    #[default]
    AsIs,
    /// A bucket stays as full as it was: 3 of 10 become 6 of 20.
    Proportional,
    /// A bucket gains or loses the difference of the capacities: 3 of 10 become 13 of 20.
    Additive,
    /// As a key never seen.
    Reset,
}
