//! States as words of a table: fields of so many bits, one after the other, from the lowest bit of
//! the last word up.
//!
//! The highest bit of the first word stays zero.

use super::interval::low;

/// A moment within two years of a process's clock (see `MonotonicClock`) takes this many bits.
/// Later ones need not fit: a state that does not pack stands in memory of its own.
pub(super) const TIME_BITS: u32 = 56;

/// How many words so many bits take.
pub(super) const fn words(bits: u32) -> usize {
    (bits as usize + 1).div_ceil(64)
}

/// How many bits the numbers up to `most` take.
pub(super) const fn bits(most: u64) -> u32 {
    u64::BITS - most.leading_zeros()
}

/// The words of a state as one long number. The last of them is its lowest, so that the bit that
/// stays zero is its highest and no field has to step over it.
#[derive(Clone, Copy, Debug)]
pub(super) struct BitBuffer {
    /// The lowest first; above those of the state there are zeros to shift in.
    words: [u64; 2 * MAX_WORDS],
}

/// The most words that a table has room for in a slot.
pub(super) const MAX_WORDS: usize = 4;

impl BitBuffer {
    #[inline]
    pub(super) fn of(words: &[u64]) -> Self {
        let mut row = Self {
            words: [0; 2 * MAX_WORDS],
        };
        for (word, given) in row.words.iter_mut().zip(words.iter().rev().take(MAX_WORDS)) {
            *word = *given;
        }
        row
    }

    /// The same with another first word.
    #[inline]
    pub(super) fn with_first(words: &[u64], first: u64) -> Self {
        let mut row = Self::of(words);
        if let Some(word) = row.words.get_mut(words.len().wrapping_sub(1)) {
            *word = first;
        }
        row
    }

    /// Puts them back where they came from.
    #[inline]
    pub(super) fn write(&self, words: &mut [u64]) {
        for (word, own) in words.iter_mut().rev().zip(&self.words) {
            *word = *own;
        }
    }

    /// The word that bit `at` is in, and its place there.
    #[inline]
    const fn place(at: u32) -> (usize, u32) {
        ((at / 64) as usize % MAX_WORDS, at % 64)
    }

    /// The 64 bits that begin at this place.
    #[inline]
    const fn at(&self, word: usize, shift: u32) -> u64 {
        // Never a shift by 64.
        self.words[word] >> shift | self.words[word + 1] << 1 << (63 - shift)
    }

    /// The 64 bits from bit `at` on.
    #[inline]
    pub(super) const fn from(&self, at: u32) -> u64 {
        let (word, shift) = Self::place(at);
        self.at(word, shift)
    }

    /// The field of `width` bits that begins at bit `at`.
    #[inline]
    pub(super) const fn get(&self, at: u32, width: u32) -> u64 {
        self.from(at) & mask(width)
    }

    /// Sets the field that begins at bit `at`, which is still zero, to `value`, which fits.
    #[inline]
    pub(super) const fn put(&mut self, at: u32, value: u64) {
        let (word, shift) = Self::place(at);
        self.words[word] |= value << shift;
        self.words[word + 1] |= value >> 1 >> (63 - shift);
    }

    /// Moves all bits down by so many; the lowest ones fall off.
    #[inline]
    pub(super) fn shift(&mut self, by: u32) {
        let (first, shift) = Self::place(by);
        let from = *self;
        for (at, word) in self.words.iter_mut().enumerate().take(MAX_WORDS) {
            *word = from.at(first + at, shift);
        }
    }

    /// Adds `factor` times `number`; what passes the highest bit is lost.
    #[inline]
    pub(super) fn add(&mut self, number: &[u64; MAX_WORDS], factor: u64) {
        let mut carry = 0;
        for (word, times) in self.words.iter_mut().zip(number) {
            // Two words, and a product of two, fit in 128 bits.
            let sum = u128::from(*times) * u128::from(factor) + u128::from(*word) + carry;
            *word = low(sum & u128::from(u64::MAX));
            carry = sum >> 64;
        }
    }
}

/// Writes fields, given each with its width; false if one does not fit.
#[inline]
pub(super) fn write(words: &mut [u64], fields: impl IntoIterator<Item = (u64, u32)>) -> bool {
    let room = (64 * words.len().min(MAX_WORDS)).saturating_sub(1);
    let mut row = BitBuffer::of(&[]);
    let mut at = 0;
    for (value, width) in fields {
        if value > mask(width) || (at + width) as usize > room {
            return false;
        }
        row.put(at, value);
        at += width;
    }
    row.write(words);
    true
}

/// Reads the fields that [`write`] wrote, one after the other.
#[derive(Debug)]
pub(super) struct BitReader {
    row: BitBuffer,
    at: u32,
}

impl BitReader {
    #[inline]
    pub(super) fn new(words: &[u64]) -> Self {
        Self {
            row: BitBuffer::of(words),
            at: 0,
        }
    }

    /// The next field.
    #[inline]
    pub(super) fn take(&mut self, width: u32) -> u64 {
        let at = self.at;
        self.at += width;
        self.row.get(at, width)
    }
}

/// That many ones.
#[inline]
pub(super) const fn mask(width: u32) -> u64 {
    if width >= 64 {
        u64::MAX
    } else {
        (1 << width) - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_all_widths_come_back_and_leave_the_first_bit_free() {
        for widths in [
            [1, 62, 64, 63],
            [63, 64, 1, 1],
            [7, 60, 60, 64],
            [64, 64, 3, 20],
        ] {
            let fields = widths.map(|width| (mask(width) - (u64::from(width) & 1), width));
            let mut packed = [0; 4];
            assert!(write(&mut packed, fields));
            assert!(packed[0] < 1 << 63);
            let mut reader = BitReader::new(&packed);
            for (value, width) in fields {
                assert_eq!(reader.take(width), value, "{widths:?}");
            }
        }
        assert!(!write(&mut [0], [(4, 2)]), "too large a value");
        assert!(!write(&mut [0], [(1, 40), (1, 40)]), "too few words");
    }
}
