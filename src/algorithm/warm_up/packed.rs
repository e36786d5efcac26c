//! The packed state of a warm-up, as a table stores it.

use crate::algorithm::math::{
    BitReader, ExactNanos, Interval, TIME_BITS, bit_width, low_u64, words_for_bits, write_fields,
};

/// The widths in bits of the fields of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FieldWidths {
    /// Whole nanoseconds, and the fraction.
    ns: u32,
    fraction: u32,
    /// The lower 64 bits of the stored units, and the bits above.
    stored_low: u32,
    stored_high: u32,
    pub(super) word_count: usize,
}

impl FieldWidths {
    /// The widths for stores up to `capacity`.
    pub(super) fn new(interval: &Interval, capacity: u128) -> Self {
        let (ns, fraction) = (TIME_BITS + 1, bit_width(interval.den() - 1));
        let stored = u128::BITS - capacity.leading_zeros();
        Self {
            ns,
            fraction,
            stored_low: stored.min(64),
            stored_high: stored.saturating_sub(64),
            word_count: words_for_bits(ns + fraction + stored),
        }
    }

    /// The stored units, and when the line is free, from exactly these words.
    #[expect(clippy::inline_always, reason = "as for `decide_packed`")]
    #[inline(always)]
    pub(super) fn unpack(&self, words: &[u64]) -> (u128, ExactNanos) {
        let mut reader = BitReader::new(words);
        let free = ExactNanos {
            ns: reader.read(self.ns),
            fraction: reader.read(self.fraction),
        };
        let low = u128::from(reader.read(self.stored_low));
        let high = u128::from(reader.read(self.stored_high));
        (high << 64 | low, free)
    }

    #[inline]
    pub(super) fn pack(&self, stored: u128, free: ExactNanos, words: &mut [u64]) -> bool {
        let Some(words) = words.get_mut(..self.word_count) else {
            return false;
        };
        let low = low_u64(stored & u128::from(u64::MAX));
        write_fields(
            words,
            [
                (free.ns, self.ns),
                (free.fraction, self.fraction),
                (low, self.stored_low),
                (low_u64(stored >> 64), self.stored_high),
            ],
        )
    }
}
