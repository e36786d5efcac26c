//! The shapes of the algorithms. What has none is refused with the store that takes it.

use super::shape::{Cells, LOG_CELLS, Level, Part, Shape};
use crate::algorithm::{
    Algorithm, All, AnyAlgorithm, CalendarWindow, DenialLockout, FixedWindow, Gcra, LeakyBucket,
    Lockout, Portable, SlidingGrid, SlidingLog, SlidingWindow, TokenBucket, WarmUp, settings,
};
use crate::clock::Tick;
use crate::error::ConfigError;
use crate::quota::Quota;

/// An algorithm that a fleet can share by budgets.
///
/// Implemented by the buckets and windows of this crate and by combinations of them.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no budgets for a fleet",
    note = "`store::cas::Cas` takes an algorithm of your own"
)]
pub trait Shaped: Portable {
    /// Its levels and cells at a moment, which counts from 1970: windows of the calendar differ in length.
    ///
    /// # Errors
    /// If budgets of it would not keep its promise.
    fn shape(&self, now: Tick) -> Result<Shape, ConfigError>;
}

const EXACT: &str = "use the exact limiter of Redis, or `Cas`";
const CAS: &str = "use `Cas`";

fn refused(what: &'static str, instead: &'static str) -> Result<Shape, ConfigError> {
    Err(ConfigError::Unsupported { what, instead })
}

fn level(quota: &Quota) -> Result<Shape, ConfigError> {
    let level = Level::new(quota.capacity(), quota.period_ns(), quota.limit())?;
    Ok(Shape::of(Part::Level(level)))
}

impl Shaped for TokenBucket {
    fn shape(&self, _: Tick) -> Result<Shape, ConfigError> {
        if self.queue_limit > 0 {
            return refused("a queue with budgets", EXACT);
        }
        if self.missing_tokens() > 0 {
            return refused("a bucket with initial tokens and budgets", EXACT);
        }
        let mut listed = settings(self).into_iter();
        if listed.any(|(setting, value)| {
            value.is_some() && ["debt", "refill_every"].contains(&setting.name)
        }) {
            return refused("a bucket with a debt or with steps and budgets", CAS);
        }
        level(&self.quota())
    }
}

impl Shaped for LeakyBucket {
    fn shape(&self, _: Tick) -> Result<Shape, ConfigError> {
        if self.queue_limit.is_some() {
            return refused("a queue with budgets", EXACT);
        }
        level(&self.quota())
    }
}

impl Shaped for Gcra {
    fn shape(&self, _: Tick) -> Result<Shape, ConfigError> {
        let quota = self.quota();
        let interval = (quota.period_ns() / quota.limit()).max(1);
        let level = Level::new(quota.capacity(), interval, 1)?;
        Ok(Shape::of(Part::Level(level)))
    }
}

impl Shaped for FixedWindow {
    fn shape(&self, _: Tick) -> Result<Shape, ConfigError> {
        if self.anchored {
            return refused("an anchored window with budgets", EXACT);
        }
        let window = Cells::exact(&self.quota(), self.windows.offset())?;
        Ok(Shape::of(Part::Cells(window)))
    }
}

impl Shaped for CalendarWindow {
    fn shape(&self, now: Tick) -> Result<Shape, ConfigError> {
        let window = self.window_at(now.as_nanos() / 1_000_000_000);
        let window = Cells::calendar(&self.quota(), window)?;
        Ok(Shape::of(Part::Cells(window)))
    }
}

impl Shaped for SlidingWindow {
    fn shape(&self, _: Tick) -> Result<Shape, ConfigError> {
        let window = Cells::exact(&self.quota(), self.windows.offset())?;
        Ok(Shape::of(Part::Cells(window.weighted())))
    }
}

impl Shaped for SlidingGrid {
    fn shape(&self, _: Tick) -> Result<Shape, ConfigError> {
        let (length, offset) = (self.grid.length(), self.grid.offset());
        let grid = Cells::new(&self.quota(), length, offset, self.counted_cells())?;
        Ok(Shape::of(Part::Cells(grid)))
    }
}

/// A strict grid: it keeps the promise of a log, and counts a cost up to a cell longer.
impl Shaped for SlidingLog {
    fn shape(&self, _: Tick) -> Result<Shape, ConfigError> {
        let quota = self.quota();
        let length = quota.period_ns().div_ceil(LOG_CELLS);
        let grid = Cells::new(&quota, length, 0, LOG_CELLS + 1)?;
        Ok(Shape::of(Part::Cells(grid)))
    }
}

impl Shaped for WarmUp {
    fn shape(&self, _: Tick) -> Result<Shape, ConfigError> {
        refused("`WarmUp` with budgets", EXACT)
    }
}

impl Shaped for Lockout {
    fn shape(&self, _: Tick) -> Result<Shape, ConfigError> {
        refused("`Lockout` with budgets", EXACT)
    }
}

impl<A: Portable> Shaped for DenialLockout<A> {
    fn shape(&self, _: Tick) -> Result<Shape, ConfigError> {
        refused("a lockout of denials with budgets", CAS)
    }
}

fn all_of(
    parts: impl IntoIterator<Item = Result<Shape, ConfigError>>,
) -> Result<Shape, ConfigError> {
    let none = Shape { parts: Vec::new() };
    parts
        .into_iter()
        .try_fold(none, |all, part| Ok(all.and(part?)))
}

impl<A: Shaped> Shaped for All<A> {
    fn shape(&self, now: Tick) -> Result<Shape, ConfigError> {
        all_of(self.parts().iter().map(|part| part.shape(now)))
    }
}

impl<A: Shaped, B: Shaped> Shaped for (A, B) {
    fn shape(&self, now: Tick) -> Result<Shape, ConfigError> {
        all_of([self.0.shape(now), self.1.shape(now)])
    }
}

impl Shaped for AnyAlgorithm {
    fn shape(&self, now: Tick) -> Result<Shape, ConfigError> {
        match self {
            Self::FixedWindow(algorithm) => algorithm.shape(now),
            Self::CalendarWindow(algorithm) => algorithm.shape(now),
            Self::SlidingLog(algorithm) => algorithm.shape(now),
            Self::SlidingWindow(algorithm) => algorithm.shape(now),
            Self::SlidingGrid(algorithm) => algorithm.shape(now),
            Self::TokenBucket(algorithm) => algorithm.shape(now),
            Self::LeakyBucket(algorithm) => algorithm.shape(now),
            Self::WarmUp(algorithm) => algorithm.shape(now),
            Self::Gcra(algorithm) => algorithm.shape(now),
            Self::Lockout(algorithm) => algorithm.shape(now),
            Self::All(algorithm) => algorithm.shape(now),
            Self::DenialLockout(algorithm) => algorithm.shape(now),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In March 2026.
    const NOW: Tick = Tick::from_nanos(1_773_000_000_000_000_000);

    /// Shows promise 200.
    #[test]
    fn what_has_no_shape_is_refused_with_the_store_that_takes_it() {
        let (quota, warm) = (Quota::per_second(10), std::time::Duration::from_secs(1));
        let exact = [
            TokenBucket::new(quota).queue(1).shape(NOW),
            TokenBucket::new(quota).initial(1).shape(NOW),
            LeakyBucket::new(quota).queue(1).shape(NOW),
            FixedWindow::new(quota).anchored().shape(NOW),
            WarmUp::new(quota, warm).shape(NOW),
            Lockout::new(quota).shape(NOW),
            AnyAlgorithm::new(WarmUp::new(quota, warm)).shape(NOW),
            (FixedWindow::new(quota), WarmUp::new(quota, warm)).shape(NOW),
        ];
        for error in exact {
            let error = error.unwrap_err().to_string();
            assert!(error.ends_with(EXACT), "{error}");
        }
        let lockout = Lockout::new(quota).after_denials_of(FixedWindow::new(quota));
        let steps = TokenBucket::new(quota).refill_every(warm);
        let only_in_cas = [
            lockout.shape(NOW),
            AnyAlgorithm::new(lockout).shape(NOW),
            TokenBucket::new(quota).debt(1).shape(NOW),
            steps.shape(NOW),
        ];
        for error in only_in_cas {
            let error = error.unwrap_err().to_string();
            assert!(error.ends_with(CAS), "{error}");
        }
    }

    /// Shows promise 200.
    #[test]
    fn shapes_have_the_figures_of_their_algorithms() {
        let quota = Quota::per_second(3).burst(5);
        let Part::Level(level) = TokenBucket::new(quota).shape(NOW).unwrap().parts[0] else {
            panic!("a bucket is a level");
        };
        // A third of a second, exactly.
        assert_eq!((level.capacity, level.unit, level.rate), (5, 1_000_000, 3));
        // Of whole nanoseconds.
        #[cfg(feature = "governor")]
        assert_eq!(
            Gcra::new(quota).shape(NOW).unwrap(),
            Shape::of(Part::Level(Level::new(5, 333_333_333, 1).unwrap()))
        );
        let both = All::new(
            [1, 60].map(|limit| AnyAlgorithm::new(FixedWindow::new(Quota::per_minute(limit)))),
        );
        assert_eq!(both.shape(NOW).unwrap().capacity(), 1);
        let log = SlidingLog::new(Quota::per_minute(7)).shape(NOW).unwrap();
        let Part::Cells(cells) = log.parts[0] else {
            panic!("a log is cells");
        };
        // All cells but the newest cover the period.
        assert!(cells.length * (cells.count as u64 - 1) >= 60_000_000);
    }

    /// A window of a minute, one that slides, and a log, of which three units were used in the first second.
    #[test]
    fn windows_end_and_are_free_when_their_costs_count_no_more() {
        let quota = Quota::per_minute(6);
        let part = |shape: Result<Shape, ConfigError>| shape.unwrap().parts[0];
        let fixed = part(FixedWindow::new(quota).shape(NOW));
        let sliding = part(SlidingWindow::new(quota).shape(NOW));
        let log = part(SlidingLog::new(quota).shape(NOW));
        let (minute, at) = (60_000_000, 70_000_000);
        let Part::Cells(cells) = log else {
            panic!("a log is cells");
        };
        let rest = cells.length - at % cells.length;
        let log_full = rest + (cells.count as u64 - 1) * cells.length;
        let figures = |part: Part| {
            let more = part.more(&[3], at);
            let ends = [part.fixed_end(at), part.window_end(at)];
            (ends, part.time_to_full(&[3], at), more.wait, more.per_unit)
        };
        let end = Some(2 * minute);
        let to_end = 2 * minute - at;
        assert_eq!(figures(fixed), ([end; 2], to_end, to_end, minute / 6));
        assert_eq!(
            figures(sliding),
            ([None, end], to_end + minute, to_end, minute / 3)
        );
        let per_unit = (cells.length * cells.count as u64).div_ceil(6);
        assert_eq!(figures(log), ([None; 2], log_full, log_full, per_unit));
        // The newest costs are those of the cell before.
        assert_eq!(sliding.time_to_full(&[0, 3], at), to_end);
        assert_eq!(sliding.more(&[0, 3], at).wait, minute / 3);
        assert_eq!(log.more(&[0, 3], at).wait, log_full - cells.length);
    }

    /// A count begins anew only if a month has ended between two moments, whichever month a machine names.
    ///
    /// Shows promise 318.
    #[cfg(feature = "calendar")]
    #[test]
    fn no_window_of_the_calendar_begins_anew_too_early() {
        let months = CalendarWindow::try_new(Quota::per_month(10), "Europe/Berlin").unwrap();
        let second = |second: u64| Tick::from_nanos(second * 1_000_000_000);
        let ends: Vec<_> = (0..4)
            .scan(1_773_000_000, |at, _| {
                *at = months.window_at(*at).1;
                Some(*at)
            })
            .collect();
        let moments: Vec<_> = ends
            .iter()
            .flat_map(|end| [end - 1, *end, end + 86_400])
            .collect();
        let mut begun = 0;
        for named in &moments {
            let Part::Cells(cells) = months.shape(second(*named)).unwrap().parts[0] else {
                panic!("a window is cells");
            };
            let part = Part::Cells(cells);
            for (place, from) in moments.iter().enumerate() {
                for to in &moments[place..] {
                    let mut used = vec![7];
                    part.advance(&mut used, from * 1_000_000, to * 1_000_000);
                    let has_ended = ends.iter().any(|end| from < end && end <= to);
                    assert!(used == [7] || has_ended, "{named}: {from} to {to}");
                    if named == to {
                        assert_eq!(used.is_empty(), has_ended, "{from} to {to}");
                        begun += u32::from(has_ended);
                    }
                }
            }
        }
        assert!(begun > 10);
    }

    /// Shows promise 200.
    #[test]
    fn extreme_levels_are_rounded_to_the_safe_side() {
        for (burst, num, den) in [
            (u64::from(u32::MAX), 1, 999_999_937),
            (1, 1 << 60, 1),
            (1_000_003, 86_400_000_000_000, 999_983),
        ] {
            let Level {
                capacity,
                unit,
                rate,
            } = Level::new(burst, num, den).unwrap();
            assert!(capacity * unit <= 1 << 51 && rate > 0);
            // unit / rate microseconds are at least num / den nanoseconds, and less than a millionth more.
            let (ours, exact) = (
                u128::from(unit) * u128::from(den) * 1_000,
                u128::from(num) * u128::from(rate),
            );
            assert!(
                ours >= exact && ours - exact <= exact / 100_000,
                "{burst} {num}/{den}"
            );
        }
        for (from, to) in [
            (7, 11),
            (1_000, 86_400_000_000_007),
            (86_400_000_000_007, 1_000),
        ] {
            let level = Level {
                capacity: 5,
                unit: to,
                rate: 1,
            };
            let ticks = 2 * from + from / 3;
            let converted = Part::Level(level).adopt('l', from, vec![ticks]);
            let exact = u128::from(ticks) * u128::from(to);
            let ours = u128::from(converted[0]) * u128::from(from);
            assert!(
                ours >= exact && ours - exact <= exact / 100_000 + u128::from(from),
                "{from} {to}"
            );
        }
        assert!(Level::new(1 << 32, 1, 1).is_err());
        assert!(Level::new(4, 1 << 62, 1).is_err());
    }
}
