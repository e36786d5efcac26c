//! The packed state of a warm-up, as a table stores it.

use crate::algorithm::math::{
    BitBuffer, ExactNanos, Interval, MAX_WORDS, TIME_BITS, bit_width, low_u64, mask, words_for_bits,
};

/// The layout of a state, from the lowest bit: the line's free moment (whole nanoseconds, fraction), then
/// the stored units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    fraction_bits: u32,
    stored_bits: u32,
    pub(super) word_count: usize,
}

const NS_BITS: u32 = TIME_BITS + 1;

impl Layout {
    /// That of stores up to `capacity`.
    pub(super) fn new(interval: &Interval, capacity: u128) -> Self {
        let fraction_bits = bit_width(interval.den() - 1);
        let stored_bits = u128::BITS - capacity.leading_zeros();
        Self {
            fraction_bits,
            stored_bits,
            word_count: words_for_bits(NS_BITS + fraction_bits + stored_bits),
        }
    }

    /// The stored units, and when the line is free.
    #[inline]
    pub(super) fn unpack(&self, words: &[u64]) -> (u128, ExactNanos) {
        let words = words.get(..self.word_count).unwrap_or(words);
        let buffer = BitBuffer::from_words(words);
        let stored_at = NS_BITS + self.fraction_bits;
        let low = buffer.get(stored_at, self.stored_bits.min(64));
        let high = buffer.get(stored_at + 64, self.stored_bits.saturating_sub(64));
        let free = ExactNanos {
            ns: buffer.get(0, NS_BITS),
            fraction: buffer.get(NS_BITS, self.fraction_bits),
        };
        (u128::from(high) << 64 | u128::from(low), free)
    }

    #[inline]
    pub(super) fn pack(&self, stored: u128, free: ExactNanos, words: &mut [u64]) -> bool {
        let Some(words) = words.get_mut(..self.word_count) else {
            return false;
        };
        if self.word_count > MAX_WORDS || free.ns > mask(NS_BITS) {
            return false;
        }
        let stored_at = NS_BITS + self.fraction_bits;
        let mut buffer = BitBuffer::from_words(&[]);
        buffer.put(0, free.ns);
        buffer.put(NS_BITS, free.fraction);
        buffer.put(stored_at, low_u64(stored & u128::from(u64::MAX)));
        if self.stored_bits > 64 {
            buffer.put(stored_at + 64, low_u64(stored >> 64));
        }
        buffer.write(words);
        true
    }
}
