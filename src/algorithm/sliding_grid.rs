//! A window that slides cell by cell.

use std::time::Duration;

use super::fields::{self, Fields};
use super::setting::{OFFSET, Range, Setting};
use super::window::{Grid, decision};
use super::{Algorithm, Capabilities, Cost, Division, GiveBack, Turns, used_as};
use crate::clock::{Tick, nanos};
use crate::decision::Decision;
use crate::error::expect_valid;
use crate::quota::Quota;

/// Divides the period W into G cells. Admits a cost of at most the limit L in the current cell and
/// the G - 1 cells before it.
///
/// It is finer than [`FixedWindow`](crate::FixedWindow). It counts the cost per cell exactly, where
/// [`SlidingWindow`](crate::SlidingWindow) assumes that requests were spread evenly. At most L pass
/// in any `W(1 - 1/G)`. More may pass in a whole W, because the oldest cell expires as a whole.
/// [`strict`](Self::strict) keeps one more cell and the full promise: at most L in any W.
///
/// A cell is W/G long, rounded up to whole nanoseconds. So the cells together are never shorter
/// than W.
///
/// ```text
/// limit 4, 4 cells   |  2  |     |  1  |  1 ^|            now at ^: full
///                          |     |  1  |  1  |   ^ |      the cell of 2 has expired: 2 pass
/// ```
///
#[cfg_attr(doc, doc = crate::picture::picture!(
    "algorithms/sliding_grid.svg",
    "SlidingGrid and six kinds of traffic: with ten cells, a second has the limit or hardly more."
))]
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::{Limiter, ManualClock, Quota, SlidingGrid};
///
/// let clock = ManualClock::new();
/// let grid = SlidingGrid::new(Quota::per_minute(4)).cells(4);
/// let limiter = Limiter::new(grid).with_clock(clock.clone());
/// assert!(limiter.check(4).is_admitted());
/// assert_eq!(limiter.check(1).retry_after, Some(Duration::from_secs(60)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingGrid {
    quota: Quota,
    cells: u64,
    strict: bool,
    grid: Grid,
}

/// The state of a key under [`SlidingGrid`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlidingGridState {
    /// When the newest cell ends.
    end: u64,
    /// The sum of the counts, at most 2^63 - 1. An admission in the newest cell reads no other one.
    total: u64,
    /// The count of each cell, newest first; empty if nothing was ever counted.
    counts: Box<[u64]>,
}

const DEFAULT_CELLS: u64 = 10;
static CELLS: Setting = Setting::count("cells", Range::Number(1, SlidingGrid::MAX_CELLS as u64));
static STRICT: Setting = Setting::one_of("strict", &["false", "true"]);

impl SlidingGrid {
    /// The most cells that a window may have.
    const MAX_CELLS: usize = 60;

    /// Creates a grid of ten cells. A cell begins at the zero of the limiter's clock. A quota with a
    /// burst is refused when a limiter is built.
    pub const fn new(quota: Quota) -> Self {
        Self::build(quota, DEFAULT_CELLS, false, 0)
    }

    /// Sets the number of cells.
    ///
    /// # Panics
    /// If that is 0 or above 60.
    #[must_use]
    #[track_caller]
    pub fn cells(self, cells: usize) -> Self {
        expect_valid(fields::set(self, CELLS.name, cells as u64))
    }

    /// Counts one whole cell more, so that at most L pass in any W.
    #[must_use]
    pub const fn strict(self) -> Self {
        Self::build(self.quota, self.cells, true, self.grid.offset)
    }

    /// Moves the start of the cells: one begins at `offset` after the zero of the limiter's clock.
    #[must_use]
    pub fn offset(self, offset: Duration) -> Self {
        Self::build(self.quota, self.cells, self.strict, nanos(offset))
    }

    const fn build(quota: Quota, cells: u64, strict: bool, offset: u64) -> Self {
        let grid = Grid::new(quota.period_ns().div_ceil(cells), offset);
        Self {
            quota,
            cells,
            strict,
            grid,
        }
    }

    /// How many cells are summed up: one more if strict.
    #[expect(clippy::cast_possible_truncation, reason = "at most 61 cells count")]
    #[inline]
    const fn counted(&self) -> usize {
        (self.cells + self.strict as u64) as usize
    }

    /// When the cell of `now` ends, or the newest one if that is later, and how many cells that is after the newest
    /// one, at most all that count.
    #[inline]
    fn elapsed(&self, state: &SlidingGridState, now: Tick) -> (u64, usize) {
        if now.as_nanos() < state.end {
            return (state.end, 0);
        }
        let end = self.grid.end(now);
        let cells = usize::try_from((end - state.end) / self.grid.length());
        (end, cells.unwrap_or(usize::MAX).min(self.counted()))
    }

    /// The time until the usage is at most `most`.
    fn until(&self, state: &SlidingGridState, most: u64, now: Tick) -> u64 {
        self.end_of(state, most).saturating_sub(now.as_nanos())
    }

    /// When the usage is at most `most`.
    #[inline]
    fn end_of(&self, state: &SlidingGridState, most: u64) -> u64 {
        let mut sum = 0_u64;
        let kept = state.counts.iter().take_while(|count| {
            sum += **count;
            sum <= most
        });
        match state.counts.len() - kept.count() {
            0 => 0,
            cells => (state.end).saturating_add((cells as u64 - 1) * self.grid.length()),
        }
    }

    fn allocate(&self, state: &mut SlidingGridState) {
        if state.counts.is_empty() {
            state.counts = vec![0; self.counted()].into();
        }
    }

    /// Moves on to the cell of `now`, drops what has left the window, and makes room for the counts.
    fn advance(&self, state: &mut SlidingGridState, now: Tick) {
        let (end, cells) = self.elapsed(state, now);
        self.allocate(state);
        if cells > 0 {
            state.total = state.used(cells);
            state.counts.copy_within(..self.counted() - cells, cells);
            state.counts[..cells].fill(0);
            state.end = end;
        }
    }

    /// The decision on a cost, whose figures are those of `used`.
    fn decision(&self, state: &SlidingGridState, used: u64, now: Tick, cost: u64) -> Decision {
        let until = |most| self.until(state, most, now);
        decision(self.quota.limit(), used, cost, until)
    }
}

impl SlidingGridState {
    /// The usage when this many cells have elapsed since the newest one.
    #[inline]
    fn used(&self, elapsed: usize) -> u64 {
        if elapsed == 0 {
            return self.total;
        }
        // Not the total without the others: after a long time none has to be read.
        let kept = self.counts.len().saturating_sub(elapsed);
        self.counts[..kept].iter().sum()
    }

    /// Counts in the newest cell.
    fn add(&mut self, cost: u64) {
        self.total += cost;
        self.counts[0] += cost;
    }
}

impl Algorithm for SlidingGrid {
    type State = SlidingGridState;

    fn quota(&self) -> Quota {
        self.quota
    }

    #[inline]
    fn capabilities(&self) -> Capabilities {
        Capabilities::with_turns(Turns::Repeat(self.counted() as u64 * self.grid.length()))
    }

    #[inline]
    fn fresh(&self, _now: Tick) -> SlidingGridState {
        SlidingGridState {
            end: self.grid.first_end(),
            total: 0,
            counts: Box::default(),
        }
    }

    #[inline]
    fn decide(&self, state: &mut SlidingGridState, now: Tick, cost: u64) -> Decision {
        let used = state.used(self.elapsed(state, now).1);
        if cost == 0 || cost > self.quota.limit().saturating_sub(used) {
            // A denial removes nothing: a request with an older `now` may still need the counts.
            return self.decision(state, used, now, cost);
        }
        self.advance(state, now);
        state.add(cost);
        self.decision(state, used + cost, now, 0)
    }

    fn peek(&self, state: &SlidingGridState, now: Tick, cost: u64) -> Decision {
        let used = state.used(self.elapsed(state, now).1);
        self.decision(state, used, now, cost)
    }

    fn refund(&self, state: &mut SlidingGridState, now: Tick, cost: Cost, _: GiveBack) {
        self.advance(state, now);
        // Newest first, but none that is newer than the refunded one.
        let age = state.end.saturating_sub(self.grid.end(cost.at)) / self.grid.length();
        let older = usize::try_from(age).unwrap_or(usize::MAX);
        let mut left = cost.units;
        for count in state.counts.iter_mut().skip(older) {
            let given = left.min(*count);
            *count -= given;
            left -= given;
        }
        state.total -= cost.units - left;
    }

    fn charge(&self, state: &mut SlidingGridState, now: Tick, cost: u64) -> Duration {
        self.advance(state, now);
        state.add(cost.min(Tick::MAX.as_nanos() - state.total));
        Duration::from_nanos(self.until(state, self.quota.limit(), now))
    }

    fn rescale(&self, state: &mut SlidingGridState, from: &Self, now: Tick) {
        if self.grid != from.grid || self.counted() != from.counted() {
            *state = used_as(self, from.units_used(state, now), now);
        }
    }

    fn forgettable_at(&self, state: &SlidingGridState) -> Tick {
        Tick::from_nanos(self.end_of(state, 0))
    }

    fn settings_fields(&mut self, fields: &mut Fields<'_>) {
        fields.tag(6);
        fields.plain_quota(&mut self.quota);
        fields.setting_or(&CELLS, &mut self.cells, DEFAULT_CELLS);
        fields.flag(&STRICT, &mut self.strict);
        fields.setting_or(&OFFSET, &mut self.grid.offset, 0);
        *self = Self::build(self.quota, self.cells, self.strict, self.grid.offset);
        let counted = self.counted() as u64;
        fields.kernel(|_| self.grid.kernel(self.quota, counted, Division::Even));
    }

    fn state_fields(&self, state: &mut SlidingGridState, fields: &mut Fields<'_>) {
        self.grid.list_end(&mut state.end, fields);
        self.allocate(state);
        state.total = 0;
        for count in &mut state.counts {
            fields.count(count);
            state.total = state.total.saturating_add(*count);
        }
        fields.require(state.total <= Tick::MAX.as_nanos());
    }
}
