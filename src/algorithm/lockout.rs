//! Blocks that grow with repeated failures.

#[cfg(all(test, not(tower_throttle_loom)))]
mod tests;

use std::time::Duration;

use super::fields::Fields;
use super::moments::Moments;
use super::setting::{Range, Setting};
use super::window::decision;
use super::{Algorithm, Capabilities, Cost, GiveBack, Turns};
use crate::clock::{Tick, nanos};
use crate::decision::Decision;
use crate::quota::Quota;

/// Blocks a key after L failures in any W, longer each time.
///
/// Every attempt counts as a failure from its admission on, unless it is refunded: the layer's
/// [`settle`](crate::RateLimitLayer::settle) returns [`Settle::Refund`](crate::Settle::Refund) for an
/// attempt that has not failed. So 100 concurrent guesses are at most L, and a guess whose client
/// hangs up counts.
///
/// ```text
/// 3 failures      |·······W·······|
/// attempts        f  s  f  f  x  x     f f f x      ...
/// admitted        ✓  ✓  ✓  ✓           ✓ ✓ ✓
/// blocked                  |~ block ~|     |~~ 2 * block ~~|   then 4 * block, up to max_block
/// level           0                   1                     2
/// ```
///
/// - The attempt that takes the last of the L places starts a block. If it is refunded while the block
///   lasts, the block ends, because there were fewer than L failures.
/// - Attempts during a block are denied. They neither count nor extend it: `retry_after` is the time
///   until it ends.
/// - After a block it takes L failures again to start the next one, which lasts twice as long, up to
///   [`max_block`](Self::max_block).
/// - After [`forget`](Self::forget) without a block the next one is as short as the first.
/// - A [reset](crate::store::Op::Reset) drops the attempts, as the end of a block does. A later refund of
///   one of them changes nothing.
///
#[cfg_attr(doc, doc = crate::picture::picture!(
    "algorithms/lockout.svg",
    "Lockout and six kinds of traffic: after as many attempts as the limit, all are denied for the time of the block."
))]
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::{Limiter, Lockout, ManualClock, Quota};
///
/// let clock = ManualClock::new();
/// let lockout = Lockout::new(Quota::per(5, Duration::from_secs(900)));
/// let logins = Limiter::new(lockout).with_clock(clock.clone());
/// for _ in 0..10 {
///     assert!(logins.check(1).is_admitted());
///     logins.refund(1); // the right password
/// }
/// for seconds in [60, 120] {
///     for _ in 0..5 {
///         assert!(logins.check(1).is_admitted()); // a wrong one
///     }
///     assert_eq!(logins.check(1).retry_after, Some(Duration::from_secs(seconds)));
///     clock.advance(Duration::from_secs(seconds));
/// }
/// ```
///
/// A lockout by account lets anyone lock out the owner of the account. Lock out pairs of account and
/// address instead, and limit the failures of one address over all accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lockout {
    quota: Quota,
    /// The length of the first block.
    block: u64,
    max_block: u64,
    forget: u64,
    clears: bool,
}

/// The state of a key under [`Lockout`].
///
/// ```text
/// full  = as many failures as the limit, since the newest of them: `seen`
/// block = full, until max(seen + block * 2^level, until), and no longer than the longest
/// after : level + 1, until = that end, no failures
/// level = 0 from until + forget on
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockoutState {
    /// Those that were not refunded, as they were at the newest moment.
    failures: Moments,
    /// How many blocks have ended since the key was forgotten, without the present one.
    level: u64,
    /// When the last of these blocks ended, 0 if there was none.
    until: u64,
}

/// A state at one moment. What has ended by then is left out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Phase {
    /// How many blocks have ended.
    level: u64,
    /// When the last of these ended, or when the present block ends.
    pub(super) until: u64,
    pub(super) is_blocked: bool,
    /// Whether there are as many failures as start a block, which has not ended.
    pub(super) is_full: bool,
    /// How many moments of failures do not count any more.
    gone: usize,
    /// How many failures count.
    used: u64,
}

const MAX_BLOCK: u64 = 3_600_000_000_000;
const FIRST_BLOCK: u64 = 60_000_000_000;
const FORGET_AFTER: u64 = 86_400_000_000_000;

static BLOCK: Setting = Setting::time("block", Range::Span);
static LONGEST: Setting = Setting::time("max_block", Range::Span);
static FORGET: Setting = Setting::time("forget", Range::Span);
static ON_SUCCESS: Setting = Setting::one_of("on_success", &["keep", "clear"]);

impl LockoutState {
    /// Writes down what time has changed.
    fn enter(&mut self, phase: &Phase) {
        if !phase.is_full {
            (self.level, self.until) = (phase.level, phase.until);
            self.failures.drop_oldest(phase.gone);
        }
    }

    /// Counts failures outside a block.
    pub(super) fn add(&mut self, phase: &Phase, now: Tick, failures: u64) {
        self.enter(phase);
        self.failures.add(now.as_nanos(), failures);
    }
}

impl Lockout {
    /// Blocks a key for a minute after the quota's number of failures in any of its periods. A quota
    /// with a burst is refused when a limiter is built.
    pub const fn new(quota: Quota) -> Self {
        Self {
            quota,
            block: FIRST_BLOCK,
            max_block: MAX_BLOCK,
            forget: FORGET_AFTER,
            clears: false,
        }
    }

    /// The length of the first block. The default is a minute.
    #[must_use]
    pub fn block(mut self, block: Duration) -> Self {
        self.block = nanos(block);
        self
    }

    /// The length of the longest block: each block is twice as long as the one before, up to this
    /// length, or as long as the first one if that is longer. The default is an hour.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::{Limiter, Lockout, ManualClock, Quota};
    ///
    /// let seconds = Duration::from_secs;
    /// let lockout = Lockout::new(Quota::per_hour(3)).block(seconds(10)).max_block(seconds(25));
    /// let clock = ManualClock::new();
    /// let logins = Limiter::new(lockout).with_clock(clock.clone());
    /// for block in [10, 20, 25, 25] {
    ///     assert!(logins.check(3).is_admitted());
    ///     assert_eq!(logins.check(1).retry_after, Some(seconds(block)));
    ///     clock.advance(seconds(block));
    /// }
    /// ```
    #[must_use]
    pub fn max_block(mut self, max_block: Duration) -> Self {
        self.max_block = nanos(max_block);
        self
    }

    /// How long after the last block the next one is as short as the first. The default is a day.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::{Limiter, Lockout, ManualClock, Quota};
    ///
    /// let seconds = Duration::from_secs;
    /// let lockout = Lockout::new(Quota::per_minute(3)).forget(seconds(3_600));
    /// let clock = ManualClock::new();
    /// let logins = Limiter::new(lockout).with_clock(clock.clone());
    /// for (block, quiet) in [(60, 60), (120, 120 + 3_600), (60, 0)] {
    ///     assert!(logins.check(3).is_admitted());
    ///     assert_eq!(logins.check(1).retry_after, Some(seconds(block)));
    ///     clock.advance(seconds(quiet));
    /// }
    /// ```
    #[must_use]
    pub fn forget(mut self, forget: Duration) -> Self {
        self.forget = nanos(forget);
        self
    }

    /// Lets [`Settle::Forgive`](crate::Settle::Forgive) free all failures up to that attempt, not only
    /// the attempt itself. A block and the length of the next one stay as they are.
    ///
    /// This is safe only if the key belongs to the client that succeeded, such as a pair of account
    /// and address. If the key is an address, an attacker could log in to an account of its own
    /// between two guesses. And only if `Forgive` is for an attempt that succeeded: if the limit is also
    /// around the `GET` of the form, its 200 must not be one.
    ///
    /// ```
    /// use tower_throttle::store::{Backend, Op};
    /// use tower_throttle::{Local, Lockout, Quota};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tower_throttle::StoreError> {
    /// let logins = Local::new(Lockout::new(Quota::per_hour(5)).clear_on_success());
    /// for _ in 0..4 {
    ///     logins.decide("ann from 192.0.2.7", 1).await?; // a wrong password
    /// }
    /// let right = logins.decide("ann from 192.0.2.7", 1).await?;
    /// logins.apply("ann from 192.0.2.7", Op::Forgive(1, right.receipt())).await?;
    /// assert_eq!(logins.peek("ann from 192.0.2.7", 1).remaining(), 5);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn clear_on_success(mut self) -> Self {
        self.clears = true;
        self
    }

    /// The end of the block that starts with the newest failure.
    fn block_end(&self, state: &LockoutState) -> u64 {
        // After 63 blocks the length of any has reached its maximum.
        let factor = 1 << state.level.min(63);
        let longest = self.max_block.max(self.block);
        let length = self.block.saturating_mul(factor).min(longest);
        let end = state.failures.seen.saturating_add(length);
        end.max(state.until).min(Tick::MAX.as_nanos())
    }

    /// When a key whose blocks ended at `until` is forgotten.
    const fn forgotten_at(&self, level: u64, until: u64) -> u64 {
        match level {
            0 => until,
            _ => until.saturating_add(self.forget),
        }
    }

    pub(super) fn phase(&self, state: &LockoutState, now: Tick) -> Phase {
        let now = now.as_nanos().max(state.failures.seen);
        let is_full = state.failures.cost_from(0) >= self.quota.limit();
        let end = self.block_end(state);
        let (mut level, until, gone) = if !is_full {
            let gone = state.failures.expired(now, self.quota.period_ns());
            (state.level, state.until, gone)
        } else if now < end {
            (state.level, end, 0)
        } else {
            (state.level.saturating_add(1), end, state.failures.len())
        };
        if now >= self.forgotten_at(level, until) {
            level = 0;
        }
        Phase {
            level,
            until,
            is_blocked: now < until,
            is_full: is_full && now < end,
            gone,
            used: state.failures.cost_from(gone),
        }
    }

    /// The largest cost that is admitted.
    const fn remaining(&self, phase: &Phase) -> u64 {
        if phase.is_blocked {
            return 0;
        }
        self.quota.limit().saturating_sub(phase.used)
    }

    /// The time until no block holds and at most `most` failures count.
    fn until(&self, state: &LockoutState, phase: &Phase, most: u64, now: Tick) -> u64 {
        let mut at = if phase.is_blocked { phase.until } else { 0 };
        let excess = phase.used.saturating_sub(most);
        if excess > 0 && !phase.is_full {
            let last = state.failures.completes(phase.gone, excess);
            at = at.max(last.map_or(0, |last| last + self.quota.period_ns()));
        }
        at.saturating_sub(now.as_nanos())
    }

    fn decision(&self, state: &LockoutState, phase: &Phase, now: Tick, cost: u64) -> Decision {
        let limit = self.quota.limit();
        let until = |most| self.until(state, phase, most, now);
        decision(limit, limit - self.remaining(phase), cost, until)
    }

    /// Frees all failures up to that of a success, if that is set.
    pub(super) const fn clears(&self, cost: Cost, why: GiveBack) -> bool {
        self.clears && matches!(why, GiveBack::Forgive) && cost.units > 0
    }
}

impl Algorithm for Lockout {
    type State = LockoutState;

    fn quota(&self) -> Quota {
        self.quota
    }

    #[inline]
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            is_about_one_key: true,
            ..Capabilities::with_turns(Turns::Vary(self.max_block.max(self.block)))
        }
    }

    fn fresh(&self, _now: Tick) -> LockoutState {
        LockoutState::default()
    }

    fn decide(&self, state: &mut LockoutState, now: Tick, cost: u64) -> Decision {
        let phase = self.phase(state, now);
        if cost == 0 || cost > self.remaining(&phase) {
            return self.decision(state, &phase, now, cost);
        }
        state.add(&phase, now, cost);
        self.peek(state, now, 0)
    }

    fn peek(&self, state: &LockoutState, now: Tick, cost: u64) -> Decision {
        self.decision(state, &self.phase(state, now), now, cost)
    }

    fn refund(&self, state: &mut LockoutState, now: Tick, cost: Cost, why: GiveBack) {
        // During a block no failure expires, so a late success ends it as well.
        let gone = self.phase(state, now).gone;
        let units = if self.clears(cost, why) {
            u64::MAX
        } else {
            cost.units
        };
        state.failures.take_back(gone, cost.at.as_nanos(), units);
    }

    fn charge(&self, state: &mut LockoutState, now: Tick, cost: u64) -> Duration {
        let phase = self.phase(state, now);
        let cost = cost.min(Tick::MAX.as_nanos() - phase.used);
        if cost > 0 {
            // A failure during a block counts without extending it.
            let at = if phase.is_full { Tick::ZERO } else { now };
            state.add(&phase, at, cost);
        }
        // How long until a block ends that has more failures than it takes to start it.
        let phase = self.phase(state, now);
        let is_in_debt = phase.used > self.quota.limit();
        let left = phase.until.saturating_sub(now.as_nanos());
        Duration::from_nanos(if is_in_debt { left } else { 0 })
    }

    /// What has ended under the old settings must not return under others.
    fn rescale(&self, state: &mut LockoutState, from: &Self, now: Tick) {
        state.enter(&from.phase(state, now));
    }

    fn forgettable_at(&self, state: &LockoutState) -> Tick {
        if state.failures.cost_from(0) >= self.quota.limit() {
            return Tick::from_nanos(self.forgotten_at(1, self.block_end(state)));
        }
        // What has expired by the newest moment is gone, so an older moment must not find a fresh key.
        let expired = match state.failures.seen {
            0 if state.failures.len() == 0 => 0,
            seen => seen + self.quota.period_ns(),
        };
        Tick::from_nanos(expired.max(self.forgotten_at(state.level, state.until)))
    }

    fn settings_fields(&mut self, fields: &mut Fields<'_>) {
        fields.tag(9);
        fields.plain_quota(&mut self.quota);
        fields.setting_or(&BLOCK, &mut self.block, FIRST_BLOCK);
        fields.setting_or(&LONGEST, &mut self.max_block, MAX_BLOCK);
        fields.setting_or(&FORGET, &mut self.forget, FORGET_AFTER);
        fields.flag(&ON_SUCCESS, &mut self.clears);
    }

    fn state_fields(&self, state: &mut LockoutState, fields: &mut Fields<'_>) {
        fields.u64(&mut state.level);
        fields.moment(&mut state.until);
        state.failures.list(fields);
    }
}
