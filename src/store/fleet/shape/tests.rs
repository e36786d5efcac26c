//! What a limit is for a fleet, in figures.

use std::time::Duration;

use super::*;
use crate::algorithm::{
    All, AnyAlgorithm, FixedWindow, IntoAlgorithm, Lockout, SlidingLog, TokenBucket, WarmUp,
};
use crate::quota::Quota;

const MILLI: u64 = 1_000;
const SECOND: u64 = 1_000_000;
const MINUTE: u64 = 60 * SECOND;

/// In March 2026.
const NOW: Tick = Tick::from_nanos(1_773_000_000_000_000_000);

/// Nine units, of which one is drained per millisecond.
fn level() -> Part {
    bucket(9, 1)
}

/// Four units, of which three are drained per millisecond.
fn quick() -> Part {
    bucket(4, 3)
}

fn bucket(capacity: u64, rate: u64) -> Part {
    Part::Level(Level {
        capacity,
        rate,
        period: MILLI,
    })
}

/// Windows of a minute.
fn fixed(limit: u64) -> Part {
    Shape::of(&FixedWindow::new(Quota::per_minute(limit)), NOW)
        .unwrap()
        .parts[0]
}

/// Of four cells.
fn grid(limit: u64) -> Part {
    even(60_000_000_000 / 4, 0, 4, limit).unwrap()
}

fn even(length: u64, offset: u64, count: u64, limit: u64) -> Option<Part> {
    Part::of(Kernel::Cells(CellsOf {
        limit,
        length,
        offset,
        count,
        division: Division::Even,
    }))
}

/// From the second 1,000 to the second 2,000.
fn calendar() -> Part {
    Part::Cells(Cells {
        limit: 6,
        length: 1_000 * SECOND,
        padding: 1_000 * SECOND,
        count: 1,
        is_calendar: true,
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
    let shape = Shape::new(vec![level(), calendar()]);
    let at = [
        1_000 * SECOND - 1,
        1_000 * SECOND,
        2_000 * SECOND - 1,
        2_000 * SECOND,
    ];
    assert_eq!(at.map(|at| shape.holds_at(at)), [false, true, true, false]);
    assert!(Shape::new(vec![grid(6)]).holds_at(0));
    // Before, in and after it.
    let rest = [400, 1_400, 2_400].map(|second| calendar().figures(&[], second * SECOND).renew);
    assert_eq!(rest, [600, 600, 1_000].map(|second| second * SECOND));
}

#[test]
fn what_refills_is_rounded_down_and_granted_ahead() {
    let refill = |part: Part, span| part.refill(span);
    assert_eq!([refill(level(), 2_999), refill(quick(), 2_999)], [2, 8]);
    let of_grid = |seconds| refill(grid(6), seconds * SECOND);
    assert_eq!([7, 8, 15].map(of_grid), [0, 1, 2]);
    assert_eq!(refill(fixed(6), 30 * SECOND), 0);
    // More than a limit can have.
    assert_eq!(refill(level(), NEVER), MAX_UNITS);
    assert_eq!(mul_div(u64::MAX, u64::MAX, 1), NEVER);
    let ahead = |part: Part, used: &[u64], at, span| part.ahead(used, at, span);
    assert_eq!(ahead(level(), &[0, 0], 0, 4 * MILLI), 4);
    assert_eq!(ahead(fixed(60), &[50], 59 * SECOND, MINUTE), 0);
    // The oldest cell ends in two seconds, and a burst becomes free at the rate of the limit.
    for (used, span, units) in [
        ([2, 0, 0, 4], 1_999, 0),
        ([2, 0, 0, 4], 3_000, 4),
        ([2, 0, 0, 50], 3_000, 4),
    ] {
        let found = ahead(grid(60), &used, 13 * SECOND, span * MILLI);
        assert_eq!(found, units, "{used:?} {span}");
    }
}

#[test]
fn windows_begin_where_their_offset_says_and_are_rounded_up() {
    let from = |offset| even(60_000_000_000, offset, 1, 6).unwrap();
    for (offset, end) in [(0, 60), (20_000_000_000, 20), (80_000_000_000, 20)] {
        let rest = from(offset).window_rest(10 * SECOND);
        assert_eq!(rest, Some((end - 10) * SECOND), "{offset}");
    }
    for (to, used) in [(19, vec![3]), (20, vec![])] {
        let mut cells = vec![3];
        from(20_000_000_000).advance(&mut cells, 10 * SECOND, to * SECOND);
        assert_eq!(cells, used, "{to}");
    }
    let Some(Part::Cells(short)) = even(1_001, 0, 2, 6) else {
        panic!("it is cells");
    };
    assert_eq!(short.length, 2);
    let longest = (1 << 44) * 1_000;
    assert!(even(longest, 0, 1, 6).is_some() && even(longest + 1_000, 0, 1, 6).is_none());
    for (length, offset) in [(1_000_001, 0), (1_000_000, 1), (1_000_001, 1)] {
        assert!(even(length, offset, 1, 6).is_none(), "{length} {offset}");
    }
    assert!(even(1_000, 0, 1, MAX_UNITS).is_some() && even(1_000, 0, 1, MAX_UNITS + 1).is_none());
}

#[test]
fn cells_count_until_the_last_of_them_has_passed() {
    let after = |part: Part, used: &[u64], seconds: u64| {
        let mut used = used.to_vec();
        part.advance(&mut used, 0, seconds * SECOND);
        used
    };
    assert_eq!(after(grid(60), &[3, 2], 14), [3, 2]);
    assert_eq!(after(grid(60), &[3, 2], 30), [0, 0, 3, 2]);
    assert_eq!(after(grid(60), &[3, 2], 45), [0, 0, 0, 3]);
    assert_eq!(after(grid(60), &[3, 2], 60), [0; 0]);
    // A level is drained by any time, however long.
    assert_eq!(after(level(), &[9, 0], 0), [9, 0]);
    let mut used = vec![4, 0];
    quick().advance(&mut used, 10, 1_010);
    assert_eq!(used, [1, 0]);
    quick().advance(&mut used, 1_010, 1_111);
    assert_eq!(used, [0, 697]);
    for (rate, period) in [(1, NEVER), (MAX_UNITS, 1)] {
        let part = Part::Level(Level {
            capacity: MAX_UNITS,
            rate,
            period,
        });
        let mut used = vec![MAX_USED, 0];
        part.advance(&mut used, 0, 1);
        assert!(used[0] < MAX_USED && used[1] < period, "{used:?}");
        assert!(part.figures(&[MAX_USED, 0], 0).full > 0);
    }
}

#[test]
fn a_level_is_free_by_whole_units() {
    for (used, free) in [
        ([0, 0], 9),
        ([1, 0], 8),
        ([8, 0], 1),
        ([8, 1], 0),
        ([10, 500], -2),
    ] {
        assert_eq!(level().free(&used), free, "{used:?}");
    }
    assert_eq!(grid(6).free(&[1, 4, 2]), -1);
}

#[test]
fn a_cost_counts_in_the_cell_in_which_it_was_used() {
    let charged = |part: Part, used: &[u64], cost, at: u64| {
        let mut used = used.to_vec();
        part.charge(&mut used, 70 * SECOND, cost, at * SECOND);
        used
    };
    assert_eq!(charged(grid(60), &[1], 5, 65), [6]);
    assert_eq!(charged(grid(60), &[1], 5, 31), [1, 0, 5]);
    assert_eq!(charged(grid(60), &[1, 0, 2], 5, 59), [1, 5, 2]);
    assert_eq!(charged(grid(60), &[1], 5, 14), [1]);
    assert_eq!(charged(level(), &[2, 500], 5, 0), [7, 500]);
    // No cost is so high that the sums are not exact.
    assert_eq!(charged(level(), &[2, 500], u64::MAX, 0), [MAX_USED, 500]);
    assert_eq!(charged(grid(60), &[1], u64::MAX, 70), [MAX_USED]);
}

#[test]
fn what_is_given_back_is_free_unless_time_has_freed_it() {
    let given_back = |part: Part, used: &[u64], now: u64, cost, at: u64| {
        let mut used = used.to_vec();
        part.give_back(&mut used, now, cost, at);
        used
    };
    // One of three units was drained in the millisecond since.
    assert_eq!(given_back(level(), &[5, 0], 5_000, 3, 4_000), [3, 0]);
    assert_eq!(given_back(level(), &[5, 0], 5_000, 3, 4_500), [2, 500]);
    assert_eq!(given_back(level(), &[5, 0], 5_000, 3, 1_000), [5, 0]);
    assert_eq!(given_back(level(), &[5, 0], 5_000, u64::MAX, 5_000), [0, 0]);
    let seconds =
        |used: &[u64], cost, at: u64| given_back(grid(60), used, 70 * SECOND, cost, at * SECOND);
    assert_eq!(seconds(&[4, 6], 1, 69), [3, 6]);
    assert_eq!(seconds(&[4, 6], 2, 50), [4, 4]);
    assert_eq!(seconds(&[4, 6], 7, 50), [4]);
    assert_eq!(seconds(&[4, 6], 7, 31), [4, 6]);
}

#[test]
fn more_is_free_when_the_oldest_counts_no_more() {
    let more = |part: Part, used: &[u64], at: u64| {
        let figures = part.figures(used, at);
        (figures.wait, figures.more, figures.per_unit)
    };
    assert_eq!(more(level(), &[0, 0], 0), (NEVER, 1, MILLI));
    assert_eq!(more(level(), &[2, 500], 0), (500, 1, MILLI));
    assert_eq!(more(level(), &[3, 0], 0), (MILLI, 1, MILLI));
    assert_eq!(more(quick(), &[2, 500], 0), (167, 1, 334));
    assert_eq!(more(grid(6), &[], 0), (NEVER, 0, 10 * SECOND));
    let of_grid = more(grid(6), &[3, 0, 2], 70 * SECOND);
    assert_eq!(of_grid, (20 * SECOND, 2, 10 * SECOND));
    let of_level = quick().figures(&[2, 500], 0);
    assert_eq!((of_level.full, of_level.renew), (834, 334));
    let figures = |part: Part, used: &[u64]| part.figures(used, 70 * SECOND);
    let renewed = [fixed(6), grid(6)].map(|part| figures(part, &[]).renew);
    assert_eq!(renewed, [50, 50].map(|wait| wait * SECOND));
    let full = |used: &[u64]| figures(grid(6), used).full;
    assert_eq!(
        [full(&[]), full(&[3]), full(&[0, 3])],
        [0, 50, 35].map(|wait| wait * SECOND)
    );
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
    let Part::Level(level) = Shape::of(&TokenBucket::new(quota), NOW).unwrap().parts[0] else {
        panic!("a bucket is a level");
    };
    // A third of a second, exactly.
    let figures = (level.capacity, level.rate, level.period);
    assert_eq!(figures, (5, 3, 1_000_000));
    // Of whole nanoseconds.
    #[cfg(feature = "governor")]
    assert_eq!(
        Shape::of(&crate::algorithm::Gcra::new(quota), NOW).unwrap(),
        Shape::new(vec![Part::Level(Level {
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
    let Part::Cells(cells) = log.parts[0] else {
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
        let part = Part::of(Kernel::Level(LevelOf {
            rate,
            period,
            capacity,
            initial: 0,
            books_turns: false,
        }));
        part.map(|part| match part {
            Part::Level(level) => (level.rate, level.period),
            Part::Cells(_) => panic!("it is a level"),
        })
    };
    assert_eq!(level(1, 1_000_000_007, 1), Some((1_000, 1_000_000_007)));
    let long: u64 = (1 << 60) + 1;
    let rounded = Some((1, long.div_ceil(1_000)));
    assert_eq!(level(u64::from(u32::MAX), long, 1), rounded);
    assert_eq!(level(1 << 32, 1_000, 1), None);
    assert_eq!(level(1, 1_000, 1 << 32), None);
}
