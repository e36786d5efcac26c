//! Windows of equal length, numbered from zero.

use std::num::NonZeroU64;

use super::arithmetic::low_u64;
use crate::clock::Tick;

/// Where windows begin: at `offset + k * length` for every whole k.
#[derive(Clone, Copy, Debug, Eq)]
pub(crate) struct Windows {
    /// At most 10 years. Non-zero, so that dividing by it cannot panic.
    length: NonZeroU64,
    /// (2^64 - 1) / length, rounded down: multiplying is faster than dividing.
    reciprocal: u64,
    /// Added to a time before it is divided, so that the window around zero has index 0 and the
    /// next one begins at `offset`; below `length`.
    pub(crate) padding: u64,
    /// As configured, for windows of another length.
    offset: u64,
}

/// Manual impl: offsets that are whole windows apart make the same windows.
impl PartialEq for Windows {
    fn eq(&self, other: &Self) -> bool {
        (self.length, self.padding) == (other.length, other.padding)
    }
}

impl Windows {
    pub(in crate::algorithm) const fn new(length: u64, offset: u64) -> Self {
        let Some(length) = NonZeroU64::new(length) else {
            panic!("the period of a quota is not zero");
        };
        let into = offset % length.get();
        Self {
            length,
            reciprocal: u64::MAX / length.get(),
            padding: if into == 0 { 0 } else { length.get() - into },
            offset,
        }
    }

    pub(crate) const fn length(&self) -> u64 {
        self.length.get()
    }

    /// Windows of another length, with the same offset.
    pub(crate) const fn with_length(&self, length: u64) -> Self {
        Self::new(length, self.offset)
    }

    pub(crate) const fn offset(&self) -> u64 {
        self.offset
    }

    /// The window of `now`, and how far into it `now` is.
    #[inline]
    pub(in crate::algorithm) const fn locate(&self, now: Tick) -> (u64, u64) {
        let padded = now.as_nanos() + self.padding;
        // The reciprocal is too low by less than 1 in 2^64, and a moment is below 2^64: before
        // rounding the estimate is too low by less than 1, after rounding by at most 1.
        let window = low_u64((padded as u128 * self.reciprocal as u128) >> 64);
        let into = padded - window * self.length.get();
        if into < self.length.get() {
            (window, into)
        } else {
            (window + 1, into - self.length.get())
        }
    }

    /// Nanoseconds from `now` to `into` nanoseconds after the start of `window`.
    #[inline]
    pub(in crate::algorithm) const fn nanos_until(&self, window: u64, into: u64, now: Tick) -> u64 {
        match window.checked_mul(self.length.get()) {
            Some(start) => start
                .saturating_add(into)
                .saturating_sub(now.as_nanos() + self.padding),
            None => u64::MAX,
        }
    }

    /// `now`, or the last moment of `window` if that window is later than the one of `now`.
    ///
    /// A state of a later window has seen a moment in it. Which one is not known, so the last one
    /// is the safe choice.
    pub(in crate::algorithm) const fn not_before(&self, window: u64, now: Tick) -> Tick {
        if self.locate(now).0 >= window {
            return now;
        }
        let next = self.start(window.saturating_add(1)).as_nanos();
        Tick::from_nanos(next - 1)
    }

    /// The first moment of `window`.
    #[inline]
    pub(in crate::algorithm) const fn start(&self, window: u64) -> Tick {
        Tick::from_nanos(
            window
                .saturating_mul(self.length.get())
                .saturating_sub(self.padding),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locate_matches_division() {
        let most = Tick::MAX.as_nanos();
        let lengths = [
            1,
            2,
            3,
            7,
            100_000_000,
            (1 << 32) + 1,
            (1 << 62) - 1,
            1 << 62,
        ];
        for length in lengths {
            for offset in [0, 1, length / 2, length - 1] {
                let windows = Windows::new(length, offset);
                let starts = [1, 2, 1 << 33, most / 5, most / 3];
                let ends = [1, 2, 3, most / length]
                    .map(|k: u64| k.saturating_mul(length) - windows.padding);
                for near in starts.into_iter().chain(ends).chain([most]) {
                    for now in [near.saturating_sub(1), near, near.saturating_add(1)] {
                        let now = Tick::from_nanos(now);
                        let padded = now.as_nanos() + windows.padding;
                        let divided = (padded / length, padded % length);
                        assert_eq!(windows.locate(now), divided, "{now:?} in {windows:?}");
                    }
                }
            }
        }
    }
}
