//! What an algorithm is for a fleet: levels and cells.
//!
//! What is used is counted in units, so the limit may differ between machines. All figures are whole numbers below
//! 2^53, which scripts compute exactly too. Times are microseconds of the store's clock.

use crate::algorithm::{Algorithm, Cells as CellsOf, Division, Kernel, Level as LevelOf, kernels};
use crate::clock::Tick;
use crate::error::ConfigError;

/// The most units that a limit may have.
pub(super) const MAX_UNITS: u64 = u32::MAX as u64;
/// Where a debt stops to grow. The sum of 128 cells is below 2^53.
pub(super) const MAX_USED: u64 = (1 << 46) - 1;
/// A moment or a time that never comes.
pub(super) const NEVER: u64 = (1 << 53) - 1;
/// The longest time for which a value is kept; 35 years.
const MAX_MEMORY: u64 = 1 << 50;
/// Cells of a window that stands for a log, which are as many parts of its period.
pub(super) const LOG_CELLS: u64 = 48;

/// Limits of which each must grant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Shape {
    pub(super) parts: Vec<ShapePart>,
    /// The largest cost that can be admitted.
    pub(super) capacity: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ShapePart {
    Level(Level),
    Cells(Cells),
}

/// A level that costs raise and time lowers: buckets and `Gcra`.
///
/// A unit has `period` parts, of which `rate` drain per microsecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Level {
    pub(super) capacity: u64,
    pub(super) rate: u64,
    pub(super) period: u64,
}

/// Costs counted per cell of time: windows, grids and logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Cells {
    pub(super) limit: u64,
    /// Of a cell.
    pub(super) length: u64,
    /// Of two cells the older one counts less and less, as in a sliding window.
    pub(super) is_weighted: bool,
    /// Added to a time before it is divided into cells; of a calendar the start of its window.
    pub(super) padding: u64,
    /// How many cells count.
    pub(super) count: usize,
    /// The cells are a window of the calendar, all time before it and all after it. A machine whose clock is wrong
    /// names another window than that of the store's time: then two windows are one cell, and no count begins anew
    /// too early.
    pub(super) is_calendar: bool,
}

/// What is used of a part, as of the time of its record: of a level units and parts of one, of cells their counts,
/// newest first and without zeros at the end.
pub(super) type Used = Vec<u64>;

/// How much of a key is free, and when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Figures {
    /// Units that are neither used nor out, after the grant; negative if more are.
    pub(super) free: i64,
    /// After how many microseconds how many more are free, and in how many each one after certainly is.
    pub(super) wait: u64,
    pub(super) more: u64,
    pub(super) per_unit: u64,
    /// The part of the shape that has the least free.
    pub(super) part: u8,
    /// Microseconds until nothing of that part is used; and until a unit that is used now is free again.
    pub(super) full: u64,
    pub(super) renew: u64,
    /// No unit is waited for longer.
    pub(super) longest: u64,
}

impl Shape {
    pub(super) fn new(parts: Vec<ShapePart>) -> Self {
        let capacity = parts.iter().map(ShapePart::capacity).min().unwrap_or(0);
        Self { parts, capacity }
    }

    /// Both limits at once.
    #[cfg(test)]
    pub(super) fn and(self, other: Self) -> Self {
        Self::new([self.parts, other.parts].concat())
    }

    /// The levels and cells of an algorithm at a moment, which counts from 1970: windows of the calendar differ in
    /// length.
    ///
    /// # Errors
    /// If budgets of it would not keep its promise.
    pub(super) fn of<A: Algorithm>(algorithm: &A, now: Tick) -> Result<Self, ConfigError> {
        let kernels = kernels(algorithm, now).unwrap_or_default();
        let parts: Option<Vec<_>> = kernels.into_iter().map(ShapePart::of).collect();
        let parts = parts.filter(|parts| !parts.is_empty());
        let what = "a lockout, a warm-up, a debt, steps, initial tokens, an anchored window, a limit above \
                    4294967295, a window of more than 200 days or of a part of a microsecond, or an algorithm of \
                    your own with budgets";
        let instead = "use the exact limiter of Redis, or `Cas`";
        let refuse = || ConfigError::unsupported(what, instead);
        parts.map(Self::new).ok_or_else(refuse)
    }

    /// Microseconds after which a limit that is used up is free again.
    pub(super) fn time_to_fill(&self) -> u64 {
        let all = self.parts.iter().map(ShapePart::time_to_fill);
        all.max().unwrap_or(0).min(MAX_MEMORY)
    }
}

impl Level {
    /// What is used, in parts of units.
    fn parts(&self, used: &[u64]) -> u128 {
        u128::from(used[0]) * u128::from(self.period) + u128::from(used[1])
    }

    fn drain(&self, used: &mut Used, parts: u128) {
        let left = self.parts(used).saturating_sub(parts);
        let number = |parts| u64::try_from(parts).unwrap_or(MAX_USED);
        let period = u128::from(self.period);
        *used = vec![number(left / period), number(left % period)];
    }

    /// Parts that drain in between.
    fn drained(&self, from: u64, to: u64) -> u128 {
        u128::from(to.saturating_sub(from)) * u128::from(self.rate)
    }
}

impl Cells {
    const fn cell(&self, at: u64) -> u64 {
        if self.is_calendar {
            let end = self.padding + self.length;
            return (at >= self.padding) as u64 + (at >= end) as u64;
        }
        (at + self.padding) / self.length
    }

    /// The place of the cell of `at`; `count` if it counts no more.
    fn age(&self, now: u64, at: u64) -> usize {
        let age = self.cell(now).saturating_sub(self.cell(at));
        usize::try_from(age).map_or(self.count, |age| age.min(self.count))
    }

    /// Microseconds until the cell of `at` ends.
    const fn rest(&self, at: u64) -> u64 {
        if self.is_calendar {
            return match self.cell(at) {
                0 => self.padding - at,
                1 => self.padding + self.length - at,
                // As far as is known.
                _ => self.length,
            };
        }
        self.length - (at + self.padding) % self.length
    }

    /// Microseconds until the cell at this place counts no more.
    const fn until(&self, at: u64, place: usize) -> u64 {
        self.rest(at) + (self.count - 1 - place) as u64 * self.length
    }
}

impl Figures {
    /// Units that are free in addition after so many microseconds.
    pub(super) fn refilled(&self, elapsed: u64) -> u64 {
        let since = elapsed.checked_sub(self.wait);
        since.map_or(0, |since| self.more + since / self.per_unit.max(1))
    }

    /// Microseconds until `units` are free, `age` after the reply.
    pub(super) fn wait_for(&self, interval: u64, units: i64, age: u64) -> u64 {
        let missing = (units - self.free - signed(self.more)).max(0);
        let more = missing.unsigned_abs().saturating_mul(self.per_unit);
        // What is out may be given back in the next exchange.
        let longest = self.longest.max(interval);
        let total = self.wait.saturating_add(more).min(longest);
        total.saturating_sub(age).max(1)
    }
}

impl ShapePart {
    /// `None` if budgets of it would not keep its promise.
    pub(super) fn of(kernel: Kernel) -> Option<Self> {
        let cells = |limit, length, padding, count, is_weighted| Cells {
            limit,
            length,
            padding,
            count: usize::try_from(count).unwrap_or(usize::MAX),
            is_calendar: false,
            is_weighted,
        };
        // A strict grid keeps the promise of a log, and counts a cost up to a cell longer.
        let cells = match kernel {
            Kernel::Level(level) => return Self::level(&level),
            Kernel::Log { limit, period } => {
                let length = period.div_ceil(1_000 * LOG_CELLS);
                cells(limit, length, 0, LOG_CELLS + 1, false)
            }
            Kernel::Cells(CellsOf {
                limit,
                length,
                offset,
                count,
                division,
            }) => match division {
                Division::Anchored => return None,
                Division::Calendar {
                    starts: [_, start, end, _],
                    ..
                } => Cells {
                    is_calendar: true,
                    ..cells(
                        limit,
                        (end - start) * 1_000_000,
                        start * 1_000_000,
                        1,
                        false,
                    )
                },
                // Windows end when those of the algorithm do.
                Division::Even if count == 1 && (length % 1_000, offset % 1_000) != (0, 0) => {
                    return None;
                }
                Division::Even | Division::Weighted => {
                    let length = length.div_ceil(1_000);
                    let padding = (length - offset / 1_000 % length) % length;
                    let is_weighted = division == Division::Weighted;
                    cells(limit, length, padding, count, is_weighted)
                }
            },
        };
        let is_small = cells.limit <= MAX_UNITS && cells.length <= MAX_MEMORY / 64;
        is_small.then_some(Self::Cells(cells))
    }

    fn level(level: &LevelOf) -> Option<Self> {
        let (rate, period) = match level.period {
            period if period % 1_000 == 0 => (level.rate, period / 1_000),
            period @ 0..NEVER => (level.rate * 1_000, period),
            // Less is lost than can be measured.
            period => (level.rate, period.div_ceil(1_000)),
        };
        let is_small = level.capacity.max(level.rate) <= MAX_UNITS;
        (is_small && level.initial == 0).then_some(Self::Level(Level {
            capacity: level.capacity,
            rate,
            period,
        }))
    }

    pub(super) const fn capacity(&self) -> u64 {
        match self {
            Self::Level(level) => level.capacity,
            Self::Cells(cells) => cells.limit,
        }
    }

    pub(super) fn unused(&self) -> Used {
        match self {
            Self::Level(_) => vec![0, 0],
            Self::Cells(_) => Vec::new(),
        }
    }

    /// Whether these can be the counts of such a part.
    pub(super) fn is_valid(&self, counts: &[u64]) -> bool {
        match self {
            Self::Level(level) => matches!(counts, [_, part] if *part < level.period),
            Self::Cells(cells) => counts.len() <= cells.count,
        }
    }

    fn time_to_fill(&self) -> u64 {
        match self {
            Self::Level(level) => clamped(
                (u128::from(level.capacity) * u128::from(level.period))
                    .div_ceil(u128::from(level.rate)),
            ),
            Self::Cells(cells) => cells.length * cells.count as u64,
        }
    }

    /// Lets time pass.
    pub(super) fn advance(&self, used: &mut Used, from: u64, to: u64) {
        match self {
            Self::Level(level) => level.drain(used, level.drained(from, to)),
            Self::Cells(cells) => {
                used.splice(0..0, std::iter::repeat_n(0, cells.age(to, from)));
                used.truncate(cells.count);
                trim(used);
            }
        }
    }

    /// Counts a cost of `at`, which is `now` or earlier: in its own cell, but of a level as of `now`.
    pub(super) fn charge(&self, used: &mut Used, now: u64, cost: u64, at: u64) {
        let age = match self {
            Self::Level(_) => 0,
            Self::Cells(cells) => match cells.age(now, at) {
                age if age == cells.count => return,
                age => age,
            },
        };
        used.resize(used.len().max(age + 1), 0);
        used[age] = used[age].saturating_add(cost).min(MAX_USED);
    }

    /// Takes back a cost that was charged as of `at`, unless time has done so: of a level it counts as
    /// the first to be drained.
    pub(super) fn give_back(&self, used: &mut Used, now: u64, cost: u64, at: u64) {
        match self {
            Self::Level(level) => {
                let cost = u128::from(cost.min(MAX_USED)) * u128::from(level.period);
                level.drain(used, cost.saturating_sub(level.drained(at, now)));
            }
            Self::Cells(cells) => {
                if let Some(count) = used.get_mut(cells.age(now, at)) {
                    *count = count.saturating_sub(cost);
                }
                trim(used);
            }
        }
    }

    /// Units that are not used at the time `at` of `used`; negative in debt.
    pub(super) fn free(&self, used: &[u64], at: u64) -> i64 {
        signed(self.capacity()) - signed(self.taken(used, at))
    }

    pub(super) fn taken(&self, used: &[u64], at: u64) -> u64 {
        match self {
            Self::Level(_) => used[0] + u64::from(used[1] > 0),
            Self::Cells(cells) => match used {
                [current, previous] if cells.is_weighted => {
                    current + mul_div(*previous, cells.rest(at), cells.length)
                }
                _ => used.iter().sum(),
            },
        }
    }

    /// In how many microseconds a level has surely drained so many units.
    pub(super) fn drains_in(&self, units: u64) -> u64 {
        match self {
            Self::Level(level) => {
                let span = mul_div(units, level.period, level.rate);
                span.saturating_add(1).min(MAX_MEMORY)
            }
            Self::Cells(_) => 0,
        }
    }

    /// Units that a level or a sliding window refills within `span`.
    pub(super) fn refill(&self, span: u64) -> u64 {
        let units = match self {
            Self::Level(level) => mul_div(span, level.rate, level.period),
            Self::Cells(cells) if cells.count == 1 => 0,
            Self::Cells(cells) => {
                mul_div(span, cells.limit, cells.length * (cells.count as u64 - 1))
            }
        };
        units.min(MAX_UNITS)
    }

    /// Units that will be free in addition after `span`, if they are not used until then.
    pub(super) fn ahead(&self, used: &[u64], at: u64, span: u64) -> u64 {
        match self {
            Self::Level(_) => self.refill(span),
            Self::Cells(_) => {
                // In another window a machine has none of what it was granted.
                let end = at + self.window_rest(at).map_or(span, |rest| span.min(rest - 1));
                let mut later = used.to_vec();
                self.advance(&mut later, at, end);
                self.taken(used, at) - self.taken(&later, end)
            }
        }
    }

    /// What is free, and when more is.
    pub(super) fn figures(&self, used: &[u64], at: u64) -> Figures {
        let (wait, more, per_unit, full, renew, longest) = match self {
            Self::Level(level) => {
                let per_unit = level.period.div_ceil(level.rate);
                // Up to the next whole unit.
                let wait = match used {
                    [0, 0] => NEVER,
                    [_, 0] => per_unit,
                    _ => used[1].div_ceil(level.rate),
                };
                let full = clamped(level.parts(used).div_ceil(u128::from(level.rate)));
                let longest = if wait == NEVER { 0 } else { MAX_MEMORY };
                (wait, 1, per_unit, full, per_unit, longest)
            }
            Self::Cells(cells) => {
                let mut more = used.last().copied().unwrap_or(0);
                let (mut wait, mut full, mut freed) = (NEVER, 0, 0);
                let mut per_unit = (cells.length * cells.count as u64).div_ceil(cells.limit);
                for place in (0..used.len()).rev().filter(|place| used[*place] > 0) {
                    full = cells.until(at, place);
                    wait = wait.min(full);
                    // No unit of it comes earlier.
                    per_unit = per_unit.max((full - wait).div_ceil(freed + 1 - more.min(freed)));
                    freed += used[place];
                }
                if cells.is_weighted {
                    // The older window drains first. No unit comes later than at the slower pace of the two.
                    let begin = wait.saturating_sub(cells.length);
                    let span = full.saturating_sub(begin);
                    let pace = span.div_ceil(self.taken(used, at).max(1));
                    per_unit = pace.max(cells.length.div_ceil(more.max(1)));
                    (wait, more) = (begin + per_unit, 1);
                }
                (wait, more, per_unit, full, cells.until(at, 0), full)
            }
        };
        Figures {
            free: self.free(used, at),
            wait,
            more,
            per_unit,
            part: 0,
            full,
            renew,
            longest,
        }
    }

    /// Microseconds until a fixed or a weighted window ends: what is used counts in another one from then on.
    pub(super) const fn window_rest(&self, at: u64) -> Option<u64> {
        match self {
            Self::Cells(cells) if cells.count == 1 || cells.is_weighted => Some(cells.rest(at)),
            _ => None,
        }
    }
}

fn trim(cells: &mut Used) {
    while cells.last() == Some(&0) {
        cells.pop();
    }
}

/// `a * b / c`
pub(super) fn mul_div(a: u64, b: u64, c: u64) -> u64 {
    let quotient = u128::from(a) * u128::from(b) / u128::from(c);
    u64::try_from(quotient).unwrap_or(NEVER)
}

fn clamped(micros: u128) -> u64 {
    u64::try_from(micros).unwrap_or(u64::MAX).min(MAX_MEMORY)
}

pub(super) fn signed(units: u64) -> i64 {
    i64::try_from(units).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
