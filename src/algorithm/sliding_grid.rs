//! A window that slides cell by cell.

use std::time::Duration;

use super::packing::{self, Bits, mask};
use super::{Algorithm, Inherit, windows::Windows};
use crate::clock::{Tick, nanos};
use crate::decision::{Decision, Verdict};
use crate::error::ConfigError;
use crate::quota::Quota;

/// At most L in the present cell and the G - 1 before it, each W/G long.
///
/// Finer than [`FixedWindow`](crate::FixedWindow), and unlike
/// [`SlidingWindow`](crate::SlidingWindow) it counts what really came. At most L pass in any
/// `W(1 - 1/G)`. A whole W may see more, because the oldest cell leaves as a whole;
/// [`strict`](Self::strict) keeps one more cell and so the full promise: at most L in any W.
///
/// A period that G does not divide has cells of the next longer whole nanosecond, so the window is
/// never shorter than W.
///
/// ```text
/// limit 4, 4 cells      |  2 |    |  1 |  1 | now       full
///                            |    |  1 |  1 |    | now  the cell of 2 has left: 2 pass
/// ```
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::{Limiter, ManualClock, Quota, SlidingGrid};
///
/// let clock = ManualClock::new();
/// let grid = SlidingGrid::new(Quota::per_minute(4)).cells(4);
/// let limiter = Limiter::with_clock(grid, clock.clone());
/// assert!(limiter.check_n(4).is_admitted());
/// assert_eq!(limiter.check().retry_after, Some(Duration::from_secs(60)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingGrid {
    quota: Quota,
    cells: u64,
    strict: bool,
    /// Where cells begin and how long they are.
    grid: Windows,
    widths: Widths,
}

/// The bits of a state in a table. First comes the cell's number, then the total of all counts if
/// it takes no word of its own, then the counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Widths {
    cell: u32,
    /// None if it is not kept.
    total: u32,
    count: u32,
}

/// What [`SlidingGrid`] remembers of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingGridState {
    /// The newest cell that anything was counted in.
    cell: u64,
    /// The count of cell c stands at c modulo the number of cells that count.
    counts: [u64; SlidingGrid::MAX_CELLS + 1],
}

impl SlidingGrid {
    /// The most cells that a window may have.
    pub const MAX_CELLS: usize = 60;

    /// Ten cells, aligned to the clock; the burst is not used.
    pub const fn new(quota: Quota) -> Self {
        Self::build(quota, 10, false, 0)
    }

    /// How many cells the window has.
    ///
    /// # Panics
    /// If that is 0 or above [`MAX_CELLS`](Self::MAX_CELLS); [`try_cells`](Self::try_cells)
    /// answers with an error instead.
    #[must_use]
    #[track_caller]
    pub fn cells(self, cells: usize) -> Self {
        self.try_cells(cells)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// How many cells the window has, for a number that comes from elsewhere.
    ///
    /// # Errors
    /// If that is 0 or above [`MAX_CELLS`](Self::MAX_CELLS).
    pub fn try_cells(self, cells: usize) -> Result<Self, ConfigError> {
        if (1..=Self::MAX_CELLS).contains(&cells) {
            Ok(Self::build(
                self.quota,
                cells as u64,
                self.strict,
                self.grid.offset(),
            ))
        } else {
            Err(ConfigError::out_of_range(
                "cells",
                cells,
                "a number from 1 to 60",
            ))
        }
    }

    /// Counts one whole cell more, so that at most L pass in any W.
    #[must_use]
    pub const fn strict(self) -> Self {
        Self::build(self.quota, self.cells, true, self.grid.offset())
    }

    /// Lets cells begin at `offset + k * W/G`.
    #[must_use]
    pub fn offset(self, offset: Duration) -> Self {
        Self::build(self.quota, self.cells, self.strict, nanos(offset))
    }

    const fn build(quota: Quota, cells: u64, strict: bool, offset: u64) -> Self {
        let grid = Windows::new(quota.period_ns().div_ceil(cells), offset);
        Self {
            widths: Widths::of(&quota, cells + strict as u64, grid.length()),
            grid,
            quota,
            cells,
            strict,
        }
    }

    /// How many cells count at a time.
    #[inline]
    const fn counted(&self) -> u64 {
        self.cells + self.strict as u64
    }

    #[expect(clippy::cast_possible_truncation, reason = "a remainder of at most 61")]
    #[inline]
    const fn slot(&self, cell: u64) -> usize {
        (cell % self.counted()) as usize
    }

    /// The slot after this one, around the end.
    #[inline]
    const fn after(&self, slot: usize) -> usize {
        if slot as u64 + 1 == self.counted() {
            0
        } else {
            slot + 1
        }
    }

    /// The cell of `now`, or the state's where that is newer.
    #[inline]
    fn present(&self, state: &impl Cells, now: Tick) -> u64 {
        self.grid.locate(now).0.max(state.cell())
    }

    /// The counts that matter in the cell `present`, the oldest first, each with the cell in which
    /// it stops to matter.
    #[inline]
    fn counts<'a, C: Cells>(
        &self,
        state: &'a C,
        present: u64,
    ) -> impl Iterator<Item = (u64, u64)> + use<'a, C> {
        let left = (present - state.cell()).min(self.counted());
        self.counts_since(state, left, self.slot(state.cell() + left))
    }

    /// The same where `left` counts have left, the last one of them from `slot`.
    #[inline]
    fn counts_since<'a, C: Cells>(
        &self,
        state: &'a C,
        left: u64,
        mut slot: usize,
    ) -> impl Iterator<Item = (u64, u64)> + use<'a, C> {
        // From the slot after the newest one, which is the oldest, around to the newest.
        let (newest, grid) = (state.cell(), *self);
        (left..self.counted()).map(move |passed| {
            slot = grid.after(slot);
            (newest + 1 + passed, state.count(slot))
        })
    }

    /// Moves the grid on to `now`, dropping the counts that have left.
    fn advance(&self, state: &mut SlidingGridState, now: Tick) {
        let (present, newest) = (self.present(state, now), state.cell);
        let mut slot = self.slot(newest);
        for _ in 0..(present - newest).min(self.counted()) {
            slot = self.after(slot);
            state.counts[slot] = 0;
        }
        state.cell = present;
    }

    #[inline]
    fn used(&self, state: &impl Cells, present: u64) -> u64 {
        self.counts(state, present)
            .fold(0, |used, (_, count)| used.saturating_add(count))
    }

    /// When enough of the oldest `counts` have left to bring `used` down to `room`.
    #[inline]
    fn until_falls_to(
        &self,
        counts: impl Iterator<Item = (u64, u64)>,
        mut used: u64,
        room: u64,
        now: Tick,
    ) -> u64 {
        if used > room {
            for (leaves, count) in counts {
                used = used.saturating_sub(count);
                if used <= room {
                    return self.grid.until(leaves, 0, now);
                }
            }
        }
        0
    }

    #[inline]
    fn decide_on(&self, state: &mut impl Cells, now: Tick, cost: u64) -> Decision {
        let limit = self.quota.limit();
        let (present, newest) = (self.present(state, now), state.cell());
        let left = (present - newest).min(self.counted());
        let from = self.slot(newest);
        let last = state.count(from);
        let used = match state.total() {
            // All of it came in one cell, as it does where a crowd comes at once.
            Some(total) if total == last && left < self.counted() => total,
            Some(total) => total.saturating_sub(self.sum_of_first(state, from, left)),
            None => self.used(state, present),
        };
        let remaining = limit.saturating_sub(used);
        if cost > 0 && cost <= remaining {
            let mut empty = from;
            for _ in 0..left {
                empty = self.after(empty);
                state.set(empty, 0);
            }
            state.go_to(present);
            let slot = self.slot(present);
            state.set(slot, state.count(slot) + cost);
            state.set_total(used + cost);
            let reset_after = self.grid.until(present + self.counted(), 0, now);
            return Decision::new(Verdict::Admit, limit, remaining - cost, None, reset_after);
        }
        // As a rule the newest cell holds something, and is the last to leave.
        let all_left = self.grid.until(newest + self.counted(), 0, now);
        let slot = self.slot(newest + left);
        let reset_after = if used > 0 && last > 0 {
            all_left
        } else {
            self.until_falls_to(self.counts_since(state, left, slot), used, 0, now)
        };
        if cost == 0 {
            return Decision::new(Verdict::Admit, limit, remaining, None, reset_after);
        }
        // A denial drops nothing: a request whose moment is older may still need it.
        let retry_after = (cost <= limit).then(|| {
            let room = limit - cost;
            if last > room {
                // It has to leave too, whatever left before it.
                return all_left;
            }
            let counts = self.counts_since(state, left, slot);
            self.until_falls_to(counts, used, room, now)
        });
        Decision::new(Verdict::Deny, limit, remaining, retry_after, reset_after)
    }

    /// What the first `left` cells after the one of slot `from` hold.
    fn sum_of_first(&self, state: &impl Cells, from: usize, left: u64) -> u64 {
        let (mut slot, mut sum) = (from, 0);
        for _ in 0..left {
            slot = self.after(slot);
            sum = state.count(slot).saturating_add(sum);
        }
        sum
    }
}

impl Widths {
    const fn of(quota: &Quota, counted: u64, length: u64) -> Self {
        let mut widths = Self {
            cell: packing::bits((1 << packing::TIME_BITS) / length),
            total: 0,
            count: packing::bits(quota.limit()),
        };
        let without = packing::words(widths.bits(counted));
        widths.total = widths.count;
        if packing::words(widths.bits(counted)) > without {
            widths.total = 0;
        }
        widths
    }

    #[expect(clippy::cast_possible_truncation, reason = "at most 61 cells count")]
    const fn bits(&self, counted: u64) -> u32 {
        self.cell + self.total + counted as u32 * self.count
    }
}

/// A state, packed or not.
trait Cells {
    /// The newest cell that anything was counted in.
    fn cell(&self) -> u64;
    fn go_to(&mut self, cell: u64);
    fn count(&self, slot: usize) -> u64;
    fn set(&mut self, slot: usize, count: u64);
    /// The sum of all counts, where it is kept.
    fn total(&self) -> Option<u64>;
    fn set_total(&mut self, total: u64);
}

impl Cells for SlidingGridState {
    #[inline]
    fn cell(&self) -> u64 {
        self.cell
    }

    #[inline]
    fn go_to(&mut self, cell: u64) {
        self.cell = cell;
    }

    #[inline]
    fn count(&self, slot: usize) -> u64 {
        self.counts[slot]
    }

    #[inline]
    fn set(&mut self, slot: usize, count: u64) {
        self.counts[slot] = count;
    }

    #[inline]
    fn total(&self) -> Option<u64> {
        None
    }

    #[inline]
    fn set_total(&mut self, _: u64) {}
}

struct Packed {
    bits: Bits,
    widths: Widths,
}

impl Packed {
    #[expect(clippy::cast_possible_truncation, reason = "a slot is below 61")]
    #[inline]
    const fn at(&self, slot: usize) -> u32 {
        self.widths.cell + self.widths.total + slot as u32 * self.widths.count
    }
}

impl Cells for Packed {
    #[inline]
    fn cell(&self) -> u64 {
        self.bits.get(0, self.widths.cell)
    }

    #[inline]
    fn go_to(&mut self, cell: u64) {
        let width = self.widths.cell;
        self.bits.put(0, width, cell & mask(width));
    }

    #[inline]
    fn count(&self, slot: usize) -> u64 {
        self.bits.get(self.at(slot), self.widths.count)
    }

    #[inline]
    fn set(&mut self, slot: usize, count: u64) {
        self.bits.put(self.at(slot), self.widths.count, count);
    }

    #[inline]
    fn total(&self) -> Option<u64> {
        let Widths { cell, total, .. } = self.widths;
        (total > 0).then(|| self.bits.get(cell, total))
    }

    #[inline]
    fn set_total(&mut self, sum: u64) {
        let Widths { cell, total, .. } = self.widths;
        if total > 0 {
            self.bits.put(cell, total, sum);
        }
    }
}

impl Algorithm for SlidingGrid {
    type State = SlidingGridState;

    fn quota(&self) -> Quota {
        self.quota
    }

    fn with_quota(&self, quota: Quota) -> Result<Self, ConfigError> {
        Ok(Self::build(
            quota,
            self.cells,
            self.strict,
            self.grid.offset(),
        ))
    }

    #[inline]
    fn fresh(&self, _now: Tick) -> SlidingGridState {
        SlidingGridState {
            cell: 0,
            counts: [0; Self::MAX_CELLS + 1],
        }
    }

    #[inline]
    fn decide(&self, state: &mut SlidingGridState, now: Tick, cost: u64) -> Decision {
        self.decide_on(state, now, cost)
    }

    fn refund(&self, state: &mut SlidingGridState, now: Tick, mut cost: u64) {
        self.advance(state, now);
        // The newest first.
        for age in 0..self.counted() {
            let Some(cell) = state.cell.checked_sub(age) else {
                break;
            };
            let count = &mut state.counts[self.slot(cell)];
            let given = cost.min(*count);
            *count -= given;
            cost -= given;
        }
    }

    fn absorb(&self, state: &mut SlidingGridState, now: Tick, cost: u64) -> Duration {
        self.advance(state, now);
        let count = &mut state.counts[self.slot(state.cell)];
        *count = count.saturating_add(cost).min(Tick::MAX.as_nanos());
        let used = self.used(state, state.cell);
        let counts = self.counts(state, state.cell);
        Duration::from_nanos(self.until_falls_to(counts, used, self.quota.limit(), now))
    }

    fn rescale(&self, state: &mut SlidingGridState, from: &Self, now: Tick, inherit: Inherit) {
        if inherit == Inherit::Reset {
            *state = self.fresh(now);
        } else if self.grid != from.grid || self.counted() != from.counted() {
            from.advance(state, now);
            let used = from.used(state, state.cell);
            *state = self.fresh(now);
            self.advance(state, now);
            state.counts[self.slot(state.cell)] = used;
        }
    }

    fn forgettable_at(&self, state: &SlidingGridState) -> Tick {
        let age = (0..self.counted()).find(|age| {
            let cell = state.cell.checked_sub(*age);
            cell.is_some_and(|cell| state.counts[self.slot(cell)] > 0)
        });
        match age {
            Some(age) => self.grid.start(state.cell - age + self.counted()),
            None => Tick::ZERO,
        }
    }

    fn words(&self) -> usize {
        packing::words(self.widths.bits(self.counted()))
    }

    #[inline]
    fn pack_into(&self, state: &SlidingGridState, words: &mut [u64]) -> bool {
        let Widths { cell, total, count } = self.widths;
        let counts = &state.counts[..=self.slot(self.counted() - 1)];
        let sum = counts
            .iter()
            .fold(0, |sum: u64, count| sum.saturating_add(*count));
        let sum = if total > 0 { sum } else { 0 };
        let counts = counts.iter().map(|used| (*used, count));
        let fields = [(state.cell, cell), (sum, total)].into_iter().chain(counts);
        packing::write(words, fields)
    }

    /// A state has room for 61 counts, most of which a grid of ten cells would only clear and copy.
    #[expect(
        clippy::inline_always,
        reason = "so that the figures a caller does not read are not computed"
    )]
    #[inline(always)]
    fn decide_packed(&self, words: &mut [u64], now: Tick, cost: u64) -> Option<Decision> {
        let mut state = Packed {
            bits: Bits::of(words),
            widths: self.widths,
        };
        let decision = self.decide_on(&mut state, now, cost);
        state.bits.write(words);
        // What was counted is at most the limit and fits; far in the future its cell does not.
        (self.present(&state, now) >> self.widths.cell == 0).then_some(decision)
    }

    #[inline]
    fn unpack_from(&self, words: &[u64]) -> SlidingGridState {
        let Widths { cell, total, count } = self.widths;
        let mut reader = packing::Reader::new(words);
        let mut state = self.fresh(Tick::ZERO);
        state.cell = reader.take(cell);
        reader.take(total);
        for used in &mut state.counts[..=self.slot(self.counted() - 1)] {
            *used = reader.take(count);
        }
        state
    }
}

/// For a store elsewhere that decides by a script.
#[cfg(feature = "redis")]
impl SlidingGrid {
    /// The length and the offset of its cells, and how many of them count.
    pub(crate) const fn shape(&self) -> (u64, u64, u64) {
        (self.grid.length(), self.grid.offset(), self.counted())
    }

    /// The same grid with cells of this length and offset.
    pub(crate) const fn with_cells_of(mut self, length: u64, offset: u64) -> Self {
        self.grid = Windows::new(length, offset);
        self.widths = Widths::of(&self.quota, self.counted(), length);
        self
    }

    /// The state with these counts, the newest first.
    pub(crate) fn state(&self, cell: u64, counts: impl Iterator<Item = u64>) -> SlidingGridState {
        let mut state = self.fresh(Tick::ZERO);
        state.cell = cell;
        for (age, count) in (0..self.counted().min(cell + 1)).zip(counts) {
            state.counts[self.slot(cell - age)] = count;
        }
        state
    }
}
