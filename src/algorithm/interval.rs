//! Exact time for the algorithms that know a rate.
//!
//! L per W ns means that one unit is worth t = W/L ns, which is seldom whole. With W/L = num/den
//! in lowest terms every moment that such an algorithm ever computes is a multiple of 1/den ns, so
//! a pair (whole nanoseconds, part of `den`) holds it exactly and nothing is ever rounded.

use std::num::NonZeroU64;

use super::{packing, u256};
use crate::clock::Tick;
use crate::quota::Quota;

/// When a bucket is full again, or a line free: the whole state of a key under a rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExactNanos {
    pub(super) ns: u64,
    /// Parts of a nanosecond, in units of 1/den; below `den`.
    pub(super) part: u64,
}

/// The price of a unit in time: `num / den` nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interval {
    // A divisor known not to be zero leaves no panic behind, so a figure nobody reads costs nothing.
    num: NonZeroU64,
    den: NonZeroU64,
    /// `num / den` as a span, ready for the commonest cost.
    unit: ExactNanos,
    /// How many bits a part of a nanosecond takes.
    part_bits: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Rounding {
    Up,
    Down,
}

impl ExactNanos {
    pub(super) const ZERO: Self = Self { ns: 0, part: 0 };
    pub(super) const NEVER: Self = Self {
        ns: u64::MAX,
        part: 0,
    };

    #[inline]
    pub(super) const fn at(now: Tick) -> Self {
        Self {
            ns: now.as_nanos(),
            part: 0,
        }
    }

    /// The same, where it is known to be in whole nanoseconds: then the compiler knows it too.
    #[inline]
    pub(super) const fn whole(self) -> Self {
        Self {
            ns: self.ns,
            part: 0,
        }
    }

    /// The first whole nanosecond that is not before it.
    #[inline]
    pub(super) const fn ceil(self) -> u64 {
        self.ns.saturating_add((self.part > 0) as u64)
    }

    /// Whole nanoseconds from `now` until then, rounded up; zero if it is past.
    #[inline]
    pub(super) const fn after(self, now: Tick) -> u64 {
        self.ceil().saturating_sub(now.as_nanos())
    }
}

impl Interval {
    pub(super) const fn new(quota: &Quota) -> Self {
        let (period, limit) = (quota.period_ns(), quota.limit());
        let common = low(gcd(period as u128, limit as u128));
        let (Some(num), Some(den)) = (
            NonZeroU64::new(period / common),
            NonZeroU64::new(limit / common),
        ) else {
            panic!("a quota has a limit and a period");
        };
        Self {
            num,
            den,
            unit: ExactNanos {
                ns: num.get() / den.get(),
                part: num.get() % den.get(),
            },
            part_bits: u64::BITS - (den.get() - 1).leading_zeros(),
        }
    }

    /// Whether a unit is worth whole nanoseconds, as it is at most rates that people choose.
    #[inline]
    pub(super) const fn is_whole(&self) -> bool {
        self.den.get() == 1
    }

    /// The same pace, where it is known to be whole: then the compiler knows it too.
    #[inline]
    pub(super) const fn whole(&self) -> Self {
        Self {
            num: self.num,
            den: NonZeroU64::MIN,
            unit: self.unit.whole(),
            part_bits: 0,
        }
    }

    pub(super) const fn num(&self) -> u64 {
        self.num.get()
    }

    pub(super) const fn den(&self) -> u64 {
        self.den.get()
    }

    /// The time that `cost` units are worth; `NEVER` where that is beyond all time.
    #[inline]
    pub(super) const fn span(&self, cost: u64) -> ExactNanos {
        if cost == 1 {
            return self.unit;
        }
        match cost.checked_mul(self.num.get()) {
            Some(product) => ExactNanos {
                ns: product / self.den.get(),
                part: product % self.den.get(),
            },
            None => self.long_span(cost),
        }
    }

    #[cold]
    const fn long_span(&self, cost: u64) -> ExactNanos {
        let product = cost as u128 * self.num.get() as u128;
        let ns = product / self.den.get() as u128;
        if ns >= u64::MAX as u128 {
            return ExactNanos::NEVER;
        }
        ExactNanos {
            ns: low(ns),
            part: low(product % self.den.get() as u128),
        }
    }

    /// How many whole units `span` is worth.
    #[inline]
    pub(super) const fn count(&self, span: ExactNanos) -> u64 {
        let (dividend, divisor) = self.ratio(span);
        dividend / divisor.get()
    }

    /// How many whole units `span` is worth, not yet divided.
    #[inline]
    pub(super) const fn ratio(&self, span: ExactNanos) -> (u64, NonZeroU64) {
        if let Some(scaled) = span.ns.checked_mul(self.den.get()) {
            if let Some(scaled) = scaled.checked_add(span.part) {
                return (scaled, self.num);
            }
        }
        (self.long_count(span), NonZeroU64::MIN)
    }

    #[cold]
    const fn long_count(&self, span: ExactNanos) -> u64 {
        // 64 bits times 63 bits, plus 63 bits.
        let count =
            (span.ns as u128 * self.den.get() as u128 + span.part as u128) / self.num.get() as u128;
        if count > u64::MAX as u128 {
            u64::MAX
        } else {
            low(count)
        }
    }

    /// `due + span`; stays at `NEVER` once there.
    #[inline]
    pub(super) const fn add(&self, due: ExactNanos, span: ExactNanos) -> ExactNanos {
        // Both parts are below 2^63.
        let mut part = due.part + span.part;
        let mut carry = 0;
        if part >= self.den.get() {
            part -= self.den.get();
            carry = 1;
        }
        match due.ns.checked_add(span.ns) {
            Some(ns) if ns < u64::MAX => ExactNanos {
                ns: ns + carry,
                part,
            },
            _ => ExactNanos::NEVER,
        }
    }

    /// `due - span`, or zero.
    #[inline]
    pub(super) const fn sub(&self, due: ExactNanos, span: ExactNanos) -> ExactNanos {
        let (part, borrow) = if due.part >= span.part {
            (due.part - span.part, 0)
        } else {
            (due.part + self.den.get() - span.part, 1)
        };
        match due.ns.checked_sub(span.ns) {
            Some(ns) if ns >= borrow => ExactNanos {
                ns: ns - borrow,
                part,
            },
            _ => ExactNanos { ns: 0, part: 0 },
        }
    }

    /// `due` moved back by `cost` units, but not past `unused`.
    pub(super) fn give_back(&self, due: ExactNanos, unused: ExactNanos, cost: u64) -> ExactNanos {
        self.sub(due, self.span(cost)).max(unused.min(due))
    }

    /// The span that holds as many units at this pace as `span` does at the pace `from`, times
    /// `more / less`, in whole parts; rounded as a change of quota needs it so as not to mint.
    pub(super) fn exchange(
        &self,
        span: ExactNanos,
        from: &Self,
        (more, less): (u64, u64),
        rounding: Rounding,
    ) -> ExactNanos {
        // span.parts / from.num units, each worth self.num parts.
        let parts = u128::from(span.ns) * u128::from(from.den.get()) + u128::from(span.part);
        let numerator = [parts, u128::from(self.num.get()), u128::from(more)];
        let denominator = [u128::from(from.num.get()), u128::from(less)];
        let parts = match rounding {
            Rounding::Up => u256::ceil_ratio(&numerator, &denominator),
            Rounding::Down => u256::floor_ratio(&numerator, &denominator),
        };
        let den = u128::from(self.den.get());
        match parts {
            Some(parts) if parts / den < u128::from(u64::MAX) => ExactNanos {
                ns: low(parts / den),
                part: low(parts % den),
            },
            _ => ExactNanos::NEVER,
        }
    }

    /// `due` in parts of this pace, rounded up.
    pub(super) fn convert(&self, due: ExactNanos, from: &Self) -> ExactNanos {
        let part = (u128::from(due.part) * u128::from(self.den.get()))
            .div_ceil(u128::from(from.den.get()));
        let part = ExactNanos {
            ns: low(part / u128::from(self.den.get())),
            part: low(part % u128::from(self.den.get())),
        };
        self.add(ExactNanos { part: 0, ..due }, part)
    }

    /// The whole state as one word, the part below the nanoseconds.
    #[inline]
    pub(super) const fn pack(&self, due: ExactNanos) -> Option<u64> {
        if due.ns >= u64::MAX >> self.part_bits {
            return None;
        }
        Some(due.ns << self.part_bits | due.part)
    }

    /// How many words of a table a moment takes, if it is at most `depth` from the present.
    pub(super) const fn words(&self, depth: ExactNanos) -> usize {
        let farthest = (1 << packing::TIME_BITS) + depth.ns;
        packing::words(packing::bits(farthest) + self.part_bits)
    }

    #[inline]
    pub(super) fn pack_into(&self, due: ExactNanos, words: &mut [u64]) -> bool {
        match words {
            [word] => {
                *word = due.ns << self.part_bits | due.part;
                due.ns >> (63 - self.part_bits) == 0
            }
            [ns, part, ..] => {
                (*ns, *part) = (due.ns, due.part);
                due.ns >> 63 == 0
            }
            [] => false,
        }
    }

    #[inline]
    pub(super) const fn unpack_from(&self, words: &[u64]) -> ExactNanos {
        match *words {
            [word] => self.unpack(word),
            [ns, part, ..] => ExactNanos { ns, part },
            [] => ExactNanos::ZERO,
        }
    }

    #[inline]
    pub(super) const fn unpack(&self, word: u64) -> ExactNanos {
        ExactNanos {
            ns: word >> self.part_bits,
            part: word & ((1 << self.part_bits) - 1),
        }
    }
}

/// For a store elsewhere that decides by a script.
#[cfg(feature = "redis")]
impl ExactNanos {
    pub(crate) const fn new(ns: u64, part: u64) -> Self {
        Self { ns, part }
    }
}

pub(super) const fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// The low word of a number known to fit in it.
#[expect(
    clippy::cast_possible_truncation,
    reason = "callers have compared with u64::MAX or hold a remainder of a 64-bit division"
)]
pub(super) const fn low(number: u128) -> u64 {
    number as u64
}
