//! The shapes of the algorithms. What has none is refused with the store that takes it.

use std::time::Duration;

use super::shape::{Cells, Level, Part, Shape};
use crate::algorithm::{
    Algorithm, Cells as CellsOf, Division as DivisionOf, Kernel, Level as LevelOf, kernels,
};
use crate::clock::Tick;
use crate::error::ConfigError;
use crate::quota::Quota;

const INSTEAD: &str = "use the exact limiter of Redis, or `Cas`";

fn refused<T>(what: &'static str) -> Result<T, ConfigError> {
    Err(ConfigError::Unsupported {
        what,
        instead: INSTEAD,
    })
}

/// The levels and cells of an algorithm at a moment, which counts from 1970: windows of the calendar differ in length.
///
/// # Errors
/// If budgets of it would not keep its promise.
pub(super) fn shape_of<A: Algorithm>(algorithm: &A, now: Tick) -> Result<Shape, ConfigError> {
    let Some(kernels) = kernels(algorithm, now) else {
        return refused(
            "a lockout, a warm-up, a debt, steps or an algorithm of your own with budgets",
        );
    };
    let parts = kernels.into_iter().map(|kernel| match kernel {
        Kernel::Level(level) => level_of(level).map(Part::Level),
        Kernel::Cells(cells) => cells_of(cells).map(Part::Cells),
        Kernel::Log { limit, period } => {
            let quota = Quota::per(limit, Duration::from_nanos(period));
            Cells::log(&quota, period).map(Part::Cells)
        }
    });
    Ok(Shape {
        parts: parts.collect::<Result<_, _>>()?,
    })
}

fn level_of(level: LevelOf) -> Result<Level, ConfigError> {
    if level.initial > 0 {
        return refused("a bucket with initial tokens and budgets");
    }
    Level::new(level.capacity, level.period, level.rate)
}

fn cells_of(cells: CellsOf) -> Result<Cells, ConfigError> {
    let CellsOf {
        limit,
        length,
        offset,
        count,
        division,
    } = cells;
    let quota = Quota::per(limit, Duration::from_nanos(length.max(1)));
    match division {
        DivisionOf::Anchored => refused("an anchored window with budgets"),
        DivisionOf::Calendar {
            starts: [_, start, end, _],
            ..
        } => Cells::calendar(&quota, (start, end)),
        DivisionOf::Weighted => Cells::log(&quota, length),
        DivisionOf::Even if count == 1 => Cells::exact(&quota, offset),
        DivisionOf::Even => Cells::new(&quota, length, offset, count),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::{
        All, AnyAlgorithm, CalendarWindow, FixedWindow, IntoAlgorithm, Lockout, SlidingLog,
        SlidingWindow, TokenBucket, WarmUp,
    };

    /// In March 2026.
    const NOW: Tick = Tick::from_nanos(1_773_000_000_000_000_000);

    /// Shows promise 200.
    #[test]
    fn what_has_no_shape_is_refused_with_the_store_that_takes_it() {
        let (quota, warm) = (Quota::per_second(10), std::time::Duration::from_secs(1));
        let lockout = Lockout::new(quota).after_denials_of(FixedWindow::new(quota));
        for shape in [
            shape_of(&TokenBucket::new(quota).initial(1), NOW),
            shape_of(&TokenBucket::new(quota).debt(1), NOW),
            shape_of(&TokenBucket::new(quota).refill_every(warm), NOW),
            shape_of(&FixedWindow::new(quota).anchored(), NOW),
            shape_of(&WarmUp::new(quota, warm), NOW),
            shape_of(&AnyAlgorithm::new(WarmUp::new(quota, warm)), NOW),
            shape_of(
                &(FixedWindow::new(quota), WarmUp::new(quota, warm)).into_algorithm(),
                NOW,
            ),
            shape_of(&Lockout::new(quota), NOW),
            shape_of(&lockout, NOW),
        ] {
            let error = shape.unwrap_err().to_string();
            assert!(error.ends_with(INSTEAD), "{error}");
        }
    }

    /// Shows promise 200.
    #[test]
    fn shapes_have_the_figures_of_their_algorithms() {
        let quota = Quota::per_second(3).burst(5);
        let Part::Level(level) = shape_of(&TokenBucket::new(quota), NOW).unwrap().parts[0] else {
            panic!("a bucket is a level");
        };
        // A third of a second, exactly.
        let figures = (level.capacity, level.rate, level.period);
        assert_eq!(figures, (5, 3, 1_000_000));
        // Of whole nanoseconds.
        #[cfg(feature = "governor")]
        assert_eq!(
            shape_of(&crate::algorithm::Gcra::new(quota), NOW).unwrap(),
            Shape::of(Part::Level(Level::new(5, 333_333_333, 1).unwrap()))
        );
        let both = All::new(
            [1, 60].map(|limit| AnyAlgorithm::new(FixedWindow::new(Quota::per_minute(limit)))),
        );
        assert_eq!(shape_of(&both, NOW).unwrap().capacity(), 1);
        let log = shape_of(&SlidingLog::new(Quota::per_minute(7)), NOW).unwrap();
        let Part::Cells(cells) = log.parts[0] else {
            panic!("a log is cells");
        };
        // All cells but the newest cover the period.
        assert!(cells.length * (cells.count as u64 - 1) >= 60_000_000);
    }

    /// Values of limits that differ in the number of units have one name, and others have another one.
    ///
    /// Shows promise 200.
    #[test]
    fn what_counts_alike_has_one_name() {
        let name = |shape: Result<Shape, ConfigError>| shape.unwrap().layout();
        let minute = |limit| Quota::per_minute(limit);
        let both = (FixedWindow::new(minute(7)), TokenBucket::new(minute(7)));
        let names = [
            name(shape_of(&TokenBucket::new(minute(7)), NOW)),
            name(shape_of(&FixedWindow::new(minute(7)), NOW)),
            name(shape_of(&SlidingLog::new(minute(7)), NOW)),
            name(shape_of(&both.into_algorithm(), NOW)),
        ];
        let expected = [
            "bucket/60000000",
            "cells/1x60000000+0",
            "cells/49x1250000+0",
            "cells/1x60000000+0+bucket/60000000",
        ];
        assert_eq!(names, expected);
        assert_eq!(
            name(shape_of(&TokenBucket::new(minute(9).burst(90)), NOW)),
            names[0]
        );
        assert_ne!(
            name(shape_of(&TokenBucket::new(Quota::per_second(7)), NOW)),
            names[0]
        );
        let moved = FixedWindow::new(minute(7)).offset(Duration::from_secs(1));
        assert_ne!(name(shape_of(&moved, NOW)), names[1]);
        // A weighted window is leased as a log.
        let weighted = shape_of(&SlidingWindow::new(minute(7)), NOW).unwrap();
        assert_eq!(
            weighted,
            shape_of(&SlidingLog::new(minute(7)), NOW).unwrap()
        );
    }

    /// A count begins anew only if a month has ended between two moments, whichever month a machine names.
    ///
    /// Shows promise 318.
    #[cfg(feature = "calendar")]
    #[test]
    fn no_window_of_the_calendar_begins_anew_too_early() {
        let months = CalendarWindow::new(Quota::per_month(10), "Europe/Berlin").unwrap();
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
            let Part::Cells(cells) = shape_of(&months, second(*named)).unwrap().parts[0] else {
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
    fn extreme_levels_are_refused_or_rounded_to_the_safe_side() {
        let level = |capacity, period, rate| {
            let level = Level::new(capacity, period, rate).unwrap();
            (level.rate, level.period)
        };
        assert_eq!(level(1, 1_000_000_007, 1), (1_000, 1_000_000_007));
        let long = (1 << 60) + 1;
        assert_eq!(
            level(u64::from(u32::MAX), long, 1),
            (1, long.div_ceil(1_000))
        );
        assert!(Level::new(1 << 32, 1_000, 1).is_err());
        assert!(Level::new(1, 1_000, 1 << 32).is_err());
    }
}
