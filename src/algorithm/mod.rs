//! Algorithms: pure transitions of the state of one key.
//!
//! An algorithm is a small plain value that says what happens to the state of one key. It has no
//! clock, no lock and does no I/O; the present moment is an argument. A [`Limiter`](crate::Limiter)
//! keeps one state, a store such as [`Local`](crate::Local) keeps one for each key.
//!
//! # The laws
//!
//! 1. [`fresh`](Algorithm::fresh) is the state of a key never seen.
//! 2. A denied request changes nothing, unless a [`DenialLockout`] counts it. A cost of zero is admitted
//!    and changes nothing.
//! 3. Every operation denies a cost above the capacity, without `retry_after`. [`WarmUp`] has no
//!    capacity: it accepts a large cost in its turn. Later requests wait for it.
//! 4. `retry_after` is exact: without other traffic the same request passes then, and is denied one
//!    nanosecond earlier.
//! 5. A moment older than the state admits no more than the newest one would.
//! 6. From [`forgettable_at`](Algorithm::forgettable_at) on the state decides like a fresh one.
//! 7. Rounding errors do not add up: the remainder of a division is carried in the state.
//!
//! # The algorithms and their promises
//!
//! L per period W, burst B, t = W/L. A(T) is the cost admitted in any interval of length T. For
//! buckets the interval includes both ends, for windows only the first one.
//!
//! | algorithm | promise |
//! |---|---|
//! | [`FixedWindow`] | at most L in each window, so at most 2L in any W |
//! | [`CalendarWindow`] | at most L in each day, week or month of the calendar |
//! | [`SlidingLog`] | A(W) <= L in every W |
//! | [`SlidingWindow`] | A(W) <= 2L; smooth traffic within one of the log |
//! | [`SlidingGrid`] | at most L in any W(1 - 1/G); strict: in any W |
//! | [`TokenBucket`] | A(T) <= B + T/t |
//! | [`LeakyBucket`] | A(T) <= B + T/t; with a burst of 1 requests are at least t apart |
//! | [`WarmUp`] | as a queue whose rate rises from L/cold to L over the warm-up time |
//! | [`Lockout`] | at most L kept until each block, the first of B and each twice as long: A(T) <= L(1 + T/W + T/B) |
//! | [`DenialLockout`] | that of the limit whose denials it counts; nothing for B from the Lth denial within W on |
//! | tuples, [`All`] | each part's own |
//!
//! # What they do to traffic
//!
//! Six kinds of traffic, and a limit of 10 per second. A column is what came in a tenth of a second. The
//! curve below is what was admitted within the last second.
//!
#![cfg_attr(doc, doc = crate::picture::picture!(
    "burst.svg",
    "Eight algorithms and the same burst at the edge of a window: only fixed windows admit twice the limit within a second."
))]
//!
#![cfg_attr(doc, doc = crate::picture::picture!(
    "steady.svg",
    "Eight algorithms and 20 requests per second: a window and a bucket admit 10 per second in the end, a lockout blocks the client."
))]
//!
#![cfg_attr(doc, doc = crate::picture::picture!(
    "on_off.svg",
    "Eight algorithms and three bursts of 20 requests in half a second."
))]
//!
#![cfg_attr(doc, doc = crate::picture::picture!(
    "ramp.svg",
    "Eight algorithms and a rate that rises from 0 to 30 requests per second."
))]
//!
#![cfg_attr(doc, doc = crate::picture::picture!(
    "two_clients.svg",
    "Eight algorithms and two clients: the one that stays within its limit is never denied."
))]
//!
#![cfg_attr(doc, doc = crate::picture::picture!(
    "retry_storm.svg",
    "Eight algorithms and 30 clients that try again 300 ms after each denial."
))]

mod any;
mod bucket;
#[cfg_attr(not(feature = "calendar"), path = "calendar_disabled.rs")]
mod calendar;
mod calendar_window;
mod capabilities;
mod combined;
mod denial_lockout;
mod fields;
mod fixed_window;
#[cfg(feature = "governor")]
mod gcra;
mod interval;
mod kernel;
mod lockout;
mod moments;
mod refund;
mod setting;
mod sliding_grid;
mod sliding_log;
mod sliding_window;
mod token_bucket;
mod turns;
mod warm_up;
mod window;

#[cfg(feature = "cas")]
pub(crate) use self::fields::{kernels, layout_of_settings, state_from_bytes};
#[cfg(feature = "governor")]
pub use self::gcra::Gcra;
pub use self::{
    any::{AnyAlgorithm, AnyState},
    calendar_window::CalendarWindow,
    capabilities::Capabilities,
    combined::{All, IntoAlgorithm, Parts},
    denial_lockout::{DenialLockout, DenialLockoutState},
    fields::{Fields, share_of},
    fixed_window::FixedWindow,
    interval::ExactNanos,
    lockout::{Lockout, LockoutState},
    refund::{Cost, GiveBack},
    sliding_grid::{SlidingGrid, SlidingGridState},
    sliding_log::{SlidingLog, SlidingLogState},
    sliding_window::{SlidingWindow, SlidingWindowState},
    token_bucket::{LeakyBucket, TokenBucket},
    warm_up::{WarmUp, WarmUpState},
    window::WindowState,
};
pub(crate) use self::{
    calendar::{zone_name, zone_number},
    combined::merge,
    fields::{
        Moved, read_moved_state, set, settings, settings_from_bytes, settings_to_bytes,
        state_to_bytes,
    },
    kernel::{Cells, Division, Kernel, Level},
    setting::{MAX_WAIT, QUEUE, Setting, Takes},
    turns::Turns,
};

use std::{fmt, time::Duration};

use crate::clock::Tick;
pub use crate::decision::LineCosts;
use crate::decision::{Decision, Verdict};
use crate::error::ConfigError;
use crate::quota::Quota;

/// Decides over the state of one key.
///
/// The provided algorithms need nothing more than their constructors. An algorithm of your own
/// implements the five required methods and then works in a [`Limiter`](crate::Limiter), a
/// [`Local`](crate::Local) table and a layer; [Extending](crate::guide::extending) shows one in full.
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
    /// The state of one key.
    type State: Clone + fmt::Debug + Send + Sync + 'static;

    /// The quota it was made with.
    fn quota(&self) -> Quota;

    /// What others ask about its settings.
    #[inline]
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    /// The same algorithm for another quota. By default it is the one whose listed quota is that. An algorithm that
    /// implements this implements [`rescale`](Self::rescale) too.
    ///
    /// # Errors
    /// If it has no such quota. A set of several limits never has.
    fn with_quota(&self, quota: Quota) -> Result<Self, ConfigError> {
        fields::with_quota(self, quota)
    }

    /// Checks the settings. Limiters call it when they are built.
    ///
    /// # Errors
    /// If a setting is out of range or has no effect.
    fn validate(&self) -> Result<(), ConfigError> {
        fields::check(self)
    }

    /// Lists the settings, which may be replaced by what was read. Bytes are equal only for equal
    /// settings. Stores on other machines keep only states of algorithms that list their fields.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::algorithm::{Algorithm, Cost, Fields, GiveBack};
    /// use tower_throttle::{Decision, Quota, Verdict, clock::Tick};
    ///
    /// /// Admits everything and counts it.
    /// #[derive(Clone, Debug)]
    /// struct Meter(Quota);
    ///
    /// impl Algorithm for Meter {
    ///     type State = u64;
    ///
    ///     fn quota(&self) -> Quota {
    ///         self.0
    ///     }
    ///     fn fresh(&self, _: Tick) -> u64 {
    ///         0
    ///     }
    ///     fn decide(&self, count: &mut u64, _: Tick, cost: u64) -> Decision {
    ///         *count = count.saturating_add(cost);
    ///         Decision::new(Verdict::Admit, self.0.limit(), 1, None, 0)
    ///     }
    ///     fn refund(&self, count: &mut u64, _: Tick, cost: Cost, _: GiveBack) {
    ///         *count = count.saturating_sub(cost.units);
    ///     }
    ///     fn charge(&self, count: &mut u64, _: Tick, cost: u64) -> Duration {
    ///         *count = count.saturating_add(cost);
    ///         Duration::ZERO
    ///     }
    ///     fn settings_fields(&mut self, fields: &mut Fields<'_>) {
    ///         fields.tag(1_000); // tells it from other algorithms
    ///         fields.quota(&mut self.0);
    ///     }
    ///     fn state_fields(&self, count: &mut u64, fields: &mut Fields<'_>) {
    ///         fields.u64(count);
    ///     }
    /// }
    ///
    /// let meter = Meter(Quota::per_second(10));
    /// let other = meter.with_quota(Quota::per_day(1)).expect("its quota is listed");
    /// assert_eq!(other.0, Quota::per_day(1));
    /// ```
    fn settings_fields(&mut self, fields: &mut Fields<'_>) {
        fields.fail();
    }

    /// Lists the fields of a state, which may be replaced by what was read. Moments in it are as the
    /// clock counts them.
    fn state_fields(&self, state: &mut Self::State, fields: &mut Fields<'_>) {
        let _ = state;
        fields.fail();
    }

    /// The state of a key first seen at `now`.
    fn fresh(&self, now: Tick) -> Self::State;

    /// Admits a request of `cost` and takes the cost, or denies it. It lets none wait: a turn is booked by
    /// [`reserve`].
    fn decide(&self, state: &mut Self::State, now: Tick, cost: u64) -> Decision;

    /// Decides on a request that has waited for the moment `at`, which was planned, and rounded up to a whole
    /// nanosecond. The fraction is not lost, so that a line that asks again and again is as fast as the limit.
    ///
    /// ```
    /// use tower_throttle::algorithm::Algorithm;
    /// use tower_throttle::{Quota, TokenBucket, clock::Tick};
    ///
    /// // A third of a second each.
    /// let bucket = TokenBucket::new(Quota::per_second(3).burst(1));
    /// let mut state = bucket.fresh(Tick::ZERO);
    /// for turn in [0, 333_333_334, 666_666_667, 1_000_000_000] {
    ///     assert!(bucket.take_turn(&mut state, Tick::from_nanos(turn), 1).is_admitted());
    /// }
    /// ```
    fn take_turn(&self, state: &mut Self::State, at: Tick, cost: u64) -> Decision {
        self.decide(state, at, cost)
    }

    /// The decision that [`decide`](Self::decide) would return, taking nothing.
    ///
    /// `remaining` and `reset_after` are those of the state as it is.
    #[inline]
    fn peek(&self, state: &Self::State, now: Tick, cost: u64) -> Decision {
        let mut copy = state.clone();
        let rest = self.decide(&mut copy, now, 0);
        if cost == 0 {
            return rest;
        }
        self.decide(&mut copy, now, cost).with_figures_of(&rest)
    }

    /// How long after `at` a request takes its cost, if others go before it: at least and at most. `None` if it never
    /// can.
    ///
    /// Both are the same for buckets without steps, and for windows and logs if all costs are equal and fill the
    /// limit, as costs of 1 do. A request goes neither before the first nor after the second. Of an algorithm of your own, that holds if a
    /// request goes within a period of the one before it.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::algorithm::{Algorithm, LineCosts};
    /// use tower_throttle::{FixedWindow, Quota, clock::Tick};
    ///
    /// let window = FixedWindow::new(Quota::per_second(10));
    /// let state = window.fresh(Tick::ZERO);
    /// let costs = LineCosts { ahead: 25, own: 1, are_equal: true };
    /// let wait = window.expected_wait(&state, Tick::ZERO, costs);
    /// assert_eq!(wait, Some([Duration::from_secs(2); 2]));
    /// ```
    fn expected_wait(
        &self,
        state: &Self::State,
        at: Tick,
        costs: LineCosts,
    ) -> Option<[Duration; 2]> {
        turns::expected_wait(self, state, at, costs)
    }

    /// Gives back what is still taken of `cost`.
    ///
    /// What has been refilled or has expired since it was taken is not returned again, so the costs that
    /// are kept stay within the promise.
    fn refund(&self, state: &mut Self::State, now: Tick, cost: Cost, why: GiveBack);

    /// Counts `cost` as admitted, even if that exceeds the limit. Returns how long until the
    /// resulting debt, if any, is paid.
    fn charge(&self, state: &mut Self::State, now: Tick, cost: u64) -> Duration;

    /// How much of the limit is used, and of a set the most of one limit: what another kind of limit
    /// [begins with](Self::begin_with). A set overrides it, as its decisions tell the figures of one limit.
    ///
    /// ```
    /// use tower_throttle::{FixedWindow, Quota, TokenBucket, clock::Tick};
    /// use tower_throttle::algorithm::{Algorithm, IntoAlgorithm};
    ///
    /// let [now, later] = [0, 2_000_000_000].map(Tick::from_nanos);
    /// let both = (FixedWindow::new(Quota::per_day(1_000)), TokenBucket::new(Quota::per_second(10)));
    /// let both = both.into_algorithm();
    /// let mut state = both.fresh(now);
    /// assert!(both.decide(&mut state, now, 8).is_admitted());
    /// assert_eq!(both.units_used(&state, later), 8, "of the window");
    /// ```
    fn units_used(&self, state: &Self::State, now: Tick) -> u64 {
        let looked = self.peek(state, now, 0);
        looked.limit.saturating_sub(looked.remaining())
    }

    /// Charges a fresh state with what was used of another limit, at most with all that it has. In a set each limit is
    /// charged so.
    ///
    /// ```
    /// use tower_throttle::{FixedWindow, Quota, TokenBucket, clock::Tick};
    /// use tower_throttle::algorithm::{Algorithm, IntoAlgorithm};
    ///
    /// let [now, later] = [0, 2_000_000_000].map(Tick::from_nanos);
    /// let both = (FixedWindow::new(Quota::per_day(1_000)), TokenBucket::new(Quota::per_second(10)));
    /// let both = both.into_algorithm();
    /// let mut state = both.fresh(now);
    /// both.begin_with(&mut state, now, 995);
    /// assert_eq!(both.peek(&state, now, 1).remaining(), 0, "of the bucket");
    /// assert_eq!(both.peek(&state, later, 1).remaining(), 5, "of the window");
    /// ```
    fn begin_with(&self, state: &mut Self::State, now: Tick, used: u64) {
        let left = self.peek(state, now, 0).remaining();
        self.charge(state, now, used.min(left));
    }

    /// Turns a state made by `from` into a state of this algorithm: what was used stays used.
    ///
    /// A state says what was used and when, and the settings say how much may be used. So by default it
    /// stays as it is: another limit only compares with another number. A bucket is converted. At a much
    /// lower rate what was used of it could take years to come back, so it is unused again when it would have been
    /// before, or at the latest when ten empty ones would be.
    ///
    /// If `now` is older than the state, a bucket refills at the new rate from `now` on: its state does not say when it
    /// was written. A window of another length begins at `now` then, and may end too early.
    fn rescale(&self, state: &mut Self::State, from: &Self, now: Tick) {
        let _ = (state, from, now);
    }

    /// The moment from which the state decides like a fresh one, so that it may be dropped.
    ///
    /// By default that is never, so a table fills with keys that are not used any more.
    fn forgettable_at(&self, state: &Self::State) -> Tick {
        let _ = state;
        Tick::MAX
    }

    /// The quotas of all its limits, in the order in which [`Decision::policy`] counts them.
    ///
    /// ```
    /// use tower_throttle::algorithm::{Algorithm, IntoAlgorithm};
    /// use tower_throttle::{FixedWindow, Quota, TokenBucket};
    ///
    /// let both = (TokenBucket::new(Quota::per_second(10)), FixedWindow::new(Quota::per_day(1_000)));
    /// let both = both.into_algorithm();
    /// assert_eq!(both.quotas(), [Quota::per_second(10), Quota::per_day(1_000)]);
    /// ```
    fn quotas(&self) -> Vec<Quota> {
        vec![self.quota()]
    }

    /// The decision on a request that may [book](reserve) a turn which comes within `max_wait`, taking nothing.
    ///
    /// By default the turn is when the cost would be admitted, if the algorithm [books
    /// turns](reserve), and otherwise there is none.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::algorithm::Algorithm;
    /// use tower_throttle::{LeakyBucket, Quota, Verdict, clock::Tick};
    ///
    /// let bucket = LeakyBucket::new(Quota::per_second(1).burst(1));
    /// let mut state = bucket.fresh(Tick::ZERO);
    /// let second = Duration::from_secs(1);
    /// assert!(bucket.decide(&mut state, Tick::ZERO, 1).is_admitted());
    /// let next = bucket.peek_within(&state, Tick::ZERO, 1, second);
    /// assert_eq!(next.verdict, Verdict::Wait(second));
    /// ```
    #[inline]
    fn peek_within(
        &self,
        state: &Self::State,
        now: Tick,
        cost: u64,
        max_wait: Duration,
    ) -> Decision {
        let mut looked = self.peek(state, now, cost);
        if self.capabilities().books_turns() && looked.is_denied() {
            match looked.retry_after {
                Some(wait) if wait <= max_wait => {
                    (looked.verdict, looked.retry_after) = (Verdict::Wait(wait), None);
                }
                wait => looked.retry_after = wait.map(|wait| wait.saturating_sub(max_wait)),
            }
        }
        looked
    }
}

/// A fresh state of which so much is used: at most all.
fn used_as<A: Algorithm>(algorithm: &A, used: u64, now: Tick) -> A::State {
    let mut state = algorithm.fresh(now);
    algorithm.begin_with(&mut state, now, used);
    state
}

/// Takes `cost` now, for a request that goes after the wait in the decision: it books its turn, which comes within
/// `max_wait`. Without a turn it decides as [`decide`](Algorithm::decide) does.
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::{Quota, TokenBucket, Verdict, algorithm, algorithm::Algorithm, clock::Tick};
///
/// let bucket = TokenBucket::new(Quota::per_second(1));
/// let mut state = bucket.fresh(Tick::ZERO);
/// let second = Duration::from_secs(1);
/// let waits = [(); 3].map(|()| algorithm::reserve(&bucket, &mut state, Tick::ZERO, 1, second).verdict);
/// assert_eq!(waits, [Verdict::Admit, Verdict::Wait(second), Verdict::Deny]);
/// ```
pub fn reserve<A: Algorithm>(
    algorithm: &A,
    state: &mut A::State,
    now: Tick,
    cost: u64,
    max_wait: Duration,
) -> Decision {
    let looked = algorithm.peek_within(state, now, cost, max_wait);
    match looked.verdict {
        Verdict::Wait(_) => {
            algorithm.charge(state, now, cost);
            let rest = algorithm.peek(state, now, 0);
            Decision {
                verdict: looked.verdict,
                ..rest
            }
        }
        Verdict::Deny if algorithm.capabilities().counts_denials => {
            let _ = algorithm.decide(state, now, cost);
            algorithm.peek_within(state, now, cost, max_wait)
        }
        Verdict::Deny => looked,
        Verdict::Admit => algorithm.decide(state, now, cost),
    }
}
