//! A window that slides cell by cell.

use std::time::Duration;

use super::packing::{self, BitBuffer, mask};
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
    layout: Layout,
}

/// What [`SlidingGrid`] remembers of a key.
///
/// CellSums instead of counts: then what counts at a time is one of them, cells that pass shift them
/// all, what comes is added to all, and what is given back, the newest first, is taken from all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingGridState {
    /// The newest cell that anything was counted in.
    cell: u64,
    /// At p, what counts once p cells have passed since that one. They fall, and those from the
    /// number of cells that count on are zero.
    sums: [u64; SlidingGrid::MAX_CELLS + 1],
}

/// Where a state in a table has its parts: the sums are its lowest bits, the first one the lowest
/// of all, and the cell its highest ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    words: usize,
    /// The bits of a sum, and the largest one.
    width: u32,
    largest: u64,
    /// The cell's place in its word, what is below it there, and the last one that fits.
    cell: u32,
    below: u64,
    last: u64,
    /// One in every sum.
    ones: [u64; packing::MAX_WORDS],
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
            layout: Layout::of(&quota, cells + strict as u64, grid.length()),
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

    /// As many as that, as a number of sums.
    #[expect(clippy::cast_possible_truncation, reason = "at most 61 cells count")]
    #[inline]
    const fn slots(&self) -> usize {
        self.counted() as usize
    }

    /// The cell of `now`, or the state's where that is newer.
    #[inline]
    fn present(&self, state: &impl CellSums, now: Tick) -> u64 {
        self.grid.locate(now).0.max(state.cell())
    }

    /// How many cells have passed since the state's, as far as that matters.
    #[inline]
    fn passed(&self, state: &impl CellSums, present: u64) -> u64 {
        (present - state.cell()).min(self.counted())
    }

    /// How long until enough has left to bring what counts, which is more, down to `room`.
    #[inline]
    fn nanos_until_usage(&self, state: &impl CellSums, room: u64, now: Tick) -> u64 {
        let passed = self.falls_to(state, room);
        self.grid.until(state.cell() + passed, 0, now)
    }

    /// How many cells have passed when at most `room` counts.
    #[inline]
    fn falls_to(&self, state: &impl CellSums, room: u64) -> u64 {
        // More than `room` before `least`, no more from `most` on.
        let (mut least, mut most) = (0, self.counted());
        // 62 answers are halved six times. A loop that is known to end costs nothing where nobody
        // reads its answer.
        for _ in 0..6 {
            if least == most {
                break;
            }
            let middle = u64::midpoint(least, most);
            if state.sum(middle) > room {
                least = middle + 1;
            } else {
                most = middle;
            }
        }
        most
    }

    #[expect(clippy::inline_always, reason = "as for `decide_packed`")]
    #[inline(always)]
    fn decide_with_sums(
        &self,
        state: &mut impl CellSums,
        present: u64,
        now: Tick,
        cost: u64,
    ) -> Decision {
        let limit = self.quota.limit();
        let passed = self.passed(state, present);
        let used = state.sum(passed);
        let remaining = limit.saturating_sub(used);
        if cost > 0 && cost <= remaining {
            state.take(present, passed, self.counted(), cost);
            let reset_after = self.grid.until(present + self.counted(), 0, now);
            return Decision::new(Verdict::Admit, limit, remaining - cost, None, reset_after);
        }
        let reset_after = if used > 0 {
            self.nanos_until_usage(state, 0, now)
        } else {
            0
        };
        if cost == 0 {
            return Decision::new(Verdict::Admit, limit, remaining, None, reset_after);
        }
        // A denial drops nothing: a request whose moment is older may still need it.
        let retry_after = (cost <= limit).then(|| self.nanos_until_usage(state, limit - cost, now));
        Decision::new(Verdict::Deny, limit, remaining, retry_after, reset_after)
    }

    /// Moves the state on to `now`, dropping what has left.
    fn advance(&self, state: &mut SlidingGridState, now: Tick) {
        let present = self.present(state, now);
        state.go_to(present, self.passed(state, present));
    }
}

impl Layout {
    #[expect(clippy::cast_possible_truncation, reason = "at most 61 cells count")]
    const fn of(quota: &Quota, counted: u64, length: u64) -> Self {
        let width = packing::bits(quota.limit());
        // One more where an offset begins the first cell before zero.
        let cell = packing::bits((1 << packing::TIME_BITS) / length + 1);
        let sums = counted as u32 * width;
        let mut ones = [0; packing::MAX_WORDS];
        let mut at = 0;
        while at < sums && at < 64 * packing::MAX_WORDS as u32 {
            ones[(at / 64) as usize] |= 1 << (at % 64);
            at += width;
        }
        Self {
            words: packing::words(cell + sums),
            width,
            largest: mask(width),
            cell: 63 - cell,
            below: mask(63 - cell),
            last: mask(cell),
            ones,
        }
    }
}

/// A state, packed or not.
trait CellSums {
    /// The newest cell that anything was counted in.
    fn cell(&self) -> u64;
    /// What counts once so many cells have passed since.
    fn sum(&self, passed: u64) -> u64;
    /// Counts `cost` in `cell`, so many cells further on, where there is room for it; so many of
    /// the sums matter.
    fn take(&mut self, cell: u64, passed: u64, counted: u64, cost: u64);
}

#[expect(clippy::cast_possible_truncation, reason = "at most 61 cells count")]
impl SlidingGridState {
    #[inline]
    fn go_to(&mut self, cell: u64, passed: u64) {
        let passed = (passed as usize).min(self.sums.len());
        if passed > 0 {
            self.sums.copy_within(passed.., 0);
            let left = self.sums.len() - passed;
            self.sums[left..].fill(0);
        }
        self.cell = cell;
    }

    #[inline]
    fn add(&mut self, counted: u64, cost: u64) {
        for sum in self.sums.iter_mut().take(counted as usize) {
            *sum = sum.saturating_add(cost).min(Tick::MAX.as_nanos());
        }
    }
}

impl CellSums for SlidingGridState {
    #[inline]
    fn cell(&self) -> u64 {
        self.cell
    }

    #[expect(clippy::cast_possible_truncation, reason = "at most 61 cells count")]
    #[inline]
    fn sum(&self, passed: u64) -> u64 {
        self.sums.get(passed as usize).copied().unwrap_or_default()
    }

    #[inline]
    fn take(&mut self, cell: u64, passed: u64, counted: u64, cost: u64) {
        self.go_to(cell, passed);
        self.add(counted, cost);
    }
}

struct PackedSums<'a> {
    words: &'a mut [u64],
    cell: u64,
    /// The words without the cell.
    sums: &'a mut BitBuffer,
    layout: &'a Layout,
}

impl PackedSums<'_> {
    /// Where a sum is.
    #[expect(clippy::cast_possible_truncation, reason = "at most 61 cells count")]
    #[inline]
    const fn place(&self, passed: u64) -> u32 {
        passed as u32 * self.layout.width
    }
}

impl CellSums for PackedSums<'_> {
    #[inline]
    fn cell(&self) -> u64 {
        self.cell
    }

    #[inline]
    fn sum(&self, passed: u64) -> u64 {
        self.sums.from(self.place(passed)) & self.layout.largest
    }

    /// No sum flows over into the next one: all stay within the limit.
    #[expect(clippy::inline_always, reason = "so that the words stay in registers")]
    #[inline(always)]
    fn take(&mut self, cell: u64, passed: u64, _: u64, cost: u64) {
        if passed > 0 {
            self.sums.shift(self.place(passed));
        }
        self.sums.add(&self.layout.ones, cost);
        self.sums.write(self.words);
        if let Some(first) = self.words.first_mut() {
            *first |= cell << self.layout.cell;
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
            sums: [0; Self::MAX_CELLS + 1],
        }
    }

    #[inline]
    fn decide(&self, state: &mut SlidingGridState, now: Tick, cost: u64) -> Decision {
        self.decide_with_sums(state, self.present(state, now), now, cost)
    }

    fn refund(&self, state: &mut SlidingGridState, now: Tick, cost: u64) {
        self.advance(state, now);
        // The newest first: they are in every sum.
        for sum in &mut state.sums {
            *sum = sum.saturating_sub(cost);
        }
    }

    fn charge(&self, state: &mut SlidingGridState, now: Tick, cost: u64) -> Duration {
        self.advance(state, now);
        state.add(self.counted(), cost);
        let limit = self.quota.limit();
        Duration::from_nanos(if state.sum(0) > limit {
            self.nanos_until_usage(state, limit, now)
        } else {
            0
        })
    }

    fn rescale(&self, state: &mut SlidingGridState, from: &Self, now: Tick, inherit: Inherit) {
        if inherit == Inherit::Reset {
            *state = self.fresh(now);
        } else if self.grid != from.grid || self.counted() != from.counted() {
            from.advance(state, now);
            let used = state.sum(0);
            *state = self.fresh(now);
            self.advance(state, now);
            state.add(self.counted(), used);
        }
    }

    fn forgettable_at(&self, state: &SlidingGridState) -> Tick {
        if state.sum(0) == 0 {
            return Tick::ZERO;
        }
        self.grid.start(state.cell + self.falls_to(state, 0))
    }

    fn words(&self) -> usize {
        self.layout.words
    }

    #[inline]
    fn pack_into(&self, state: &SlidingGridState, words: &mut [u64]) -> bool {
        let layout = &self.layout;
        let Some(words) = words.get_mut(..layout.words) else {
            return false;
        };
        if words.len() > packing::MAX_WORDS || state.sum(0) > layout.largest {
            return false;
        }
        let mut row = BitBuffer::of(&[]);
        let mut at = 0;
        for sum in state.sums.iter().take(self.slots()) {
            row.put(at, *sum);
            at += layout.width;
        }
        row.write(words);
        if let Some(first) = words.first_mut() {
            *first |= state.cell << layout.cell;
        }
        state.cell <= layout.last
    }

    /// A state has room for 61 sums, most of which a grid of ten cells would only clear and copy.
    #[expect(
        clippy::inline_always,
        reason = "so that the figures a caller does not read are not computed"
    )]
    #[inline(always)]
    fn decide_packed(&self, words: &mut [u64], now: Tick, cost: u64) -> Option<Decision> {
        let (present, _) = self.grid.locate(now);
        // What is counted is at most the limit and fits; far in the future its cell does not.
        if words.len() != self.layout.words || present > self.layout.last {
            return None;
        }
        let first = words.first().copied().unwrap_or_default();
        let mut state = PackedSums {
            cell: first >> self.layout.cell,
            sums: &mut BitBuffer::with_first(words, first & self.layout.below),
            words,
            layout: &self.layout,
        };
        let present = present.max(state.cell);
        Some(self.decide_with_sums(&mut state, present, now, cost))
    }

    #[inline]
    fn unpack_from(&self, words: &[u64]) -> SlidingGridState {
        let Layout { width, cell, .. } = self.layout;
        let words = words.get(..self.layout.words).unwrap_or(words);
        let row = BitBuffer::of(words);
        let mut state = self.fresh(Tick::ZERO);
        state.cell = words.first().copied().unwrap_or_default() >> cell;
        let mut at = 0;
        for sum in state.sums.iter_mut().take(self.slots()) {
            *sum = row.get(at, width);
            at += width;
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
    pub(crate) const fn with_grid(mut self, length: u64, offset: u64) -> Self {
        self.grid = Windows::new(length, offset);
        self.layout = Layout::of(&self.quota, self.counted(), length);
        self
    }

    /// The state with these counts, the newest first.
    pub(crate) fn state(&self, cell: u64, counts: impl Iterator<Item = u64>) -> SlidingGridState {
        let mut state = self.fresh(Tick::ZERO);
        state.cell = cell;
        // None are older than the first cell of all.
        let mut counts = counts.take(
            usize::try_from(cell)
                .unwrap_or(usize::MAX)
                .saturating_add(1),
        );
        let mut sum = 0_u64;
        for place in state.sums.iter_mut().take(self.slots()).rev() {
            sum = counts.next().unwrap_or_default().saturating_add(sum);
            *place = sum;
        }
        state
    }
}
