//! A line of windows of one length, counted from zero.

use std::num::NonZeroU64;

use crate::clock::Tick;

/// Where windows begin: at `offset + k * length` for every whole k.
#[derive(Clone, Copy, Debug, Eq)]
pub(super) struct Windows {
    /// At most 2^62 ns; known not to be zero, so that dividing by it leaves no panic behind.
    length: NonZeroU64,
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
            pad: if into == 0 { 0 } else { length.get() - into },
            offset,
        }
    }

    pub(super) const fn length(&self) -> u64 {
        self.length.get()
    }

    /// Windows of another length, with the same offset.
    pub(super) const fn resized(&self, length: u64) -> Self {
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
        (padded / self.length.get(), padded % self.length.get())
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
