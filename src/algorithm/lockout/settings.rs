//! The settings of a lockout.

use std::time::Duration;

use super::super::fields::Fields;
use super::super::settings::refuse_burst;
use crate::clock::{Tick, nanos};
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
///     assert!(logins.check().is_admitted());
///     logins.refund(1); // the right password
/// }
/// for _ in 0..5 {
///     assert!(logins.check().is_admitted()); // a wrong one
/// }
/// assert_eq!(logins.check().retry_after, Some(Duration::from_secs(60)));
/// clock.advance(Duration::from_secs(60));
/// assert!(logins.check().is_admitted());
/// assert!(logins.check().is_admitted());
/// assert_eq!(logins.check().retry_after, Some(Duration::from_secs(120)));
/// ```
///
/// A lockout by account lets anyone lock out the owner of the account. Lock out pairs of account and
/// address instead, and limit the failures of one address over all accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lockout {
    pub(super) quota: Quota,
    /// The length of the first block.
    block: u64,
    max_block: Option<u64>,
    pub(super) forget: u64,
    parole: Option<u64>,
    pub(super) clears: bool,
}

/// The default of [`Lockout::max_block`], if the first block is not longer.
const MAX_BLOCK: u64 = 3_600_000_000_000;

/// Half of the largest moment, so that sums of times do not overflow.
const MAX_SPAN: u64 = Tick::MAX.as_nanos() >> 1;

impl Lockout {
    /// Blocks a key for a minute after the quota's number of failures in any of its periods. A quota
    /// with a burst is refused when a limiter is built.
    pub const fn new(quota: Quota) -> Self {
        Self {
            quota,
            block: 60_000_000_000,
            max_block: None,
            forget: 86_400_000_000_000,
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
    /// assert!(logins.check_n(2).is_admitted());
    /// for block in [10, 20, 25, 25] {
    ///     assert!(logins.check().is_admitted());
    ///     assert_eq!(logins.check().retry_after, Some(seconds(block)));
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
    /// assert!(logins.check_n(3).is_admitted()); // a block of a minute begins
    /// clock.advance(Duration::from_secs(60));
    /// assert_eq!(logins.peek().remaining(), 2); // on parole
    /// clock.advance(Duration::from_secs(3_600));
    /// assert_eq!(logins.peek().remaining(), 3);
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
    /// assert_eq!(logins.peek("ann from 192.0.2.7").remaining(), 5);
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

    const fn longest_block(&self) -> u64 {
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
        Self::check_span("block", self.block, 1)?;
        Self::check_span("max_block", self.longest_block(), self.block)?;
        Self::check_span("forget", self.forget, 1)?;
        if let Some(parole) = self.parole {
            if parole == 0 || parole > self.quota.limit() {
                return Err(ConfigError::out_of_range(
                    "parole",
                    parole,
                    format!("a number from 1 to the limit, {}", self.quota.limit()),
                ));
            }
        }
        refuse_burst(&self.quota)
    }

    fn check_span(field: &'static str, span: u64, least: u64) -> Result<(), ConfigError> {
        if (least..=MAX_SPAN).contains(&span) {
            return Ok(());
        }
        let least = Duration::from_nanos(least);
        Err(ConfigError::out_of_range(
            field,
            format!("{:?}", Duration::from_nanos(span)),
            format!("a time from {least:?} to 146 years"),
        ))
    }

    /// Lists the settings.
    pub(super) fn list(&mut self, fields: &mut Fields<'_>) {
        fields.tag(9);
        fields.quota(&mut self.quota);
        fields.moment(&mut self.block);
        fields.option(&mut self.max_block);
        fields.moment(&mut self.forget);
        fields.option(&mut self.parole);
        fields.bool(&mut self.clears);
        let is_valid = self.check().is_ok();
        fields.require(is_valid);
    }
}

/// For the stores that decide on a server.
#[cfg(feature = "redis")]
impl Lockout {
    /// The first block, the longest one, the time to forget, and the failures on parole.
    pub(crate) const fn script_params(&self) -> [u64; 4] {
        [
            self.block,
            self.longest_block(),
            self.forget,
            self.places(1),
        ]
    }

    pub(crate) const fn clears_on_success(&self) -> bool {
        self.clears
    }
}
