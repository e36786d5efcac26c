//! What a limit is for a fleet, in figures.

use std::time::Duration;

use super::*;
use crate::algorithm::{
    All, AnyAlgorithm, FixedWindow, IntoAlgorithm, Lockout, SlidingLog, SlidingWindow, TokenBucket,
    WarmUp,
};
use crate::quota::Quota;

const MILLI: u64 = 1_000;
const SECOND: u64 = 1_000_000;
const MINUTE: u64 = 60 * SECOND;

/// In March 2026.
const NOW: Tick = Tick::from_nanos(1_773_000_000_000_000_000);

/// Nine units, of which one is drained per millisecond.
fn level() -> ShapePart {
    bucket(9, 1)
}

/// Four units, of which three are drained per millisecond.
fn quick() -> ShapePart {
    bucket(4, 3)
}

fn bucket(capacity: u64, rate: u64) -> ShapePart {
    ShapePart::Level(Level {
        capacity,
        rate,
        period: MILLI,
    })
}

/// Windows of a minute.
fn fixed(limit: u64) -> ShapePart {
    Shape::of(&FixedWindow::new(Quota::per_minute(limit)), NOW)
        .unwrap()
        .parts[0]
}

/// Of four cells.
fn grid(limit: u64) -> ShapePart {
    even(60_000_000_000 / 4, 0, 4, limit).unwrap()
}

fn even(length: u64, offset: u64, count: u64, limit: u64) -> Option<ShapePart> {
    ShapePart::of(Kernel::Cells(CellsOf {
        limit,
        length,
        offset,
        count,
        division: Division::Even,
    }))
}

/// From the second 1,000 to the second 2,000.
fn calendar() -> ShapePart {
    ShapePart::Cells(Cells {
        limit: 6,
        length: 1_000 * SECOND,
        padding: 1_000 * SECOND,
        count: 1,
        is_calendar: true,
        is_weighted: false,
    })
}

/// Shows promise 200.
#[test]
fn a_key_is_remembered_until_it_is_as_good_as_new_and_not_much_longer() {
    let expected = [
        (level(), 9 * MILLI),
        (quick(), 1_334),
        (fixed(6), MINUTE),
        (grid(6), MINUTE),
    ];
    for (part, time_to_fill) in expected {
        let shape = Shape::new(vec![part]);
        assert_eq!(shape.time_to_fill(), time_to_fill, "{part:?}");
        // Twice the limit is used, and a microsecond is rounded.
        let mut used = part.unused();
        part.charge(&mut used, MINUTE - 1, 2 * part.capacity(), MINUTE - 1);
        part.advance(&mut used, MINUTE - 1, MINUTE + 2 * time_to_fill);
        assert_eq!(used, part.unused(), "{part:?}");
    }
    let both = Shape::new(vec![level(), grid(6)]);
    assert_eq!((both.time_to_fill(), both.capacity), (MINUTE, 6));
}

#[test]
fn a_window_of_the_calendar_holds_until_it_ends() {
    // Before, in and after it.
    let rest = [400, 1_400, 2_400].map(|second| calendar().figures(&[], second * SECOND).renew);
    assert_eq!(rest, [600, 600, 1_000].map(|second| second * SECOND));
}

/// Shows promise 200.
#[test]
fn what_has_no_shape_is_refused_with_the_store_that_takes_it() {
    let (quota, warm) = (Quota::per_second(10), Duration::from_secs(1));
    let lockout = Lockout::new(quota).after_denials_of(FixedWindow::new(quota));
    for shape in [
        Shape::of(&TokenBucket::new(quota).initial(1), NOW),
        Shape::of(&TokenBucket::new(quota).debt(1), NOW),
        Shape::of(&TokenBucket::new(quota).refill_every(warm), NOW),
        Shape::of(&FixedWindow::new(quota).anchored(), NOW),
        Shape::of(&WarmUp::new(quota, warm), NOW),
        Shape::of(&AnyAlgorithm::new(WarmUp::new(quota, warm)), NOW),
        Shape::of(
            &(FixedWindow::new(quota), WarmUp::new(quota, warm)).into_algorithm(),
            NOW,
        ),
        Shape::of(&Lockout::new(quota), NOW),
        Shape::of(&lockout, NOW),
    ] {
        let error = shape.unwrap_err().to_string();
        assert!(
            error.ends_with("use the exact limiter of Redis, or `Cas`"),
            "{error}"
        );
    }
}

/// Shows promise 200.
#[test]
fn shapes_have_the_figures_of_their_algorithms() {
    let quota = Quota::per_second(3).burst(5);
    let ShapePart::Level(level) = Shape::of(&TokenBucket::new(quota), NOW).unwrap().parts[0] else {
        panic!("a bucket is a level");
    };
    // A third of a second, exactly.
    let figures = (level.capacity, level.rate, level.period);
    assert_eq!(figures, (5, 3, 1_000_000));
    // Of whole nanoseconds.
    #[cfg(feature = "governor")]
    assert_eq!(
        Shape::of(&crate::algorithm::Gcra::new(quota), NOW).unwrap(),
        Shape::new(vec![ShapePart::Level(Level {
            capacity: 5,
            rate: 1_000,
            period: 333_333_333
        })])
    );
    let both = All::new(
        [1, 60].map(|limit| AnyAlgorithm::new(FixedWindow::new(Quota::per_minute(limit)))),
    );
    assert_eq!(Shape::of(&both, NOW).unwrap().capacity, 1);
    let log = Shape::of(&SlidingLog::new(Quota::per_minute(7)), NOW).unwrap();
    let ShapePart::Cells(cells) = log.parts[0] else {
        panic!("a log is cells");
    };
    // All cells but the newest cover the period.
    assert!(cells.length * (cells.count as u64 - 1) >= 60_000_000);
}

/// A count begins anew only if a month has ended between two moments, whichever month a machine names.
///
/// Shows promise 318.
#[cfg(feature = "calendar")]
#[test]
fn no_window_of_the_calendar_begins_anew_too_early() {
    let months =
        crate::algorithm::CalendarWindow::new(Quota::per_month(10), "Europe/Berlin").unwrap();
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
        let part = Shape::of(&months, second(*named)).unwrap().parts[0];
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
        let part = ShapePart::of(Kernel::Level(LevelOf {
            rate,
            period,
            capacity,
            initial: 0,
        }));
        part.map(|part| match part {
            ShapePart::Level(level) => (level.rate, level.period),
            ShapePart::Cells(_) => panic!("it is a level"),
        })
    };
    assert_eq!(level(1, 1_000_000_007, 1), Some((1_000, 1_000_000_007)));
    let long: u64 = (1 << 60) + 1;
    let rounded = Some((1, long.div_ceil(1_000)));
    assert_eq!(level(u64::from(u32::MAX), long, 1), rounded);
    assert_eq!(level(1 << 32, 1_000, 1), None);
    assert_eq!(level(1, 1_000, 1 << 32), None);
}

/// Never too short, and over when all is free.
#[test]
fn a_wait_is_as_long_as_the_cells_say() {
    let quota = Quota::per_minute(100);
    let log = Shape::of(&SlidingLog::new(quota), NOW).unwrap().parts[0];
    let window = Shape::of(&SlidingWindow::new(quota), NOW).unwrap().parts[0];
    let cells = |[newest, middle, oldest]: [u64; 3]| {
        let counts = (0..48).map(|place| match place {
            0 => newest,
            24 => middle,
            47 => oldest,
            _ => 0,
        });
        counts.collect::<Used>()
    };
    for counts in [
        [99, 0, 1],
        [1, 98, 1],
        [49, 50, 1],
        [1, 0, 99],
        [10_000, 0, 1],
    ] {
        for (part, used, at) in [
            (log, cells(counts), MINUTE),
            (
                window,
                vec![counts[0], counts[1] + counts[2]],
                MINUTE + 17 * SECOND,
            ),
        ] {
            let figures = part.figures(&used, at);
            for units in 1..=100 {
                let wait = figures.wait_for(1, units, 0);
                let mut later = used.clone();
                part.advance(&mut later, at, at + wait);
                let is_free = part.free(&later, at + wait) >= units;
                assert!(is_free || wait == figures.longest, "{used:?} {units}");
                assert!(wait <= figures.renew, "{used:?} {units}: {wait}");
            }
        }
    }
    let day = Shape::of(&TokenBucket::new(Quota::per_day(1)), NOW)
        .unwrap()
        .parts[0];
    let figures = day.figures(&[MAX_UNITS, 0], MINUTE);
    assert_eq!(figures.wait_for(1, 1, 0), MAX_MEMORY);
}
