//! The shapes of the algorithms. What has none is refused with the store that takes it.

use super::shape::{Cells, LOG_CELLS, Level, Part, Shape};
use crate::algorithm::{
    Algorithm, All, AnyAlgorithm, CalendarWindow, DenialLockout, FixedWindow, Gcra, LeakyBucket,
    Lockout, Portable, SlidingGrid, SlidingLog, SlidingWindow, TokenBucket, WarmUp,
};
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
    /// Its levels and cells.
    ///
    /// # Errors
    /// If budgets of it would not keep its promise.
    fn shape(&self) -> Result<Shape, ConfigError>;
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
    fn shape(&self) -> Result<Shape, ConfigError> {
        if self.queue_limit > 0 {
            return refused("a queue with budgets", EXACT);
        }
        if self.missing_tokens() > 0 {
            return refused("a bucket with initial tokens and budgets", EXACT);
        }
        level(&self.quota())
    }
}

impl Shaped for LeakyBucket {
    fn shape(&self) -> Result<Shape, ConfigError> {
        if self.queue_limit.is_some() {
            return refused("a queue with budgets", EXACT);
        }
        level(&self.quota())
    }
}

impl Shaped for Gcra {
    fn shape(&self) -> Result<Shape, ConfigError> {
        let quota = self.quota();
        let interval = (quota.period_ns() / quota.limit()).max(1);
        let level = Level::new(quota.capacity(), interval, 1)?;
        Ok(Shape::of(Part::Level(level)))
    }
}

impl Shaped for FixedWindow {
    fn shape(&self) -> Result<Shape, ConfigError> {
        if self.anchored {
            return refused("an anchored window with budgets", EXACT);
        }
        let window = Cells::exact(&self.quota(), self.windows.offset())?;
        Ok(Shape::of(Part::Cells(window)))
    }
}

impl Shaped for CalendarWindow {
    fn shape(&self) -> Result<Shape, ConfigError> {
        refused("a window of the calendar with budgets", EXACT)
    }
}

impl Shaped for SlidingWindow {
    fn shape(&self) -> Result<Shape, ConfigError> {
        let window = Cells::exact(&self.quota(), self.windows.offset())?;
        Ok(Shape::of(Part::Cells(window.weighted())))
    }
}

impl Shaped for SlidingGrid {
    fn shape(&self) -> Result<Shape, ConfigError> {
        let (length, offset) = (self.grid.length(), self.grid.offset());
        let grid = Cells::new(&self.quota(), length, offset, self.counted_cells())?;
        Ok(Shape::of(Part::Cells(grid)))
    }
}

/// A strict grid: it keeps the promise of a log, and counts a cost up to a cell longer.
impl Shaped for SlidingLog {
    fn shape(&self) -> Result<Shape, ConfigError> {
        let quota = self.quota();
        let length = quota.period_ns().div_ceil(LOG_CELLS);
        let grid = Cells::new(&quota, length, 0, LOG_CELLS + 1)?;
        Ok(Shape::of(Part::Cells(grid)))
    }
}

impl Shaped for WarmUp {
    fn shape(&self) -> Result<Shape, ConfigError> {
        refused("`WarmUp` with budgets", EXACT)
    }
}

impl Shaped for Lockout {
    fn shape(&self) -> Result<Shape, ConfigError> {
        refused("`Lockout` with budgets", EXACT)
    }
}

impl<A: Portable> Shaped for DenialLockout<A> {
    fn shape(&self) -> Result<Shape, ConfigError> {
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
    fn shape(&self) -> Result<Shape, ConfigError> {
        all_of(self.parts().iter().map(Shaped::shape))
    }
}

impl<A: Shaped, B: Shaped> Shaped for (A, B) {
    fn shape(&self) -> Result<Shape, ConfigError> {
        all_of([self.0.shape(), self.1.shape()])
    }
}

impl Shaped for AnyAlgorithm {
    fn shape(&self) -> Result<Shape, ConfigError> {
        match self {
            Self::FixedWindow(algorithm) => algorithm.shape(),
            Self::CalendarWindow(algorithm) => algorithm.shape(),
            Self::SlidingLog(algorithm) => algorithm.shape(),
            Self::SlidingWindow(algorithm) => algorithm.shape(),
            Self::SlidingGrid(algorithm) => algorithm.shape(),
            Self::TokenBucket(algorithm) => algorithm.shape(),
            Self::LeakyBucket(algorithm) => algorithm.shape(),
            Self::WarmUp(algorithm) => algorithm.shape(),
            Self::Gcra(algorithm) => algorithm.shape(),
            Self::Lockout(algorithm) => algorithm.shape(),
            Self::All(algorithm) => algorithm.shape(),
            Self::DenialLockout(algorithm) => algorithm.shape(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows promise 200.
    #[test]
    fn what_has_no_shape_is_refused_with_the_store_that_takes_it() {
        let (quota, warm) = (Quota::per_second(10), std::time::Duration::from_secs(1));
        let exact = [
            TokenBucket::new(quota).queue(1).shape(),
            TokenBucket::new(quota).initial(1).shape(),
            LeakyBucket::new(quota).queue(1).shape(),
            FixedWindow::new(quota).anchored().shape(),
            WarmUp::new(quota, warm).shape(),
            Lockout::new(quota).shape(),
            AnyAlgorithm::new(WarmUp::new(quota, warm)).shape(),
            (FixedWindow::new(quota), WarmUp::new(quota, warm)).shape(),
        ];
        let day = CalendarWindow::try_new(Quota::per_day(10), "UTC");
        for error in exact.into_iter().chain(day.ok().map(|day| day.shape())) {
            let error = error.unwrap_err().to_string();
            assert!(error.ends_with(EXACT), "{error}");
        }
        let lockout = Lockout::new(quota).after_denials_of(FixedWindow::new(quota));
        for error in [lockout.shape(), AnyAlgorithm::new(lockout).shape()] {
            let error = error.unwrap_err().to_string();
            assert!(error.ends_with(CAS), "{error}");
        }
    }

    /// Shows promise 200.
    #[test]
    fn shapes_have_the_figures_of_their_algorithms() {
        let quota = Quota::per_second(3).burst(5);
        let Part::Level(level) = TokenBucket::new(quota).shape().unwrap().parts[0] else {
            panic!("a bucket is a level");
        };
        // A third of a second, exactly.
        assert_eq!((level.capacity, level.unit, level.rate), (5, 1_000_000, 3));
        let both = All::new(
            [1, 60].map(|limit| AnyAlgorithm::new(FixedWindow::new(Quota::per_minute(limit)))),
        );
        assert_eq!(both.shape().unwrap().capacity(), 1);
        let log = SlidingLog::new(Quota::per_minute(7)).shape().unwrap();
        let Part::Cells(cells) = log.parts[0] else {
            panic!("a log is cells");
        };
        // All cells but the newest cover the period.
        assert!(cells.length * (cells.count as u64 - 1) >= 60_000_000);
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
        assert!(Level::new(1 << 32, 1, 1).is_err());
        assert!(Level::new(4, 1 << 62, 1).is_err());
    }
}
