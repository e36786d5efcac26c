//! States as words of a table: fields of so many bits, one after the other.
//!
//! The highest bit of the first word stays zero.

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

/// Writes fields, given each with its width; false if one does not fit.
#[inline]
pub(super) fn write(words: &mut [u64], fields: impl IntoIterator<Item = (u64, u32)>) -> bool {
    words.fill(0);
    let mut at = 0;
    for (value, width) in fields {
        if width < 64 && value >> width != 0 {
            return false;
        }
        let (word, shift, room) = place(at);
        let Some(first) = words.get_mut(word) else {
            return false;
        };
        *first |= value << shift & mask(shift + room);
        if width > room {
            let Some(second) = words.get_mut(word + 1) else {
                return false;
            };
            *second |= value >> room;
        }
        at += width;
    }
    true
}

/// Reads the fields that [`write`] wrote, one after the other.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    words: &'a [u64],
    at: u32,
}

impl<'a> Reader<'a> {
    #[inline]
    pub(super) const fn new(words: &'a [u64]) -> Self {
        Self { words, at: 0 }
    }

    /// The next field; zero beyond the end.
    #[inline]
    pub(super) fn take(&mut self, width: u32) -> u64 {
        let (word, shift, room) = place(self.at);
        self.at += width;
        let part = |at: usize| self.words.get(at).copied().unwrap_or_default();
        let mut value = (part(word) & mask(shift + room)) >> shift;
        if width > room {
            value |= part(word + 1) << room;
        }
        value & mask(width)
    }
}

/// The word and the bit at which a field begins, and how many bits that word still has.
#[inline]
const fn place(at: u32) -> (usize, u32, u32) {
    if at < 63 {
        (0, at, 63 - at)
    } else {
        let at = at - 63;
        (1 + (at / 64) as usize, at % 64, 64 - at % 64)
    }
}

#[inline]
const fn mask(width: u32) -> u64 {
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
