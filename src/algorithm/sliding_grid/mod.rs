//! A window that slides cell by cell.

mod state;

pub use self::state::SlidingGridState;

use std::time::Duration;

use self::state::MAX_CELLS;
use super::fields::Fields;
use super::math::Windows;
use super::portable;
use super::setting::{OFFSET, Range, Setting};
use super::{Algorithm, Cost, Division, Facts, GiveBack, Kernel, Portable};
use crate::clock::{Tick, nanos};
use crate::decision::{Decision, Verdict};
use crate::error::{ConfigError, expect_valid};
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
/// assert!(limiter.check_n(4).is_admitted());
/// assert_eq!(limiter.check().retry_after, Some(Duration::from_secs(60)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingGrid {
    quota: Quota,
    cells: u64,
    strict: bool,
    /// Maps a time to its cell.
    pub(crate) grid: Windows,
}

const DEFAULT_CELLS: u64 = 10;
static CELLS: Setting = Setting::count("cells", Range::Number(1, MAX_CELLS as u64));
static STRICT: Setting = Setting::flag("strict");

impl SlidingGrid {
    /// The most cells that a window may have.
    pub const MAX_CELLS: usize = MAX_CELLS;

    /// Creates a grid of ten cells. A cell begins at the zero of the limiter's clock. A quota with a
    /// burst is refused when a limiter is built.
    pub const fn new(quota: Quota) -> Self {
        Self::build(quota, DEFAULT_CELLS, false, 0)
    }

    /// Sets the number of cells.
    ///
    /// # Panics
    /// If that is 0 or above [`MAX_CELLS`](Self::MAX_CELLS); [`try_cells`](Self::try_cells)
    /// returns an error instead.
    #[must_use]
    #[track_caller]
    pub fn cells(self, cells: usize) -> Self {
        expect_valid(self.try_cells(cells))
    }

    /// Sets the number of cells, for a number from a configuration.
    ///
    /// # Errors
    /// If that is 0 or above [`MAX_CELLS`](Self::MAX_CELLS).
    pub fn try_cells(self, cells: usize) -> Result<Self, ConfigError> {
        portable::set(self, CELLS.name, cells as u64)
    }

    /// Counts one whole cell more, so that at most L pass in any W.
    #[must_use]
    pub const fn strict(self) -> Self {
        Self::build(self.quota, self.cells, true, self.grid.offset())
    }

    /// Moves the start of the cells: one begins at `offset` after the zero of the limiter's clock.
    #[must_use]
    pub fn offset(self, offset: Duration) -> Self {
        Self::build(self.quota, self.cells, self.strict, nanos(offset))
    }

    const fn build(quota: Quota, cells: u64, strict: bool, offset: u64) -> Self {
        let grid = Windows::new(quota.period_ns().div_ceil(cells), offset);
        Self {
            quota,
            cells,
            strict,
            grid,
        }
    }

    /// How many cells are summed up: one more if strict.
    #[inline]
    pub(crate) const fn counted_cells(&self) -> u64 {
        self.cells + self.strict as u64
    }

    /// [`counted_cells`](Self::counted_cells) as an index: a state has one sum per cell.
    #[expect(clippy::cast_possible_truncation, reason = "at most 61 cells count")]
    #[inline]
    const fn sum_count(&self) -> usize {
        self.counted_cells() as usize
    }

    /// The cell of `now`, or the newest cell of the state if that is later.
    #[inline]
    fn current_cell(&self, state: &SlidingGridState, now: Tick) -> u64 {
        self.grid.locate(now).0.max(state.cell)
    }

    /// How many cells `current` is after the newest cell of the state, at most all that are counted.
    #[inline]
    fn elapsed_cells(&self, state: &SlidingGridState, current: u64) -> u64 {
        (current - state.cell).min(self.counted_cells())
    }

    /// The time until the usage is at most `max_usage`. It is more than that now.
    #[inline]
    fn nanos_until_usage(&self, state: &SlidingGridState, max_usage: u64, now: Tick) -> u64 {
        let elapsed = self.cells_until_usage(state, max_usage);
        self.grid.nanos_until(state.cell + elapsed, 0, now)
    }

    /// The least number of cells after the newest one at which the usage is at most `max_usage`.
    #[inline]
    fn cells_until_usage(&self, state: &SlidingGridState, max_usage: u64) -> u64 {
        // A binary search: the usage exceeds `max_usage` before `low`, and does not from `high` on.
        let (mut low, mut high) = (0, self.counted_cells());
        // Six steps are enough for 62 candidates. With a fixed bound, the compiler can remove the
        // loop if the result is unused.
        for _ in 0..6 {
            if low == high {
                break;
            }
            let middle = u64::midpoint(low, high);
            if state.sum_after(middle) > max_usage {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        high
    }

    /// Moves the state on to `now`, dropping what has left the window.
    fn advance(&self, state: &mut SlidingGridState, now: Tick) {
        let current = self.current_cell(state, now);
        state.advance_to(current, self.elapsed_cells(state, current));
    }
}

impl Algorithm for SlidingGrid {
    type State = SlidingGridState;

    fn quota(&self) -> Quota {
        self.quota
    }

    #[inline]
    fn facts(&self) -> Facts {
        Facts::ONE_LIMIT
    }

    fn with_quota(&self, quota: Quota) -> Result<Self, ConfigError> {
        Ok(Self::build(
            quota,
            self.cells,
            self.strict,
            self.grid.offset(),
        ))
    }

    fn validate(&self) -> Result<(), ConfigError> {
        portable::check(self)
    }

    #[inline]
    fn fresh(&self, _now: Tick) -> SlidingGridState {
        SlidingGridState {
            cell: 0,
            sums: [0; MAX_CELLS + 1],
        }
    }

    #[inline]
    fn decide(&self, state: &mut SlidingGridState, now: Tick, cost: u64) -> Decision {
        let current = self.current_cell(state, now);
        let limit = self.quota.limit();
        let elapsed = self.elapsed_cells(state, current);
        let used = state.sum_after(elapsed);
        let remaining = limit.saturating_sub(used);
        if cost > 0 && cost <= remaining {
            state.advance_to(current, elapsed);
            state.add(self.counted_cells(), cost);
            let reset_after = self
                .grid
                .nanos_until(current + self.counted_cells(), 0, now);
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
        // A denial removes nothing: a request with an older `now` may still need the counts.
        let retry_after = (cost <= limit).then(|| self.nanos_until_usage(state, limit - cost, now));
        Decision::new(Verdict::Deny, limit, remaining, retry_after, reset_after)
    }

    fn refund(&self, state: &mut SlidingGridState, now: Tick, cost: Cost, _: GiveBack) {
        let (cost, taken_at) = (cost.units, cost.at);
        self.advance(state, now);
        let (taken_in, _) = self.grid.locate(taken_at);
        let age = state.cell.saturating_sub(taken_in);
        state.refund(self.counted_cells(), age, cost);
    }

    fn charge(&self, state: &mut SlidingGridState, now: Tick, cost: u64) -> Duration {
        self.advance(state, now);
        state.add(self.counted_cells(), cost);
        let limit = self.quota.limit();
        Duration::from_nanos(if state.sum_after(0) > limit {
            self.nanos_until_usage(state, limit, now)
        } else {
            0
        })
    }

    fn rescale(&self, state: &mut SlidingGridState, from: &Self, now: Tick) {
        if self.grid != from.grid || self.counted_cells() != from.counted_cells() {
            let now = from.grid.not_before(state.cell, now);
            from.advance(state, now);
            let used = state.sum_after(0);
            *state = self.fresh(now);
            self.advance(state, now);
            state.add(self.counted_cells(), used);
        }
    }

    fn forgettable_at(&self, state: &SlidingGridState) -> Tick {
        if state.sum_after(0) == 0 {
            return Tick::ZERO;
        }
        self.grid
            .start(state.cell + self.cells_until_usage(state, 0))
    }
}

impl Portable for SlidingGrid {
    fn settings_fields(&mut self, fields: &mut Fields<'_>) {
        fields.tag(6);
        let (mut quota, mut offset) = (self.quota, self.grid.offset());
        fields.plain_quota(&mut quota);
        fields.setting_or(&CELLS, &mut self.cells, DEFAULT_CELLS);
        fields.flag(&STRICT, &mut self.strict);
        fields.setting_or(&OFFSET, &mut offset, 0);
        *self = Self::build(quota, self.cells, self.strict, offset);
    }

    fn kernels(&self, _: Tick) -> Option<Vec<Kernel>> {
        let grid = (self.grid.length(), self.grid.offset());
        Some(Kernel::cells(
            self.quota.limit(),
            grid,
            self.counted_cells(),
            Division::Even,
        ))
    }

    /// The sums, each as the difference to the one after it.
    fn state_fields(&self, state: &mut SlidingGridState, fields: &mut Fields<'_>) {
        fields.moment(&mut state.cell);
        let mut older = 0;
        for sum in state.sums[..self.sum_count()].iter_mut().rev() {
            let mut cost = sum.saturating_sub(older);
            fields.moment(&mut cost);
            older = cost.saturating_add(older).min(Tick::MAX.as_nanos());
            *sum = older;
        }
    }
}
