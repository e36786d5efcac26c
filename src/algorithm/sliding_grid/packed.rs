//! The packed state of a grid, as a table stores it.

use super::state::{CellSums, SlidingGridState};
use crate::algorithm::math::{BitBuffer, MAX_WORDS, TIME_BITS, bit_width, mask, words_for_bits};
use crate::quota::Quota;

/// The bit layout of a state: the sums are the lowest bits, the first sum lowest of all, and the
/// cell is the highest bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) word_count: usize,
    /// The width of a sum in bits, and its largest value.
    sum_bits: u32,
    sum_mask: u64,
    /// The position of the cell in the first word, the bits below it, and the largest cell.
    cell_shift: u32,
    first_word_mask: u64,
    pub(super) max_cell: u64,
    /// The value 1 in every sum.
    one_per_sum: [u64; MAX_WORDS],
}

impl Layout {
    #[expect(clippy::cast_possible_truncation, reason = "at most 61 cells count")]
    pub(super) const fn new(quota: &Quota, counted: u64, length: u64) -> Self {
        let sum_bits = bit_width(quota.limit());
        // One more cell if an offset begins the first cell before zero.
        let cell_bits = bit_width((1 << TIME_BITS) / length + 1);
        let sums = counted as u32 * sum_bits;
        let mut one_per_sum = [0; MAX_WORDS];
        let mut at = 0;
        while at < sums && at < 64 * MAX_WORDS as u32 {
            one_per_sum[(at / 64) as usize] |= 1 << (at % 64);
            at += sum_bits;
        }
        Self {
            word_count: words_for_bits(cell_bits + sums),
            sum_bits,
            sum_mask: mask(sum_bits),
            cell_shift: 63 - cell_bits,
            first_word_mask: mask(63 - cell_bits),
            max_cell: mask(cell_bits),
            one_per_sum,
        }
    }

    #[inline]
    pub(super) fn pack(&self, state: &SlidingGridState, sums: usize, words: &mut [u64]) -> bool {
        let Some(words) = words.get_mut(..self.word_count) else {
            return false;
        };
        if words.len() > MAX_WORDS || state.sum_after(0) > self.sum_mask {
            return false;
        }
        let mut buffer = BitBuffer::from_words(&[]);
        let mut at = 0;
        for sum in state.sums.iter().take(sums) {
            buffer.put(at, *sum);
            at += self.sum_bits;
        }
        buffer.write(words);
        if let Some(first) = words.first_mut() {
            *first |= state.cell << self.cell_shift;
        }
        state.cell <= self.max_cell
    }

    /// Reads a state into `state`, whose sums are zero.
    #[inline]
    pub(super) fn unpack(&self, words: &[u64], sums: usize, state: &mut SlidingGridState) {
        let words = words.get(..self.word_count).unwrap_or(words);
        let buffer = BitBuffer::from_words(words);
        state.cell = words.first().copied().unwrap_or_default() >> self.cell_shift;
        let mut at = 0;
        for sum in state.sums.iter_mut().take(sums) {
            *sum = buffer.get(at, self.sum_bits);
            at += self.sum_bits;
        }
    }
}

/// A packed state, on which the grid decides without unpacking the sums.
pub(super) struct PackedSums<'a> {
    words: &'a mut [u64],
    cell: u64,
    /// The words without the cell.
    sums: &'a mut BitBuffer,
    layout: &'a Layout,
}

impl<'a> PackedSums<'a> {
    /// Splits the cell from the first word.
    #[expect(clippy::inline_always, reason = "so that the words stay in registers")]
    #[inline(always)]
    pub(super) fn split(layout: &Layout, words: &[u64]) -> (u64, BitBuffer) {
        let first = words.first().copied().unwrap_or_default();
        let sums = BitBuffer::with_first_word(words, first & layout.first_word_mask);
        (first >> layout.cell_shift, sums)
    }

    #[expect(clippy::inline_always, reason = "so that the words stay in registers")]
    #[inline(always)]
    pub(super) const fn new(
        words: &'a mut [u64],
        cell: u64,
        sums: &'a mut BitBuffer,
        layout: &'a Layout,
    ) -> Self {
        Self {
            words,
            cell,
            sums,
            layout,
        }
    }

    /// The position of a sum in bits.
    #[expect(clippy::cast_possible_truncation, reason = "at most 61 cells count")]
    #[inline]
    const fn bit_offset(&self, elapsed: u64) -> u32 {
        elapsed as u32 * self.layout.sum_bits
    }
}

impl CellSums for PackedSums<'_> {
    #[inline]
    fn newest_cell(&self) -> u64 {
        self.cell
    }

    #[inline]
    fn sum_after(&self, elapsed: u64) -> u64 {
        self.sums.word_at(self.bit_offset(elapsed)) & self.layout.sum_mask
    }

    /// No sum overflows into the next one: all stay within the limit.
    #[expect(clippy::inline_always, reason = "so that the words stay in registers")]
    #[inline(always)]
    fn record(&mut self, cell: u64, elapsed: u64, _: u64, cost: u64) {
        if elapsed > 0 {
            self.sums.shift(self.bit_offset(elapsed));
        }
        self.sums.add_scaled(&self.layout.one_per_sum, cost);
        self.sums.write(self.words);
        if let Some(first) = self.words.first_mut() {
            *first |= cell << self.layout.cell_shift;
        }
    }
}
