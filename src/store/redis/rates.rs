//! What a script has to be told of the algorithms that know a rate: spans of time, exactly.

use super::params::{BIGNUM_LUA, Call, MAX_EXACT, PRELUDE_LUA, count, header, too_large};
use super::script::{Args, Part, StateWords, sealed::Script};
use crate::algorithm::{Algorithm, Charge, ExactNanos, LeakyBucket, TokenBucket, WarmUp};
use crate::error::ConfigError;
use crate::quota::Quota;

pub(super) const BUCKET_LUA: &str = include_str!("lua/bucket.lua");
/// Needs to be told where the bucket's figures are.
pub(super) const BUCKET_FAST_LUA: &str = include_str!("lua/quick/bucket.lua");

/// Exact time: W/L = num/den nanoseconds a unit, a microsecond has 1000 * den parts.
#[derive(Clone, Copy)]
pub(super) struct Pace {
    num: u64,
    den: u64,
}

impl Pace {
    fn new(quota: &Quota) -> Self {
        let (mut common, mut rest) = (quota.period_ns(), quota.limit());
        while rest > 0 {
            (common, rest) = (rest, common % rest);
        }
        Self {
            num: quota.period_ns() / common,
            den: quota.limit() / common,
        }
    }

    /// Of so many nanoseconds a unit.
    #[cfg(feature = "governor")]
    pub(super) const fn of(interval: u64) -> Self {
        Self {
            num: interval,
            den: 1,
        }
    }

    /// As [`new`](Self::new), if a script can count with it.
    fn checked(quota: &Quota) -> Result<Self, ConfigError> {
        let pace = Self::new(quota);
        if pace.den > MAX_EXACT / 1_000 {
            return Err(too_large("limit", quota.limit()));
        }
        Ok(pace)
    }

    const fn parts(&self) -> u64 {
        1_000 * self.den
    }

    /// The time that `units` are worth, in parts.
    pub(super) fn span(&self, units: u64) -> u128 {
        u128::from(units) * u128::from(self.num)
    }

    /// A time in parts.
    fn time(&self, ns: u64) -> u128 {
        u128::from(ns) * u128::from(self.den)
    }

    /// Parts as microseconds and parts; what is beyond all time is cut.
    pub(super) fn split(&self, parts: u128) -> (u64, u64) {
        let whole = u128::from(self.parts());
        let fits = |number: u128| {
            u64::try_from(number)
                .ok()
                .filter(|number| *number <= MAX_EXACT)
        };
        match (fits(parts / whole), fits(parts % whole)) {
            (Some(us), Some(part)) => (us, part),
            _ => (MAX_EXACT, 0),
        }
    }

    fn due(&self, us: u64, part: u64) -> ExactNanos {
        ExactNanos::new(
            us.saturating_mul(1_000).saturating_add(part / self.den),
            part % self.den,
        )
    }

    /// den, the price of a unit, and a number of units: what a later quota has to know of this one.
    pub(super) fn header(&self, tag: char, units: u64) -> String {
        let (us, part) = (self.num / self.parts(), self.num % self.parts());
        header(tag, &[self.den, us, part, units])
    }
}

fn push_span(pace: Pace, span: u128, args: &mut Args) {
    let (us, part) = pace.split(span);
    args.push(us);
    args.push(part);
}

/// Pushes a span of cost, and the latest moment that admits it if there is one.
pub(super) fn push_span_and_bound(pace: Pace, span: u128, bound: Option<u128>, args: &mut Args) {
    push_span(pace, span, args);
    if let Some(bound) = bound {
        let (us, part) = pace.split(bound);
        args.push(us);
        args.push(part);
    } else {
        args.never();
        args.push(0);
    }
}

impl Script for TokenBucket {
    fn prepared(self) -> Result<Self, ConfigError> {
        let quota = self.quota();
        check_bucket(&quota, quota.capacity())?;
        Ok(self)
    }

    fn parts(&self, parts: &mut Vec<Part>) {
        /// A key that began with less than a full bucket is forgotten so long after it is full, in
        /// microseconds: a month. The next request then begins anew, with fewer tokens.
        const MIN_TTL_US: u64 = 30 * 86_400 * 1_000_000;

        let quota = self.quota();
        let gone = self.initial_tokens().map(|first| quota.capacity() - first);
        let rest = gone.map_or(0, |_| MIN_TTL_US);
        parts.push(Part {
            name: "token_bucket",
            quick: if gone.is_some() {
                &[]
            } else {
                &["local figures_at = 9\n", BUCKET_FAST_LUA]
            },
            sources: &[
                PRELUDE_LUA,
                BIGNUM_LUA,
                BUCKET_LUA,
                include_str!("lua/token_bucket.lua"),
            ],
            header: Pace::new(&quota).header('t', quota.capacity()),
            figures: bucket_params(Pace::new(&quota), quota.capacity(), gone.unwrap_or(0), rest)
                .to_vec(),
            words: 2,
        });
    }

    fn arguments(&self, call: Call, args: &mut Args) {
        let quota = self.quota();
        let pace = Pace::new(&quota);
        let most = match (call, self.queue_params()) {
            (Call::Reserve(_, most), _) => pace.time(most),
            (_, None) => 0,
            (_, Some((units, most))) => pace.span(units).min(pace.time(most)),
        };
        let fits = call.cost() <= quota.capacity();
        let bound = fits.then(|| pace.span(quota.capacity()) + most);
        push_span_and_bound(pace, pace.span(call.cost()), bound, args);
    }

    fn recall(&self, words: &mut StateWords<'_>) -> Option<Self::State> {
        Some(Pace::new(&self.quota()).due(words.next()?, words.next()?))
    }
}

fn check_bucket(quota: &Quota, capacity: u64) -> Result<(), ConfigError> {
    check_depth(Pace::checked(quota)?, capacity)
}

pub(super) fn check_depth(pace: Pace, capacity: u64) -> Result<(), ConfigError> {
    count("burst", capacity)?;
    if pace.span(capacity) / u128::from(pace.parts()) >= u128::from(MAX_EXACT) {
        return Err(too_large("burst", capacity));
    }
    Ok(())
}

/// `gone`: what a new key has used. `rest`: how long a key is kept that needs no keeping.
pub(super) fn bucket_params(pace: Pace, capacity: u64, gone: u64, rest: u64) -> [u64; 6] {
    let depth = pace.split(pace.span(capacity));
    let gone = pace.split(pace.span(gone));
    [pace.parts(), depth.0, depth.1, gone.0, gone.1, rest]
}

impl Script for LeakyBucket {
    fn prepared(self) -> Result<Self, ConfigError> {
        check_bucket(&self.quota(), self.capacity_and_max_cost().0)?;
        Ok(self)
    }

    fn parts(&self, parts: &mut Vec<Part>) {
        let (queue, _, charge) = self.queue_params();
        let (quota, pace) = (self.quota(), Pace::new(&self.quota()));
        // How many units a free line counts as rest before it is one never used.
        let idle = match charge {
            Charge::After => 0,
            Charge::Before => self.capacity_and_max_cost().0 - 1,
        };
        let mut figures = vec![
            u64::from(queue.is_some()),
            u64::from(charge == Charge::Before),
        ];
        let (us, part) = pace.split(pace.span(idle));
        figures.extend([us, part]);
        figures.extend(bucket_params(pace, quota.capacity(), 0, 0));
        parts.push(Part {
            name: "leaky_bucket",
            // Its own figures come first.
            quick: match charge {
                Charge::After => &["local figures_at = 41\n", BUCKET_FAST_LUA],
                Charge::Before => &[],
            },
            sources: &[
                PRELUDE_LUA,
                BIGNUM_LUA,
                BUCKET_LUA,
                include_str!("lua/leaky_bucket.lua"),
            ],
            header: pace.header('l', idle),
            figures,
            words: 2,
        });
    }

    fn arguments(&self, call: Call, args: &mut Args) {
        let quota = self.quota();
        let pace = Pace::new(&quota);
        let (queue, max_wait, charge) = self.queue_params();
        let cost = call.cost();
        let in_line = match call {
            Call::Take(_) | Call::Peek(_) | Call::Charge(_) => queue.is_some(),
            Call::Reserve(..) => true,
            Call::Refund(_) | Call::Reset => false,
        };
        // What a request waits for itself when the line is free, and what is paid when it goes.
        let (lead, span) = match charge {
            Charge::Before if in_line && cost > 0 => (pace.span(cost - 1), pace.span(1)),
            _ => (0, pace.span(cost)),
        };
        let longest = match (call, queue) {
            _ if cost > self.capacity_and_max_cost().1 => None,
            (Call::Reserve(_, most), _) => Some(pace.time(most)),
            // A meter admits what stays within its capacity once it is paid.
            (_, None) => quota
                .capacity()
                .checked_sub(cost)
                .map(|room| pace.span(room)),
            (_, Some(units)) => {
                let places = match charge {
                    Charge::After => units.saturating_sub(cost.saturating_sub(1)),
                    Charge::Before => units,
                };
                Some(pace.span(places).min(pace.time(max_wait)))
            }
        };
        if charge == Charge::Before {
            push_span(pace, lead, args);
        }
        push_span_and_bound(pace, span, longest.map(|longest| longest + span), args);
    }

    fn recall(&self, words: &mut StateWords<'_>) -> Option<Self::State> {
        Some(Pace::new(&self.quota()).due(words.next()?, words.next()?))
    }
}

/// The store of a warm-up in numbers that a script can count with: a permit, the refill of a
/// nanosecond, the threshold, the whole, and how many microseconds fill it.
fn warm_up_params(algorithm: &WarmUp) -> Option<[u64; 5]> {
    let (_, ramp, [permit, refill, threshold, full]) = algorithm.permit_params();
    let cooling = full / (1_000 * refill) + 2;
    let most_stored = full + (cooling + 1) * 1_000 * refill;
    if most_stored > u128::from(2 * MAX_EXACT) || ramp > MAX_EXACT {
        return None;
    }
    // A permit worth more than the whole store takes all of it.
    let figures = [
        permit.min(u128::from(MAX_EXACT)),
        refill,
        threshold,
        full,
        cooling,
    ];
    let mut store = [0; 5];
    for (to, from) in store.iter_mut().zip(figures) {
        *to = u64::try_from(from).ok()?;
    }
    Some(store)
}

impl Script for WarmUp {
    fn prepared(self) -> Result<Self, ConfigError> {
        Pace::checked(&self.quota())?;
        count("limit", self.quota().limit())?;
        match warm_up_params(&self) {
            Some(_) => Ok(self),
            None => Err(too_large(
                "warm_up",
                format!("{} ns", self.permit_params().1),
            )),
        }
    }

    fn parts(&self, parts: &mut Vec<Part>) {
        let pace = Pace::new(&self.quota());
        let (cold, ramp, _) = self.permit_params();
        let [_, refill, threshold, full, cooling] = warm_up_params(self).unwrap_or_default();
        parts.push(Part {
            name: "warm_up",
            quick: &[],
            sources: &[PRELUDE_LUA, BIGNUM_LUA, include_str!("lua/warm_up.lua")],
            header: header('u', &[pace.den, refill, full, cooling]),
            figures: vec![pace.den, refill, threshold, full, cold, ramp, cooling],
            words: 3,
        });
    }

    fn arguments(&self, call: Call, args: &mut Args) {
        let quota = self.quota();
        let pace = Pace::new(&quota);
        let [permit, ..] = warm_up_params(self).unwrap_or_default();
        let cost = call.cost();
        let (line, max_wait, max_cost) = self.queue_params();
        let bound = match (call, line) {
            _ if max_cost.is_some_and(|most| cost > most) => None,
            (Call::Reserve(_, most), _) => Some(pace.time(most)),
            (_, None) => Some(0),
            (_, Some(units)) => Some(pace.span(units).min(pace.time(max_wait))),
        };
        args.push(cost.saturating_mul(permit).min(2 * MAX_EXACT));
        push_span_and_bound(pace, pace.span(cost), bound, args);
    }

    fn recall(&self, words: &mut StateWords<'_>) -> Option<Self::State> {
        let stored = u128::from(words.next()?);
        let free = Pace::new(&self.quota()).due(words.next()?, words.next()?);
        Some(Self::state(stored, free))
    }
}
