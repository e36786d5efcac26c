//! The state of a grid in memory.

use crate::clock::Tick;

/// The most cells that a window may have.
pub(super) const MAX_CELLS: usize = 60;

/// The state of a key under [`SlidingGrid`](crate::SlidingGrid).
///
/// Sums instead of counts: the usage at a time is one sum, elapsed cells shift the sums, a cost is
/// added to all of them, and a refund, newest cost first, is taken from all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingGridState {
    /// The newest cell with a count.
    pub(super) cell: u64,
    /// At index n, the usage when n cells have elapsed since that one. The sums decrease and are
    /// zero from the number of counted cells on.
    pub(super) sums: [u64; MAX_CELLS + 1],
}

#[expect(clippy::cast_possible_truncation, reason = "at most 61 cells count")]
impl SlidingGridState {
    /// Moves on by `elapsed` cells, dropping what has left the window.
    #[inline]
    pub(super) fn advance_to(&mut self, cell: u64, elapsed: u64) {
        let elapsed = (elapsed as usize).min(self.sums.len());
        if elapsed > 0 {
            self.sums.copy_within(elapsed.., 0);
            let left = self.sums.len() - elapsed;
            self.sums[left..].fill(0);
        }
        self.cell = cell;
    }

    /// Takes `cost` from the counts of cells that are at least `age` cells old, newest first.
    pub(super) fn refund(&mut self, counted: u64, age: u64, cost: u64) {
        let Some(oldest) = counted.checked_sub(age + 1) else {
            return;
        };
        // The younger cells, which are all that counts later.
        let kept = self.sum_after(oldest + 1);
        for (_, sum) in (0..=oldest).zip(&mut self.sums) {
            let refundable = sum.saturating_sub(kept);
            *sum -= refundable.min(cost);
        }
    }

    #[inline]
    pub(super) fn add(&mut self, counted: u64, cost: u64) {
        for sum in self.sums.iter_mut().take(counted as usize) {
            *sum = sum.saturating_add(cost).min(Tick::MAX.as_nanos());
        }
    }

    /// The usage when this many cells have elapsed since the newest one.
    #[inline]
    pub(super) fn sum_after(&self, elapsed: u64) -> u64 {
        self.sums.get(elapsed as usize).copied().unwrap_or_default()
    }
}
