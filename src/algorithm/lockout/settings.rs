//! The settings of a lockout.

use std::time::Duration;

use super::super::fields;
use super::super::fields::Fields;
use super::super::setting::{Range, Setting};
use crate::clock::nanos;
use crate::error::ConfigError;
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
/// attempts        f  s  f  f  x  x     f f x      ...
/// admitted        ✓  ✓  ✓  ✓           ✓ ✓
/// blocked                  |~ block ~|   |~~ 2 * block ~~|   then 4 * block, up to max_block
/// level           0                   1                   2
/// ```
///
/// - The attempt that takes the last of the L places starts a block. If it is refunded while the block
///   lasts, the block ends, because there were fewer than L failures.
/// - Attempts during a block are denied. They neither count nor extend it: `retry_after` is the time
///   until it ends.
/// - After a block the key is on [`parole`](Self::parole): fewer failures start the next block, which
///   lasts twice as long, up to [`max_block`](Self::max_block).
/// - After [`forget`](Self::forget) without a block the key is as good as new.
/// - A [reset](crate::store::Op::Reset) and a [ban](crate::store::Op::Ban) drop the attempts, as the
///   end of a block does. A later refund of one of them changes nothing.
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
/// for _ in 0..5 {
///     assert!(logins.check(1).is_admitted()); // a wrong one
/// }
/// assert_eq!(logins.check(1).retry_after, Some(Duration::from_secs(60)));
/// clock.advance(Duration::from_secs(60));
/// assert!(logins.check(1).is_admitted());
/// assert!(logins.check(1).is_admitted());
/// assert_eq!(logins.check(1).retry_after, Some(Duration::from_secs(120)));
/// ```
///
/// A lockout by account lets anyone lock out the owner of the account. Lock out pairs of account and
/// address instead, and limit the failures of one address over all accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lockout {
    pub(super) quota: Quota,
    /// The length of the first block.
    pub(crate) block: u64,
    max_block: Option<u64>,
    pub(crate) forget: u64,
    parole: Option<u64>,
    pub(crate) clears: bool,
}

/// The default of [`Lockout::max_block`], if the first block is not longer.
const MAX_BLOCK: u64 = 3_600_000_000_000;
const FIRST_BLOCK: u64 = 60_000_000_000;
const FORGET_AFTER: u64 = 86_400_000_000_000;

static BLOCK: Setting = Setting::time("block", Range::Span);
static LONGEST: Setting = Setting::time("max_block", Range::Span);
static FORGET: Setting = Setting::time("forget", Range::Span);
static PAROLE: Setting = Setting::count("parole", Range::Limit);
static ON_SUCCESS: Setting = Setting::one_of("on_success", &["keep", "clear"]);

impl Lockout {
    /// Blocks a key for a minute after the quota's number of failures in any of its periods. A quota
    /// with a burst is refused when a limiter is built.
    pub const fn new(quota: Quota) -> Self {
        Self {
            quota,
            block: FIRST_BLOCK,
            max_block: None,
            forget: FORGET_AFTER,
            parole: None,
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
    /// length. The default is an hour, or the first block if that is longer.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::{Limiter, Lockout, ManualClock, Quota};
    ///
    /// let seconds = Duration::from_secs;
    /// let lockout = Lockout::new(Quota::per_hour(3)).block(seconds(10)).max_block(seconds(25));
    /// let clock = ManualClock::new();
    /// let logins = Limiter::new(lockout.parole(1)).with_clock(clock.clone());
    /// assert!(logins.check(2).is_admitted());
    /// for block in [10, 20, 25, 25] {
    ///     assert!(logins.check(1).is_admitted());
    ///     assert_eq!(logins.check(1).retry_after, Some(seconds(block)));
    ///     clock.advance(seconds(block));
    /// }
    /// ```
    #[must_use]
    pub fn max_block(mut self, max_block: Duration) -> Self {
        self.max_block = Some(nanos(max_block));
        self
    }

    /// How long after the last block the key is as good as new. The default is a day.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::{Limiter, Lockout, ManualClock, Quota};
    ///
    /// let lockout = Lockout::new(Quota::per_minute(3)).forget(Duration::from_secs(3_600));
    /// let clock = ManualClock::new();
    /// let logins = Limiter::new(lockout).with_clock(clock.clone());
    /// assert!(logins.check(3).is_admitted()); // a block of a minute begins
    /// clock.advance(Duration::from_secs(60));
    /// assert_eq!(logins.peek(1).remaining(), 2); // on parole
    /// clock.advance(Duration::from_secs(3_600));
    /// assert_eq!(logins.peek(1).remaining(), 3);
    /// ```
    #[must_use]
    pub fn forget(mut self, forget: Duration) -> Self {
        self.forget = nanos(forget);
        self
    }

    /// How many failures in a period start the next block, after there was one. The default is 2, or 1
    /// if the quota's limit is 1.
    #[must_use]
    pub const fn parole(mut self, parole: u64) -> Self {
        self.parole = Some(parole);
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

    /// How many failures start a block after `level` blocks.
    pub(crate) const fn places(&self, level: u32) -> u64 {
        let limit = self.quota.limit();
        match (level, self.parole) {
            (0, _) => limit,
            (_, Some(parole)) => parole,
            (_, None) if limit == 1 => 1,
            (_, None) => 2,
        }
    }

    pub(crate) const fn longest_block(&self) -> u64 {
        match self.max_block {
            Some(longest) => longest,
            None if self.block > MAX_BLOCK => self.block,
            None => MAX_BLOCK,
        }
    }

    /// The length of the block that follows `level` blocks.
    pub(super) fn block_after(&self, level: u32) -> u64 {
        let factor = 1_u64.checked_shl(level).unwrap_or(u64::MAX);
        self.block.saturating_mul(factor).min(self.longest_block())
    }

    /// Refuses settings that have no meaning.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        fields::check(self)?;
        match self.max_block.filter(|longest| *longest < self.block) {
            None => Ok(()),
            Some(longest) => {
                let block = Duration::from_nanos(self.block);
                Err(LONGEST.refuse(longest, format!("a time from {block:?} to 10 years")))
            }
        }
    }

    /// Lists the settings.
    pub(super) fn list(&mut self, fields: &mut Fields<'_>) {
        fields.tag(9);
        fields.plain_quota(&mut self.quota);
        fields.setting_or(&BLOCK, &mut self.block, FIRST_BLOCK);
        fields.setting(&LONGEST, &mut self.max_block);
        fields.setting_or(&FORGET, &mut self.forget, FORGET_AFTER);
        fields.setting(&PAROLE, &mut self.parole);
        fields.flag(&ON_SUCCESS, &mut self.clears);
    }
}
