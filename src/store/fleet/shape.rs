//! What an algorithm is for a fleet: levels and cells.
//!
//! All figures are whole numbers below 2^53, so that scripts compute them exactly too. What does not
//! fit is rounded to the safe side. Times are microseconds of the store's clock.

use crate::error::ConfigError;
use crate::quota::Quota;

/// The most units that a limit may have.
pub(super) const MAX_UNITS: u64 = u32::MAX as u64;
/// The most ticks of a full level; a level may be twice as high after late costs.
const MAX_TICKS: u64 = 1 << 51;
/// Where a debt stops to grow.
pub(super) const MAX_LEVEL: u64 = (1 << 53) - 1;
/// A moment or a time that never comes.
pub(super) const NEVER: u64 = MAX_LEVEL;
/// In how many steps the weight of a previous window falls.
const WEIGHT_STEPS: u64 = 1 << 20;
/// Cells of a window that stands for a log, which are as many parts of its period.
pub(super) const LOG_CELLS: u64 = 24;
/// Names the cells of a calendar in a record. Those of all others have smaller numbers.
const CALENDAR: u64 = 2_000_000;

/// Limits of which each must grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    pub(super) parts: Vec<Part>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Level(Level),
    Cells(Cells),
}

/// A level that costs raise and time lowers: buckets and `Gcra`.
///
/// It is counted in ticks, of which a unit is worth `unit` and a microsecond `rate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Level {
    pub(super) capacity: u64,
    pub(super) unit: u64,
    pub(super) rate: u64,
}

/// Costs counted per cell of time: windows, grids and logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cells {
    pub(super) limit: u64,
    /// Of a cell.
    pub(super) length: u64,
    /// Added to a time before it is divided into cells; of a [calendar](Division::Calendar) the start of its window.
    pub(super) padding: u64,
    /// How many cells count.
    pub(super) count: usize,
    pub(super) division: Division,
}

/// How time is divided into cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Division {
    Even,
    /// Two cells count, of which the older one counts less and less.
    Weighted,
    /// One window of the calendar, all time before it and all after it. A machine whose clock is wrong names another
    /// window than that of the store's time: then two windows are one cell, and no count begins anew too early.
    Calendar,
}

/// What is used of a part, as of the time of its record: of a level its ticks, of cells their counts, newest
/// first and without zeros at the end.
pub(super) type Used = Vec<u64>;

/// When a part has more free units than now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct More {
    /// Microseconds until then; [`NEVER`] if never.
    pub(super) wait: u64,
    pub(super) units: u64,
    /// Microseconds per unit after that.
    pub(super) per_unit: u64,
}

impl Shape {
    #[cfg(test)]
    pub(super) fn of(part: Part) -> Self {
        Self { parts: vec![part] }
    }

    /// Both limits at once.
    #[cfg(test)]
    pub(super) fn and(mut self, other: Self) -> Self {
        self.parts.extend(other.parts);
        self
    }

    /// The largest cost that can be admitted.
    pub(super) fn capacity(&self) -> u64 {
        let all = self.parts.iter().map(Part::capacity);
        all.min().unwrap_or(MAX_UNITS)
    }

    /// The most units of a part.
    pub(super) fn limit(&self, part: usize) -> u64 {
        self.parts.get(part).map_or(MAX_UNITS, Part::capacity)
    }

    /// Microseconds after which an unused key is certainly forgettable.
    pub(super) fn memory(&self) -> u64 {
        let all = self.parts.iter().map(|part| match part {
            Part::Level(level) => 2 * level.capacity * level.unit / level.rate,
            Part::Cells(cells) => cells.length * (cells.count as u64 + 1),
        });
        all.max().unwrap_or(0)
    }

    /// Microseconds after which a limit that is used up is free again.
    pub(super) fn time_to_fill(&self) -> u64 {
        let all = self.parts.iter().map(|part| match part {
            Part::Level(level) => level.full() / level.rate,
            Part::Cells(cells) => cells.length * cells.count as u64,
        });
        all.max().unwrap_or(0)
    }

    /// Whether its windows of the calendar are those of a moment.
    pub(super) fn holds_at(&self, at: u64) -> bool {
        self.parts.iter().all(|part| match part {
            Part::Cells(cells) if cells.division == Division::Calendar => cells.cell(at) == 1,
            _ => true,
        })
    }

    /// Whether units of the next slot are granted: not if what refills is granted `ahead`, and if a window slides
    /// and all that is used becomes free evenly but for the ends of windows.
    pub(super) fn has_slots(&self, ahead: bool) -> bool {
        let slides = |part: &Part| matches!(part, Part::Cells(cells) if cells.is_weighted());
        let is_level = |part: &Part| matches!(part, Part::Level(_));
        !ahead
            && self.parts.iter().any(slides)
            && self.parts.iter().all(|part| slides(part) || is_level(part))
    }

    /// The end of the slot of `at`: slots are as long as an interval, and end with a window.
    pub(super) fn slot_end(&self, at: u64, interval: u64) -> u64 {
        let ends = self.parts.iter().filter_map(|part| part.window_end(at));
        ends.min()
            .unwrap_or(NEVER)
            .min(at + interval - at % interval)
    }

    /// Units refilled within `span` microseconds, at least 1.
    pub(super) fn refill(&self, span: u64) -> u64 {
        let all = self.parts.iter().map(|part| part.refill(span));
        all.min().unwrap_or(MAX_UNITS).max(1)
    }
}

impl Level {
    /// `num / den` nanoseconds per unit.
    pub(super) fn new(capacity: u64, num: u64, den: u64) -> Result<Self, ConfigError> {
        check_units(capacity)?;
        let (num, den) = (u128::from(num), u128::from(den) * 1_000);
        let common = gcd(num, den);
        let (mut unit, mut rate) = (num / common, den / common);
        let most = u128::from(MAX_TICKS / capacity);
        if unit > most {
            // Fewer ticks per microsecond, and a unit rounded up.
            rate = most * rate / unit;
            if rate == 0 {
                return Err(ConfigError::out_of_range(
                    "burst",
                    capacity,
                    "a burst that is refilled within 71 years",
                ));
            }
            unit = (num * rate).div_ceil(den);
        }
        // Of a rate that is still too large, less is lost than can be measured.
        let fit = |ticks: u128| u64::try_from(ticks).unwrap_or(u64::MAX);
        Ok(Self {
            capacity,
            unit: fit(unit),
            rate: fit(rate).min(MAX_TICKS),
        })
    }

    const fn full(&self) -> u64 {
        self.capacity * self.unit
    }

    /// Ticks that are drained in between.
    fn drained(&self, from: u64, to: u64) -> u64 {
        to.saturating_sub(from).min(MAX_TICKS / self.rate + 1) * self.rate
    }
}

impl Cells {
    /// Windows of `length` nanoseconds, which is rounded up if it need not be exact.
    pub(super) fn new(
        quota: &Quota,
        length: u64,
        offset: u64,
        count: u64,
    ) -> Result<Self, ConfigError> {
        check_units(quota.limit())?;
        let length = length.div_ceil(1_000);
        if length > MAX_TICKS / 128 {
            return Err(ConfigError::out_of_range(
                "period",
                format!("{:?}", quota.period()),
                "at most 200 days",
            ));
        }
        let into = offset / 1_000 % length;
        Ok(Self {
            limit: quota.limit(),
            length,
            padding: if into == 0 { 0 } else { length - into },
            count: usize::try_from(count).unwrap_or(usize::MAX),
            division: Division::Even,
        })
    }

    /// A window of the calendar, given its first second and that of the next one.
    pub(super) fn calendar(quota: &Quota, (start, end): (u64, u64)) -> Result<Self, ConfigError> {
        check_units(quota.limit())?;
        Ok(Self {
            limit: quota.limit(),
            length: (end - start) * 1_000_000,
            padding: start * 1_000_000,
            count: 1,
            division: Division::Calendar,
        })
    }

    /// Windows whose ends must be those of the algorithm.
    pub(super) fn exact(quota: &Quota, offset: u64) -> Result<Self, ConfigError> {
        if quota.period_ns() % 1_000 != 0 || offset % 1_000 != 0 {
            return Err(ConfigError::out_of_range(
                "period",
                format!("{:?}", quota.period()),
                "windows of whole microseconds",
            ));
        }
        Self::new(quota, quota.period_ns(), offset, 1)
    }

    /// Of two windows, the previous one counts by the part that the last period covers.
    pub(super) const fn weighted(mut self) -> Self {
        self.division = Division::Weighted;
        self.count = 2;
        self
    }

    const fn cell(&self, at: u64) -> u64 {
        if let Division::Calendar = self.division {
            let end = self.padding + self.length;
            return (at >= self.padding) as u64 + (at >= end) as u64;
        }
        (at + self.padding) / self.length
    }

    /// The place of the cell of `at`.
    fn age(&self, now: u64, at: u64) -> usize {
        usize::try_from(self.cell(now).saturating_sub(self.cell(at))).unwrap_or(usize::MAX)
    }

    /// Microseconds until the cell of `at` ends.
    const fn rest(&self, at: u64) -> u64 {
        if let Division::Calendar = self.division {
            return match self.cell(at) {
                0 => self.padding - at,
                1 => self.padding + self.length - at,
                // As far as is known.
                _ => self.length,
            };
        }
        self.length - (at + self.padding) % self.length
    }

    pub(super) const fn is_weighted(&self) -> bool {
        matches!(self.division, Division::Weighted)
    }

    /// What counts of `previous` if `rest` of the window is left.
    fn weight(&self, previous: u64, rest: u64) -> u64 {
        let step = self.length.div_ceil(WEIGHT_STEPS);
        let (rest, all) = (rest.div_ceil(step), self.length.div_ceil(step));
        (previous.min(MAX_UNITS) * rest).div_ceil(all)
    }

    /// What counts of `cells` at `at`, the time of its newest.
    fn sum(&self, cells: &[u64], at: u64) -> u64 {
        match cells {
            [current, previous, ..] if self.is_weighted() => {
                current + self.weight(*previous, self.rest(at))
            }
            _ => cells.iter().sum(),
        }
    }

    fn advance(&self, cells: &mut Vec<u64>, from: u64, to: u64) {
        let count = self.count as u64;
        let steps = self.cell(to).saturating_sub(self.cell(from)).min(count);
        for _ in 0..steps {
            cells.insert(0, 0);
        }
        cells.truncate(self.count);
        trim(cells);
    }
}

impl Part {
    pub(super) const fn capacity(&self) -> u64 {
        match self {
            Self::Level(level) => level.capacity,
            Self::Cells(cells) => cells.limit,
        }
    }

    pub(super) fn unused(&self) -> Used {
        match self {
            Self::Level(_) => vec![0],
            Self::Cells(_) => Vec::new(),
        }
    }

    /// The kind of a part, and how its counts in a record are to be read: the ticks of a unit, or a name
    /// for the cells.
    pub(super) const fn layout(&self) -> (char, u64) {
        match self {
            Self::Level(level) => ('l', level.unit),
            Self::Cells(Cells {
                division: Division::Calendar,
                ..
            }) => ('c', CALENDAR),
            Self::Cells(grid) => {
                let kind = grid.count as u64 * 2 + grid.is_weighted() as u64;
                (
                    'c',
                    (grid.length * 128 + kind) * 31 % 999_983 + grid.padding % 999_983,
                )
            }
        }
    }

    /// What is used according to a part of a record that may have another layout. Then all costs count as
    /// of the time of the record, and fractions are rounded up.
    pub(super) fn adopt(&self, kind: char, layout: u64, mut counts: Vec<u64>) -> Used {
        let (is_kind, own) = (kind == self.layout().0, self.layout().1);
        let sum = counts.iter().sum::<u64>().min(MAX_LEVEL);
        match self {
            Self::Level(_) if is_kind && layout == own => vec![sum],
            Self::Level(level) if is_kind => vec![rescale(sum, layout.max(1), level.unit)],
            Self::Level(level) => vec![sum.saturating_mul(level.unit).min(MAX_LEVEL)],
            Self::Cells(grid) => {
                if !is_kind {
                    counts = vec![sum.div_ceil(layout.max(1))];
                } else if layout != own {
                    counts = vec![sum];
                }
                counts.truncate(grid.count);
                trim(&mut counts);
                counts
            }
        }
    }

    /// Lets time pass.
    pub(super) fn advance(&self, used: &mut Used, from: u64, to: u64) {
        match self {
            Self::Level(level) => {
                let left = ticks(used).saturating_sub(level.drained(from, to));
                used.fill(left);
            }
            Self::Cells(grid) => grid.advance(used, from, to),
        }
    }

    /// Counts a cost of `at`, which is `now` or earlier: in its own cell, but of a level as of `now`.
    pub(super) fn charge(&self, used: &mut Used, now: u64, cost: u64, at: u64) {
        match self {
            Self::Level(level) => {
                let ticks = ticks(used).saturating_add(cost.saturating_mul(level.unit));
                used.fill(ticks.min(MAX_LEVEL));
            }
            Self::Cells(grid) => {
                let age = grid.age(now, at);
                if age < grid.count {
                    used.resize(used.len().max(age + 1), 0);
                    used[age] = used[age].saturating_add(cost).min(MAX_LEVEL >> 7);
                }
            }
        }
    }

    /// Takes back a cost that was charged as of `at`, unless time has done so: of a level it counts as
    /// the first to be drained.
    pub(super) fn give_back(&self, used: &mut Used, now: u64, cost: u64, at: u64) {
        match self {
            Self::Level(level) => {
                let cost = cost.saturating_mul(level.unit).min(MAX_LEVEL);
                let undrained = cost.saturating_sub(level.drained(at, now));
                let left = ticks(used).saturating_sub(undrained);
                used.fill(left);
            }
            Self::Cells(grid) => {
                if let Some(count) = used.get_mut(grid.age(now, at)) {
                    *count = count.saturating_sub(cost);
                }
                trim(used);
            }
        }
    }

    /// Microseconds until nothing is used, if nothing else is used until then.
    pub(super) fn time_to_full(&self, used: &[u64], at: u64) -> u64 {
        match self {
            Self::Level(level) => ticks(used).div_ceil(level.rate),
            Self::Cells(_) if used.is_empty() => 0,
            Self::Cells(grid) => {
                let newest = used.iter().position(|count| *count > 0).unwrap_or(0);
                grid.rest(at) + (grid.count - newest).saturating_sub(1) as u64 * grid.length
            }
        }
    }

    /// Microseconds after which a cost of `units` at `at` is free again.
    pub(super) fn time_to_renew(&self, units: u64, at: u64) -> u64 {
        match self {
            Self::Level(level) => units.saturating_mul(level.unit).div_ceil(level.rate),
            Self::Cells(grid) => grid.rest(at) + (grid.count as u64 - 1) * grid.length,
        }
    }

    /// Units that are not used at `at`, the time of `used`; negative in debt.
    pub(super) fn free(&self, used: &[u64], at: u64) -> i64 {
        match self {
            Self::Level(level) => {
                let free = signed(level.full()) - signed(ticks(used));
                free.div_euclid(signed(level.unit))
            }
            Self::Cells(grid) => signed(grid.limit) - signed(grid.sum(used, at)),
        }
    }

    /// The same at `then`, if nothing more is used until then.
    pub(super) fn free_at(&self, then: u64, used: &Used, at: u64) -> i64 {
        let mut later = used.clone();
        self.advance(&mut later, at, then);
        self.free(&later, then.max(at))
    }

    /// Units that a level of this rate, or a window on average, refills within `span`.
    pub(super) fn refill(&self, span: u64) -> u64 {
        match self {
            Self::Level(level) => ratio(span, level.rate, level.unit),
            Self::Cells(grid) => {
                let cells = if grid.is_weighted() {
                    1
                } else {
                    grid.count as u64
                };
                ratio(span, grid.limit, grid.length * cells)
            }
        }
    }

    /// Units that will be free in addition after `span`, if they are not used until then. None of a
    /// fixed window: its next window is granted as such.
    pub(super) fn ahead(&self, used: &Used, at: u64, span: u64) -> u64 {
        match self {
            Self::Level(level) => {
                // Of a small bucket costs that are counted together exceed what it holds.
                let small = level.capacity < 2 * self.refill(span);
                self.refill(if small { 2 * span } else { span })
            }
            Self::Cells(grid) if grid.count == 1 => 0,
            Self::Cells(_) => {
                // What is granted is used somewhat before.
                let freed = self.free_at(at + span * 27 / 32, used, at) - self.free(used, at);
                // A burst is freed at once, and not before its time.
                u64::try_from(freed).unwrap_or(0).min(self.refill(2 * span))
            }
        }
    }

    /// When the next units are free, and how many.
    pub(super) fn more(&self, used: &[u64], at: u64) -> More {
        let (wait, units, per_unit) = match self {
            Self::Level(level) => {
                // Up to the next whole unit.
                let part = ticks(used) % level.unit;
                let missing = if part == 0 { level.unit } else { part };
                let is_full = ticks(used) == 0;
                let wait = if is_full {
                    NEVER
                } else {
                    missing.div_ceil(level.rate)
                };
                (wait, 1, level.unit.div_ceil(level.rate))
            }
            Self::Cells(grid) => {
                let per_unit = (grid.length * grid.count as u64).div_ceil(grid.limit);
                match used {
                    [] => (NEVER, 0, per_unit),
                    [_, previous] if grid.is_weighted() => {
                        let wait = grid.length.div_ceil(*previous).min(grid.rest(at));
                        (wait, 1, per_unit)
                    }
                    [_] if grid.is_weighted() => (grid.rest(at), 1, per_unit),
                    [.., oldest] => {
                        let cells_left = (grid.count - used.len()) as u64;
                        (grid.rest(at) + cells_left * grid.length, *oldest, per_unit)
                    }
                }
            }
        };
        More {
            wait,
            units,
            per_unit,
        }
    }

    /// The end of a fixed window: nothing of what counts now counts from then on.
    pub(super) const fn fixed_end(&self, at: u64) -> Option<u64> {
        match self {
            Self::Cells(grid) if grid.count == 1 => Some(at + grid.rest(at)),
            _ => None,
        }
    }

    /// The end of the window of `at`, after which a cost counts in another one. Cells of a grid are
    /// as fine as a cost is late anyway.
    pub(super) const fn window_end(&self, at: u64) -> Option<u64> {
        match self {
            Self::Cells(grid) if grid.count == 1 || grid.is_weighted() => Some(at + grid.rest(at)),
            _ => None,
        }
    }
}

fn ticks(used: &[u64]) -> u64 {
    used.first().copied().unwrap_or(0)
}

fn trim(cells: &mut Used) {
    while cells.last() == Some(&0) {
        cells.pop();
    }
}

fn check_units(units: u64) -> Result<(), ConfigError> {
    if units > MAX_UNITS {
        return Err(ConfigError::out_of_range(
            "limit",
            units,
            "at most 4294967295 for a fleet",
        ));
    }
    Ok(())
}

/// The ticks of a level whose unit is worth `to` instead of `from`, rounded up.
fn rescale(ticks: u64, from: u64, to: u64) -> u64 {
    let (whole, part) = (ticks / from, ticks % from);
    // In steps, so that the products stay below 2^53.
    let (step, to_step) = (from.div_ceil(1 << 20), to.div_ceil(1 << 31));
    let (part, all) = (part.div_ceil(step), (from / step).max(1));
    let part = (part * to.div_ceil(to_step)).div_ceil(all) * to_step;
    whole.saturating_mul(to).saturating_add(part).min(MAX_LEVEL)
}

/// `a * b / c` units.
fn ratio(a: u64, b: u64, c: u64) -> u64 {
    let product = u128::from(a) * u128::from(b) / u128::from(c);
    u64::try_from(product).map_or(MAX_UNITS, |units| units.min(MAX_UNITS))
}

pub(super) fn signed(units: u64) -> i64 {
    i64::try_from(units).unwrap_or(i64::MAX)
}

pub(super) const fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests;
