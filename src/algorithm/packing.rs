//! States as words of a table: fields of so many bits, one after the other.
//!
//! The highest bit of the first word stays zero.

use super::pace::low;

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

/// The bits of a state in one row, without the one that stays zero.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bits {
    /// The last one is zero, so that every word has another one after it.
    row: [u64; MOST_WORDS + 1],
}

const MOST_WORDS: usize = 4;

impl Bits {
    #[inline]
    pub(super) fn of(words: &[u64]) -> Self {
        let word = |at: usize| words.get(at).copied().unwrap_or_default();
        let shifted = |at: usize| word(at) >> 1 | word(at + 1) << 63;
        Self {
            row: [
                word(0) & mask(63) | word(1) << 63,
                shifted(1),
                shifted(2),
                shifted(3),
                0,
            ],
        }
    }

    /// Puts them back where they came from.
    #[inline]
    pub(super) fn write(&self, words: &mut [u64]) {
        for (at, word) in words.iter_mut().enumerate().take(MOST_WORDS) {
            *word = match at {
                0 => self.row[0] & mask(63),
                at => self.row[at] << 1 | self.row[at - 1] >> 63,
            };
        }
    }

    /// The word that bit `at` is in, and its place there.
    #[inline]
    const fn place(at: u32) -> (usize, u32) {
        ((at / 64) as usize % MOST_WORDS, at % 64)
    }

    /// The field of `width` bits that begins at bit `at`.
    #[inline]
    pub(super) fn get(&self, at: u32, width: u32) -> u64 {
        let (word, shift) = Self::place(at);
        let pair = u128::from(self.row[word + 1]) << 64 | u128::from(self.row[word]);
        low(pair >> shift & u128::from(u64::MAX)) & mask(width)
    }

    /// Sets that field to `value`, which fits.
    #[inline]
    pub(super) fn put(&mut self, at: u32, width: u32, value: u64) {
        let (word, shift) = Self::place(at);
        let halves = |wide: u128| (low(wide & u128::from(u64::MAX)), low(wide >> 64));
        let (gone, gone_above) = halves(u128::from(mask(width)) << shift);
        let (new, new_above) = halves(u128::from(value) << shift);
        self.row[word] = self.row[word] & !gone | new;
        self.row[word + 1] = self.row[word + 1] & !gone_above | new_above;
    }
}

/// Writes fields, given each with its width; false if one does not fit.
#[inline]
pub(super) fn write(words: &mut [u64], fields: impl IntoIterator<Item = (u64, u32)>) -> bool {
    let room = (64 * words.len().min(MOST_WORDS)).saturating_sub(1);
    let mut bits = Bits::of(&[]);
    let mut at = 0;
    for (value, width) in fields {
        if value > mask(width) || (at + width) as usize > room {
            return false;
        }
        bits.put(at, width, value);
        at += width;
    }
    bits.write(words);
    true
}

/// Reads the fields that [`write`] wrote, one after the other.
#[derive(Debug)]
pub(super) struct Reader {
    bits: Bits,
    at: u32,
}

impl Reader {
    #[inline]
    pub(super) fn new(words: &[u64]) -> Self {
        Self {
            bits: Bits::of(words),
            at: 0,
        }
    }

    /// The next field.
    #[inline]
    pub(super) fn take(&mut self, width: u32) -> u64 {
        let at = self.at;
        self.at += width;
        self.bits.get(at, width)
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
            let mut reader = Reader::new(&packed);
            for (value, width) in fields {
                assert_eq!(reader.take(width), value, "{widths:?}");
            }
        }
        assert!(!write(&mut [0], [(4, 2)]), "too large a value");
        assert!(!write(&mut [0], [(1, 40), (1, 40)]), "too few words");
    }
}
