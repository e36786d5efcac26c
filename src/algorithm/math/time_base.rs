//! The moment from which packed states count time.
//!
//! The fraction of a moment or a count takes up to 20 bits of a word. The other 43 hold the time
//! since an origin: 2.4 hours. The origin moves, so that this is always enough:
//!
//! ```text
//!  origin     now of the last move   next move
//!    |---- 1/4 ----|----- 1/4 -----|-------- 1/2 --------|
//!    |<- older states ->|          |<- the newest states ->|
//! ```
//!
//! A state that is older than the origin does not pack, and neither does one beyond the range.

use super::bits::TIME_BITS;

/// The moment, or the number of the window, from which the words of a table count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::algorithm) struct TimeBase {
    origin: u64,
}

/// The fewest bits for a time in nanoseconds. With fewer, the origin would move too often.
pub(in crate::algorithm) const LEAST_TIME_BITS: u32 = 43;

impl TimeBase {
    pub(in crate::algorithm) const ZERO: Self = Self { origin: 0 };

    /// The base with a quarter of a range of `bits` before `now`.
    pub(in crate::algorithm) const fn before(now: u64, bits: u32) -> Self {
        Self {
            origin: now.saturating_sub(quarter(bits)),
        }
    }

    /// When a base with a range of `bits` must move: half of the range is left.
    pub(in crate::algorithm) const fn moves_at(self, bits: u32) -> u64 {
        self.origin.saturating_add(2 * quarter(bits))
    }

    /// The time since the origin. More than any range if `time` is older.
    #[inline]
    pub(in crate::algorithm) const fn relative(self, time: u64) -> u64 {
        time.wrapping_sub(self.origin)
    }

    /// The time of which `relative` is the time since the origin.
    #[inline]
    pub(in crate::algorithm) const fn absolute(self, relative: u64) -> u64 {
        self.origin.wrapping_add(relative)
    }
}

/// A quarter of a range of `bits`. No state may be farther than that from the present.
pub(in crate::algorithm) const fn quarter(bits: u32) -> u64 {
    1 << bits.saturating_sub(2)
}

/// Whether a range of `bits` is enough for states that are at most `distance` from the present.
pub(in crate::algorithm) const fn fits_range(distance: u64, bits: u32) -> bool {
    bits >= LEAST_TIME_BITS && distance <= quarter(bits)
}

const _: () = assert!(LEAST_TIME_BITS < TIME_BITS);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_base_is_a_quarter_before_now_and_moves_a_quarter_after() {
        for bits in [LEAST_TIME_BITS, 50, TIME_BITS] {
            let quarter = (1 << bits) / 4;
            for now in [quarter, quarter + 1, 5 * quarter + 3] {
                let base = TimeBase::before(now, bits);
                assert_eq!(base.relative(now), quarter, "{bits} bits");
                assert_eq!(base.absolute(quarter), now, "{bits} bits");
                assert_eq!(base.moves_at(bits), now + quarter, "{bits} bits");
            }
        }
    }

    #[test]
    fn the_base_does_not_leave_the_range_of_a_moment() {
        let first = TimeBase::before(1, LEAST_TIME_BITS);
        assert_eq!(first, TimeBase::ZERO);
        let last = TimeBase::before(u64::MAX, LEAST_TIME_BITS);
        assert_eq!(last.moves_at(LEAST_TIME_BITS), u64::MAX);
        // A time before the origin is farther than any range.
        let base = TimeBase::before(1 << 50, LEAST_TIME_BITS);
        assert!(base.relative(base.absolute(0) - 1) > 1 << LEAST_TIME_BITS);
    }
}
