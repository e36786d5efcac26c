//! States as words of a table: bit fields in order, from the lowest bit of the last word upward.
//!
//! The highest bit of the first word stays zero.

use super::arithmetic::low_u64;

/// The width of a moment in the first year of a process (see `MonotonicClock`). Later
/// moments need not fit: a state that does not pack is kept outside of the slots.
pub(in crate::algorithm) const TIME_BITS: u32 = 56;

/// How many words hold this many bits.
pub(in crate::algorithm) const fn words_for_bits(bits: u32) -> usize {
    (bits as usize + 1).div_ceil(64)
}

/// The width of the numbers up to `most`.
pub(in crate::algorithm) const fn bit_width(most: u64) -> u32 {
    u64::BITS - most.leading_zeros()
}

/// The words of a state as one long number, the last word lowest. So the bit that stays zero is
/// the highest one and no field has to skip it.
#[derive(Clone, Copy, Debug)]
pub(in crate::algorithm) struct BitBuffer {
    /// Lowest first. The upper half is zero and is shifted in.
    words: [u64; 2 * MAX_WORDS],
}

/// The words of the largest slot.
pub(in crate::algorithm) const MAX_WORDS: usize = 4;

impl BitBuffer {
    #[inline]
    pub(in crate::algorithm) fn from_words(words: &[u64]) -> Self {
        let mut buffer = Self {
            words: [0; 2 * MAX_WORDS],
        };
        for (word, given) in buffer
            .words
            .iter_mut()
            .zip(words.iter().rev().take(MAX_WORDS))
        {
            *word = *given;
        }
        buffer
    }

    /// The same with another first word.
    #[inline]
    pub(in crate::algorithm) fn with_first_word(words: &[u64], first: u64) -> Self {
        let mut buffer = Self::from_words(words);
        if let Some(word) = buffer.words.get_mut(words.len().wrapping_sub(1)) {
            *word = first;
        }
        buffer
    }

    /// Writes the lowest words back.
    #[inline]
    pub(in crate::algorithm) fn write(&self, words: &mut [u64]) {
        for (word, own) in words.iter_mut().rev().zip(&self.words) {
            *word = *own;
        }
    }

    /// The word of bit `at`, and its position in it.
    #[inline]
    const fn split_bit_index(at: u32) -> (usize, u32) {
        ((at / 64) as usize % MAX_WORDS, at % 64)
    }

    /// The 64 bits from this position on.
    #[inline]
    const fn shifted_word(&self, word: usize, shift: u32) -> u64 {
        // Never a shift by 64.
        self.words[word] >> shift | self.words[word + 1] << 1 << (63 - shift)
    }

    /// The 64 bits from bit `at` on.
    #[inline]
    pub(in crate::algorithm) const fn word_at(&self, at: u32) -> u64 {
        let (word, shift) = Self::split_bit_index(at);
        self.shifted_word(word, shift)
    }

    /// The field of `width` bits that begins at bit `at`.
    #[inline]
    pub(in crate::algorithm) const fn get(&self, at: u32, width: u32) -> u64 {
        self.word_at(at) & mask(width)
    }

    /// Sets the field that begins at bit `at`, which is still zero, to `value`, which fits.
    #[inline]
    pub(in crate::algorithm) const fn put(&mut self, at: u32, value: u64) {
        let (word, shift) = Self::split_bit_index(at);
        self.words[word] |= value << shift;
        self.words[word + 1] |= value >> 1 >> (63 - shift);
    }

    /// Shifts all bits down; the lowest ones are dropped.
    #[inline]
    pub(in crate::algorithm) fn shift(&mut self, by: u32) {
        let (first, shift) = Self::split_bit_index(by);
        let from = *self;
        for (at, word) in self.words.iter_mut().enumerate().take(MAX_WORDS) {
            *word = from.shifted_word(first + at, shift);
        }
    }

    /// Adds `factor` times `number`, modulo the width of the words.
    #[inline]
    pub(in crate::algorithm) fn add_scaled(&mut self, number: &[u64; MAX_WORDS], factor: u64) {
        let mut carry = 0;
        for (word, times) in self.words.iter_mut().zip(number) {
            // A product of two words and two more words fit in 128 bits.
            let sum = u128::from(*times) * u128::from(factor) + u128::from(*word) + carry;
            *word = low_u64(sum & u128::from(u64::MAX));
            carry = sum >> 64;
        }
    }
}

/// The lowest `width` bits set.
#[inline]
pub(in crate::algorithm) const fn mask(width: u32) -> u64 {
    if width >= 64 {
        u64::MAX
    } else {
        (1 << width) - 1
    }
}
