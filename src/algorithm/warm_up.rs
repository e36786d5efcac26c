//! A rate that rises while it is used and falls while it rests.

use std::time::Duration;

use super::{
    Algorithm, Inherit,
    interval::{ExactNanos, Interval, gcd, low},
    packing, u256,
};
use crate::clock::{Tick, nanos};
use crate::decision::{Decision, Verdict};
use crate::error::ConfigError;
use crate::quota::Quota;

/// From a cold start at L/cold per W up to L per W, as a cache fills or a pool connects.
///
/// Unused time is stored as permits, but permits above a threshold are *dearer*: they are what a
/// rested, cold service can not serve fast. With s = W/L, the interval of a warm service, f the
/// [cold factor](Self::cold_factor) and w the warm-up time:
///
/// ```text
/// interval
///   f*s |                       /    threshold = w / 2s
///       |                     / |    full      = threshold + 2w / (s + f*s)
///     s |-------------------/   |    the triangle is what a whole warm-up costs more
///       +-------------------+---+--  stored permits
///       0           threshold   full
/// ```
///
/// A request of cost n takes n stored permits and costs the area below the line over them. It goes
/// as soon as the line is free and the *next* one waits for its cost, so the first request of a
/// cold service goes at once. While nobody asks, permits come back so that an empty store is full
/// after w.
///
/// Without a [`queue`](Self::queue) a request that would have to wait is denied.
///
/// # Arithmetic
/// With a(p) the permits above the threshold of a store of p, a cost is
/// `n * s + extra(a(before)) - extra(a(after))`, where `extra(a)` is the area of the triangle up to
/// a, in whole nanoseconds rounded down. The first part is exact; the second one telescopes, so
/// what rounding leaves over in one request comes back in the next.
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::{Limiter, ManualClock, Quota, Verdict, WarmUp};
///
/// let policy = WarmUp::new(Quota::per_second(2), Duration::from_secs(4)).queue(10);
/// let limiter = Limiter::with_clock(policy, ManualClock::new());
/// assert_eq!(limiter.check().verdict, Verdict::Admit);
/// assert_eq!(limiter.check().verdict, Verdict::Wait(Duration::from_millis(1_375)));
/// assert_eq!(limiter.check().verdict, Verdict::Wait(Duration::from_millis(2_500)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WarmUp {
    quota: Quota,
    pace: Interval,
    /// How long from cold to warm.
    ramp: u64,
    /// How many times slower than warm a cold key is.
    cold: u64,
    /// How many units may wait; `None` denies instead.
    line: Option<u64>,
    max_wait: u64,
    /// The longest wait that those two allow.
    longest_wait: ExactNanos,
    store: StoredPermits,
    widths: FieldWidths,
}

/// The store of permits, counted in units that make every figure a whole number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StoredPermits {
    /// Units that make a permit.
    permit: u128,
    /// Units that come back in a nanosecond.
    refill: u128,
    threshold: u128,
    full: u128,
    /// The area of the triangle is the square of its permits times the first number, divided by
    /// the second, in lowest terms; `None` where that is beyond 128 bits.
    slope: Option<(u128, u128)>,
}

/// The bits of a state's parts in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FieldWidths {
    /// Whole nanoseconds, and parts of one.
    ns: u32,
    part: u32,
    /// Units in store: the lower 64 bits, and those above.
    lowest: u32,
    high: u32,
    words: usize,
}

/// What [`WarmUp`] remembers of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WarmUpState {
    /// Units in store when the line was last free.
    stored: u128,
    /// When the line is free again.
    free: ExactNanos,
}

const WARM_UP_RANGE: &str =
    "a time from 1 ns to 146 years whose product with the limit stays below 2^76";

impl WarmUp {
    /// Warms up over `warm_up` to the quota's rate, three times slower when cold. The burst is not
    /// used.
    ///
    /// # Panics
    /// If `warm_up` is zero or absurdly long; [`try_new`](Self::try_new) answers with an error
    /// instead.
    #[track_caller]
    pub fn new(quota: Quota, warm_up: Duration) -> Self {
        Self::try_new(quota, warm_up).unwrap_or_else(|error| panic!("{error}"))
    }

    /// As [`new`](Self::new), for values that come from elsewhere.
    ///
    /// # Errors
    /// If `warm_up` is zero or absurdly long.
    pub fn try_new(quota: Quota, warm_up: Duration) -> Result<Self, ConfigError> {
        Self::build(quota, nanos(warm_up), 3)
    }

    /// How many times slower than warm a cold key is.
    ///
    /// # Panics
    /// If `factor` is 0 or above 1,000; [`try_cold_factor`](Self::try_cold_factor) answers with an
    /// error instead.
    #[must_use]
    #[track_caller]
    pub fn cold_factor(self, factor: u64) -> Self {
        self.try_cold_factor(factor)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// As [`cold_factor`](Self::cold_factor), for values that come from elsewhere.
    ///
    /// # Errors
    /// If `factor` is 0 or above 1,000.
    pub fn try_cold_factor(self, factor: u64) -> Result<Self, ConfigError> {
        Ok(Self::build(self.quota, self.ramp, factor)?.with_queue(self.line, self.max_wait))
    }

    /// Lets requests wait for their turn, at most `units` of cost at a time when warm (and never
    /// longer than those take when warm).
    #[must_use]
    pub const fn queue(self, units: u64) -> Self {
        self.with_queue(Some(units), self.max_wait)
    }

    /// Denies at once a request whose turn would come later than this.
    #[must_use]
    pub fn max_wait(self, max_wait: Duration) -> Self {
        self.with_queue(self.line, nanos(max_wait))
    }

    const fn with_queue(self, line: Option<u64>, max_wait: u64) -> Self {
        let longest_wait = match line {
            None => ExactNanos::ZERO,
            Some(units) => {
                let wait = self.pace.span(units);
                if wait.ns < max_wait {
                    wait
                } else {
                    ExactNanos {
                        ns: max_wait,
                        part: 0,
                    }
                }
            }
        };
        Self {
            line,
            max_wait,
            longest_wait,
            ..self
        }
    }

    fn build(quota: Quota, warm_up: u64, cold: u64) -> Result<Self, ConfigError> {
        if !(1..=1_000).contains(&cold) {
            return Err(ConfigError::out_of_range(
                "cold_factor",
                cold,
                "a number from 1 to 1000",
            ));
        }
        let pace = Interval::new(&quota);
        let out_of_range =
            || ConfigError::out_of_range("warm_up", format!("{warm_up} ns"), WARM_UP_RANGE);
        // num below 2^63, den below 2^63, warm_up at most 2^62, cold at most 2^10; their product
        // below 2^86 keeps the square of a store, times a time, within 256 bits.
        let (num, den) = (u128::from(pace.num()), u128::from(pace.den()));
        let (warm, factor) = (u128::from(warm_up), u128::from(cold));
        let area = warm * den;
        if warm_up == 0 || warm_up > 1 << 62 || area >= 1 << 76 {
            return Err(out_of_range());
        }
        let figures = StoredPermits {
            permit: 2 * num * (1 + factor),
            refill: den * (5 + factor),
            threshold: area * (1 + factor),
            full: area * (5 + factor),
            slope: None,
        };
        let common = [figures.refill, figures.threshold, figures.full]
            .into_iter()
            .fold(figures.permit, gcd);
        Ok(Self {
            quota,
            pace,
            ramp: warm_up,
            cold,
            line: None,
            max_wait: u64::MAX,
            longest_wait: ExactNanos::ZERO,
            widths: FieldWidths::of(&pace, figures.full / common),
            store: StoredPermits {
                permit: figures.permit / common,
                refill: figures.refill / common,
                threshold: figures.threshold / common,
                full: figures.full / common,
                slope: slope(warm, factor, (figures.full - figures.threshold) / common),
            },
        })
    }

    /// The state with the idle time up to `now` stored.
    #[inline]
    fn rested(&self, state: WarmUpState, now: Tick) -> WarmUpState {
        let present = ExactNanos::at(now);
        if state.free >= present {
            return state;
        }
        // The line was free at a whole nanosecond or between two of them; the part of a nanosecond
        // that had begun is not stored.
        let idle = now.as_nanos() - state.free.ceil();
        WarmUpState {
            stored: u128::from(idle)
                .saturating_mul(self.store.refill)
                .saturating_add(state.stored)
                .min(self.store.full),
            free: present,
        }
    }

    /// The area of the triangle over `stored`, in whole nanoseconds.
    #[inline]
    fn extra(&self, stored: u128) -> u64 {
        let above = stored.saturating_sub(self.store.threshold);
        if above == 0 || self.cold == 1 {
            return 0;
        }
        let square = above.checked_mul(above);
        let short = self.store.slope.and_then(|(rise, run)| {
            let area = square?.checked_mul(rise)? / run;
            Some(u64::try_from(area).unwrap_or(u64::MAX))
        });
        short.unwrap_or_else(|| self.cold_penalty_u256(above))
    }

    #[cold]
    fn cold_penalty_u256(&self, above: u128) -> u64 {
        let most = self.store.full - self.store.threshold;
        let factor = u128::from(self.cold);
        u256::floor_ratio(
            &[(factor - 1) * u128::from(self.ramp), above, above],
            &[factor + 1, most, most],
        )
        .map_or(u64::MAX, low)
    }

    /// Takes `cost` from a rested state.
    #[inline(never)]
    fn consume(&self, state: WarmUpState, cost: u64) -> WarmUpState {
        let taken = u128::from(cost).saturating_mul(self.store.permit);
        let stored = state.stored.saturating_sub(taken);
        let extra = ExactNanos {
            ns: self.extra(state.stored) - self.extra(stored),
            part: 0,
        };
        let base = self.pace.add(state.free, self.pace.span(cost));
        WarmUpState {
            stored,
            free: self.pace.add(base, extra),
        }
    }

    /// Takes `cost` if its turn comes within `most`.
    #[expect(clippy::inline_always, reason = "as for `decide_packed`")]
    #[inline(always)]
    fn line_up(&self, state: &mut WarmUpState, now: Tick, cost: u64, most: ExactNanos) -> Decision {
        let rested = self.rested(*state, now);
        let wait = self.pace.sub(rested.free, ExactNanos::at(now));
        if wait > most {
            let retry_after = self.pace.sub(wait, most).ceil();
            return self.answer(Verdict::Deny, rested, now, Some(retry_after));
        }
        let charged = self.consume(rested, cost);
        if cost > 0 {
            *state = charged;
        }
        self.answer(Verdict::after(wait.ceil()), charged, now, None)
    }

    #[inline]
    fn answer(
        &self,
        verdict: Verdict,
        state: WarmUpState,
        now: Tick,
        retry_after: Option<u64>,
    ) -> Decision {
        let limit = self.quota.limit();
        let reset_after = state.free.after(now);
        let remaining = if reset_after == 0 { limit } else { 0 };
        Decision::new(verdict, limit, remaining, retry_after, reset_after)
    }
}

/// The area of the triangle over a square of permits, see [`StoredPermits`].
fn slope(ramp: u128, factor: u128, most: u128) -> Option<(u128, u128)> {
    let rise = (factor - 1) * ramp;
    let run = most.checked_mul(most)?.checked_mul(factor + 1)?;
    let common = gcd(rise, run);
    Some((rise / common, run / common))
}

impl FieldWidths {
    fn of(pace: &Interval, full: u128) -> Self {
        let (ns, part) = (packing::TIME_BITS + 1, packing::bits(pace.den() - 1));
        let stored = u128::BITS - full.leading_zeros();
        Self {
            ns,
            part,
            lowest: stored.min(64),
            high: stored.saturating_sub(64),
            words: packing::words(ns + part + stored),
        }
    }

    /// The state in exactly these words.
    #[expect(clippy::inline_always, reason = "as for `decide_packed`")]
    #[inline(always)]
    fn read(&self, words: &[u64]) -> WarmUpState {
        let mut reader = packing::BitReader::new(words);
        let free = ExactNanos {
            ns: reader.take(self.ns),
            part: reader.take(self.part),
        };
        let lowest = u128::from(reader.take(self.lowest));
        let high = u128::from(reader.take(self.high));
        WarmUpState {
            stored: high << 64 | lowest,
            free,
        }
    }
}

impl Algorithm for WarmUp {
    type State = WarmUpState;

    fn quota(&self) -> Quota {
        self.quota
    }

    fn with_quota(&self, quota: Quota) -> Result<Self, ConfigError> {
        Ok(Self::build(quota, self.ramp, self.cold)?.with_queue(self.line, self.max_wait))
    }

    #[inline]
    fn fresh(&self, _now: Tick) -> WarmUpState {
        WarmUpState {
            stored: self.store.full,
            free: ExactNanos::ZERO,
        }
    }

    #[expect(clippy::inline_always, reason = "as for `decide_packed`")]
    #[inline(always)]
    fn decide(&self, state: &mut WarmUpState, now: Tick, cost: u64) -> Decision {
        if cost > self.quota.limit() {
            return self.answer(Verdict::Deny, *state, now, None);
        }
        if cost == 0 {
            return self.answer(Verdict::Admit, *state, now, None);
        }
        self.line_up(state, now, cost, self.longest_wait)
    }

    #[inline]
    fn keeps_line(&self) -> bool {
        true
    }

    /// A cost of nothing waits for its turn too: whoever asks wants to know when the line is free.
    fn reserve(
        &self,
        state: &mut WarmUpState,
        now: Tick,
        cost: u64,
        max_wait: Duration,
    ) -> Decision {
        let most = ExactNanos {
            ns: nanos(max_wait),
            part: 0,
        };
        self.line_up(state, now, cost, most)
    }

    /// Frees the line of `cost` warm intervals. The permits are not put back: they were dear
    /// because the service was cold, and it has not become warmer or colder by this.
    fn refund(&self, state: &mut WarmUpState, now: Tick, cost: u64) {
        *state = self.rested(*state, now);
        state.free = self.pace.give_back(state.free, ExactNanos::at(now), cost);
    }

    fn charge(&self, state: &mut WarmUpState, now: Tick, cost: u64) -> Duration {
        if cost > 0 {
            *state = self.consume(self.rested(*state, now), cost);
        }
        Duration::from_nanos(state.free.after(now))
    }

    fn rescale(&self, state: &mut WarmUpState, from: &Self, now: Tick, inherit: Inherit) {
        if inherit == Inherit::Reset {
            *state = self.fresh(now);
            return;
        }
        let rested = from.rested(*state, now);
        // As warm as before: the same share of a full store.
        let stored = u256::floor_ratio(&[rested.stored, self.store.full], &[from.store.full]);
        *state = WarmUpState {
            stored: stored.unwrap_or(self.store.full).min(self.store.full),
            free: self.pace.convert(rested.free, &from.pace),
        };
    }

    fn forgettable_at(&self, state: &WarmUpState) -> Tick {
        // A fresh key is cold: so is this one when its store is full.
        let cooling = (self.store.full - state.stored).div_ceil(self.store.refill);
        let cooling = if cooling > u128::from(u64::MAX) {
            u64::MAX
        } else {
            low(cooling)
        };
        Tick::from_nanos(state.free.ceil().saturating_add(cooling))
    }

    fn words(&self) -> usize {
        self.widths.words
    }

    #[inline]
    fn pack_into(&self, state: &WarmUpState, words: &mut [u64]) -> bool {
        let widths = &self.widths;
        let Some(words) = words.get_mut(..widths.words) else {
            return false;
        };
        let lowest = low(state.stored & u128::from(u64::MAX));
        packing::write(
            words,
            [
                (state.free.ns, widths.ns),
                (state.free.part, widths.part),
                (lowest, widths.lowest),
                (low(state.stored >> 64), widths.high),
            ],
        )
    }

    /// What is denied is not packed again.
    #[expect(
        clippy::inline_always,
        reason = "so that the figures a caller does not read are not computed"
    )]
    #[inline(always)]
    fn decide_packed(&self, words: &mut [u64], now: Tick, cost: u64) -> Option<Decision> {
        if words.len() != self.widths.words {
            return None;
        }
        let before = self.widths.read(words);
        let mut state = before;
        let decision = self.decide(&mut state, now, cost);
        (state == before || self.pack_into(&state, words)).then_some(decision)
    }

    #[inline]
    fn unpack_from(&self, words: &[u64]) -> WarmUpState {
        let own = words.get(..self.widths.words);
        self.widths.read(own.unwrap_or(words))
    }
}

/// For a store elsewhere that decides by a script.
#[cfg(feature = "redis")]
impl WarmUp {
    /// How many units may wait, and how long.
    pub(crate) const fn line(&self) -> (Option<u64>, u64) {
        (self.line, self.max_wait)
    }

    /// The cold factor, the ramp, and of the store: a permit, the refill, the threshold, the whole.
    pub(crate) const fn figures(&self) -> (u64, u64, [u128; 4]) {
        let store = &self.store;
        let figures = [store.permit, store.refill, store.threshold, store.full];
        (self.cold, self.ramp, figures)
    }

    pub(crate) const fn state(stored: u128, free: ExactNanos) -> WarmUpState {
        WarmUpState { stored, free }
    }
}
