//! A line of windows of one length, counted from zero.

use std::num::NonZeroU64;

use super::interval::low;
use crate::clock::Tick;

/// Where windows begin: at `offset + k * length` for every whole k.
#[derive(Clone, Copy, Debug, Eq)]
pub(super) struct Windows {
    /// At most 2^62 ns; known not to be zero, so that dividing by it leaves no panic behind.
    length: NonZeroU64,
    /// (2^64 - 1) by that, rounded down: multiplying by it is quicker than dividing.
    reciprocal: u64,
    /// Added to a time before it is divided, so that the window around zero has index 0 and the
    /// next one begins at `offset`; below `length`.
    pad: u64,
    /// As it was given, for windows of another length.
    offset: u64,
}

/// By hand: offsets that are whole windows apart make the same windows.
impl PartialEq for Windows {
    fn eq(&self, other: &Self) -> bool {
        (self.length, self.pad) == (other.length, other.pad)
    }
}

impl Windows {
    pub(super) const fn new(length: u64, offset: u64) -> Self {
        let Some(length) = NonZeroU64::new(length) else {
            panic!("a quota has a period");
        };
        let into = offset % length.get();
        Self {
            length,
            reciprocal: u64::MAX / length.get(),
            pad: if into == 0 { 0 } else { length.get() - into },
            offset,
        }
    }

    pub(super) const fn length(&self) -> u64 {
        self.length.get()
    }

    /// Windows of another length, with the same offset.
    pub(super) const fn with_length(&self, length: u64) -> Self {
        Self::new(length, self.offset)
    }

    pub(super) const fn offset(&self) -> u64 {
        self.offset
    }

    /// The window of `now`, and how far into it `now` is.
    #[inline]
    pub(super) const fn locate(&self, now: Tick) -> (u64, u64) {
        // 2^63 + 2^62 fits.
        let padded = now.as_nanos() + self.pad;
        // The reciprocal is less than 1 too low for 2^64, and a moment less than that: the estimate
        // is less than 1 too low before it is rounded, so at most one after.
        let window = low((padded as u128 * self.reciprocal as u128) >> 64);
        let into = padded - window * self.length.get();
        if into < self.length.get() {
            (window, into)
        } else {
            (window + 1, into - self.length.get())
        }
    }

    /// Nanoseconds from `now` to `into` nanoseconds after the start of `window`.
    #[inline]
    pub(super) const fn until(&self, window: u64, into: u64, now: Tick) -> u64 {
        match window.checked_mul(self.length.get()) {
            Some(start) => start
                .saturating_add(into)
                .saturating_sub(now.as_nanos() + self.pad),
            None => u64::MAX,
        }
    }

    /// The first moment of `window`.
    #[inline]
    pub(super) const fn start(&self, window: u64) -> Tick {
        Tick::from_nanos(
            window
                .saturating_mul(self.length.get())
                .saturating_sub(self.pad),
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
                let ends =
                    [1, 2, 3, most / length].map(|k: u64| k.saturating_mul(length) - windows.pad);
                for near in starts.into_iter().chain(ends).chain([most]) {
                    for now in [near.saturating_sub(1), near, near.saturating_add(1)] {
                        let now = Tick::from_nanos(now);
                        let padded = now.as_nanos() + windows.pad;
                        let divided = (padded / length, padded % length);
                        assert_eq!(windows.locate(now), divided, "{now:?} in {windows:?}");
                    }
                }
            }
        }
    }
}
