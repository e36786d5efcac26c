//! What a limit is for a fleet, in figures.

use super::*;

const MILLI: u64 = 1_000;
const SECOND: u64 = 1_000_000;
const MINUTE: u64 = 60 * SECOND;

/// Nine units, of which one is drained per millisecond.
fn level() -> Part {
    Part::Level(Level::new(9, 1_000_000, 1).unwrap())
}

/// Four units, of which three are drained per millisecond.
fn quick() -> Part {
    Part::Level(Level::new(4, 1_000_000, 3).unwrap())
}

fn fixed(limit: u64) -> Cells {
    Cells::exact(&Quota::per_minute(limit), 0).unwrap()
}

fn sliding(limit: u64) -> Part {
    Part::Cells(fixed(limit).weighted())
}

/// Of four cells.
fn grid(limit: u64) -> Part {
    let quota = Quota::per_minute(limit);
    Part::Cells(Cells::new(&quota, quota.period_ns() / 4, 0, 4).unwrap())
}

/// From the second 1,000 to the second 2,000.
fn calendar() -> Part {
    Part::Cells(Cells::calendar(&Quota::per_minute(6), (1_000, 2_000)).unwrap())
}

/// Shows promise 200.
#[test]
fn a_key_is_remembered_until_it_is_as_good_as_new_and_not_much_longer() {
    let expected = [
        (level(), 18 * MILLI, 9 * MILLI),
        (quick(), 2_666, 1_333),
        (Part::Cells(fixed(6)), 2 * MINUTE, MINUTE),
        (grid(6), 75 * SECOND, MINUTE),
        (sliding(6), 3 * MINUTE, 2 * MINUTE),
    ];
    for (part, memory, time_to_fill) in expected {
        let shape = Shape::of(part);
        assert_eq!(
            (shape.memory(), shape.time_to_fill()),
            (memory, time_to_fill),
            "{part:?}"
        );
        // Twice the limit is used, and a microsecond is rounded.
        let mut used = part.unused();
        part.charge(&mut used, MINUTE - 1, 2 * part.capacity(), MINUTE - 1);
        part.advance(&mut used, MINUTE - 1, MINUTE + memory);
        assert_eq!(used, part.unused(), "{part:?}");
    }
    let both = Shape::of(level()).and(Shape::of(grid(6)));
    assert_eq!((both.memory(), both.time_to_fill()), (75 * SECOND, MINUTE));
    assert_eq!(
        (both.capacity(), both.limit(0), both.limit(2)),
        (6, 9, MAX_UNITS)
    );
}

#[test]
fn a_window_of_the_calendar_holds_until_it_ends() {
    let shape = Shape::of(level()).and(Shape::of(calendar()));
    let at = [
        1_000 * SECOND - 1,
        1_000 * SECOND,
        2_000 * SECOND - 1,
        2_000 * SECOND,
    ];
    assert_eq!(at.map(|at| shape.holds_at(at)), [false, true, true, false]);
    assert!(Shape::of(grid(6)).holds_at(0));
    // Before, in and after it.
    let rest = [400, 1_400, 2_400].map(|second| calendar().time_to_renew(1, second * SECOND));
    assert_eq!(rest, [600, 600, 1_000].map(|second| second * SECOND));
}

#[test]
fn only_what_slides_has_slots_and_they_end_with_its_windows() {
    let set = |parts: &[Part]| Shape {
        parts: parts.to_vec(),
    };
    for (shape, has_slots) in [
        (set(&[sliding(6)]), true),
        (set(&[sliding(6), level()]), true),
        (set(&[level()]), false),
        (set(&[grid(6)]), false),
        (set(&[sliding(6), Part::Cells(fixed(6))]), false),
    ] {
        assert_eq!(shape.has_slots(false), has_slots, "{shape:?}");
        assert!(!shape.has_slots(true));
    }
    let (slides, flows) = (set(&[sliding(6)]), set(&[level()]));
    let ends = |shape: &Shape| [20, 58, 63].map(|at| shape.slot_end(at * SECOND, 7 * SECOND));
    assert_eq!(ends(&slides), [21, 60, 70].map(|end| end * SECOND));
    assert_eq!(ends(&flows), [21, 63, 70].map(|end| end * SECOND));
}

#[test]
fn what_refills_is_rounded_down_and_at_least_a_unit() {
    let refill = |part: Part, span| part.refill(span);
    assert_eq!([refill(level(), 2_999), refill(quick(), 2_999)], [2, 8]);
    for part in [Part::Cells(fixed(6)), grid(6), sliding(6)] {
        assert_eq!(
            [refill(part, 29 * SECOND), refill(part, 30 * SECOND)],
            [2, 3]
        );
    }
    let both = Shape::of(level()).and(Shape::of(grid(6)));
    assert_eq!([both.refill(SECOND), both.refill(30 * SECOND)], [1, 3]);
    // More than a limit can have.
    assert_eq!(refill(level(), MAX_LEVEL), MAX_UNITS);
    assert_eq!(ratio(u64::MAX, u64::MAX, 1), MAX_UNITS);
}

#[test]
fn what_refills_soon_is_granted_ahead() {
    // A small bucket holds less than what refills in two intervals.
    let ahead = |part: Part, used: &[u64], at, span| part.ahead(&used.to_vec(), at, span);
    assert_eq!(ahead(level(), &[0], 0, 4 * MILLI), 4);
    assert_eq!(ahead(level(), &[0], 0, 5 * MILLI), 10);
    assert_eq!(ahead(quick(), &[0], 0, 700), 2);
    assert_eq!(ahead(Part::Cells(fixed(60)), &[50], 59 * SECOND, MINUTE), 0);
    // The oldest cell ends in two seconds, of an interval only 27 of 32 parts count, and a burst becomes free
    // at the rate of the limit.
    for (used, span, units) in [
        ([2, 0, 0, 4], 2_370, 0),
        ([2, 0, 0, 4], 2_371, 4),
        ([2, 0, 0, 50], 4_000, 8),
    ] {
        let found = ahead(grid(60), &used, 13 * SECOND, span * MILLI);
        assert_eq!(found, units, "{used:?} {span}");
    }
}

#[test]
fn windows_begin_where_their_offset_says_and_are_rounded_up() {
    let from = |offset| Cells::new(&Quota::per_minute(6), 60_000_000_000, offset, 1).unwrap();
    for (offset, end) in [(0, 60), (20_000_000_000, 20), (80_000_000_000, 20)] {
        let part = Part::Cells(from(offset));
        assert_eq!(part.fixed_end(10 * SECOND), Some(end * SECOND), "{offset}");
    }
    for (to, used) in [(19, vec![3]), (20, vec![])] {
        let mut cells = vec![3];
        Part::Cells(from(20_000_000_000)).advance(&mut cells, 10 * SECOND, to * SECOND);
        assert_eq!(cells, used, "{to}");
    }
    let short = Cells::new(&Quota::per_minute(6), 1_001, 0, 1).unwrap();
    assert_eq!(short.length, 2);
    let longest = (1 << 44) * 1_000;
    let long = |length| Cells::new(&Quota::per_minute(6), length, 0, 1);
    assert!(long(longest).is_ok() && long(longest + 1).is_err());
    for (period, offset) in [(1_000_001, 0), (1_000_000, 1), (1_000_001, 1)] {
        let quota = Quota::per(6, std::time::Duration::from_nanos(period));
        assert!(Cells::exact(&quota, offset).is_err(), "{period} {offset}");
    }
    assert!(check_units(MAX_UNITS).is_ok() && check_units(MAX_UNITS + 1).is_err());
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
    assert_eq!(after(sliding(60), &[3, 2], 60), [0, 3]);
    // A level is drained by any time, however long.
    assert_eq!(after(level(), &[9_000], 0), [9_000]);
    let mut used = vec![4_000];
    quick().advance(&mut used, 10, 1_010);
    assert_eq!(used, [1_000]);
    for rate in [3, MAX_TICKS] {
        let full = Part::Level(Level {
            capacity: 1,
            unit: MAX_TICKS,
            rate,
        });
        let mut used = vec![MAX_TICKS];
        full.advance(&mut used, 0, u64::MAX);
        assert_eq!(used, [0], "{rate}");
    }
}

#[test]
fn a_previous_window_counts_by_what_is_left_of_this_one() {
    for (at, free) in [(60, 1), (76, 2), (91, 3), (106, 4), (119, 4)] {
        assert_eq!(sliding(6).free(&[1, 4], at * SECOND), free, "{at}");
    }
    // In 2^20 steps, of which the last one is whole.
    assert_eq!(sliding(6).free(&[1, 4], 105 * SECOND), 3);
    assert_eq!(sliding(6).free(&[1], 60 * SECOND), 5);
    assert_eq!(grid(6).free(&[1, 4, 2], 0), -1);
}

#[test]
fn a_level_is_free_by_whole_units() {
    for (ticks, free) in [(0, 9), (1, 8), (8_000, 1), (8_001, 0), (10_500, -2)] {
        assert_eq!(level().free(&[ticks], 0), free, "{ticks}");
    }
    assert_eq!(level().free_at(1_500, &vec![9_000], 0), 1);
    // The time of a record is not before it.
    assert_eq!(sliding(6).free_at(0, &vec![1, 4], 60 * SECOND), 1);
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
    assert_eq!(charged(level(), &[500], 5, 0), [5_500]);
    // No cost is so high that the sums are not exact.
    assert_eq!(charged(level(), &[500], u64::MAX, 0), [MAX_LEVEL]);
    assert_eq!(charged(grid(60), &[1], u64::MAX, 70), [MAX_LEVEL >> 7]);
}

#[test]
fn what_is_given_back_is_free_unless_time_has_freed_it() {
    let given_back = |part: Part, used: &[u64], now: u64, cost, at: u64| {
        let mut used = used.to_vec();
        part.give_back(&mut used, now, cost, at);
        used
    };
    // One of three units was drained in the millisecond since.
    assert_eq!(given_back(level(), &[5_000], 5_000, 3, 4_000), [3_000]);
    assert_eq!(given_back(level(), &[5_000], 5_000, 3, 5_000), [2_000]);
    assert_eq!(given_back(level(), &[5_000], 5_000, 3, 1_000), [5_000]);
    assert_eq!(given_back(level(), &[5_000], 5_000, u64::MAX, 5_000), [0]);
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
        let more = part.more(used, at);
        (more.wait, more.units, more.per_unit)
    };
    assert_eq!(more(level(), &[0], 0), (NEVER, 1, MILLI));
    assert_eq!(more(level(), &[2_500], 0), (500, 1, MILLI));
    assert_eq!(more(level(), &[3_000], 0), (MILLI, 1, MILLI));
    assert_eq!(more(quick(), &[2_500], 0), (167, 1, 334));
    assert_eq!(more(grid(6), &[], 0), (NEVER, 0, 10 * SECOND));
    let of_grid = more(grid(6), &[3, 0, 2], 70 * SECOND);
    assert_eq!(of_grid, (20 * SECOND, 2, 10 * SECOND));
    let slides = |used: &[u64], at: u64| more(sliding(6), used, at * SECOND);
    assert_eq!(slides(&[3], 70), (50 * SECOND, 1, 20 * SECOND));
    assert_eq!(slides(&[3, 7], 70), (8_571_429, 1, 20 * SECOND));
    assert_eq!(slides(&[3, 7], 119), (SECOND, 1, 20 * SECOND));
    assert_eq!(quick().time_to_full(&[2_500], 0), 834);
    assert_eq!(quick().time_to_renew(2, 0), 667);
    let renewed = |part: Part| part.time_to_renew(1, 70 * SECOND);
    let cells = [Part::Cells(fixed(6)), sliding(6), grid(6)];
    assert_eq!(cells.map(renewed), [50, 110, 50].map(|wait| wait * SECOND));
    assert_eq!(grid(6).time_to_full(&[], 70 * SECOND), 0);
}

/// Shows promise 202.
#[test]
fn what_another_layout_counted_is_rounded_up() {
    let adopt =
        |part: Part, kind, layout, counts: &[u64]| part.adopt(kind, layout, counts.to_vec());
    let own = |part: Part| part.layout().1;
    assert_eq!(adopt(level(), 'l', own(level()), &[2_500]), [2_500]);
    assert_eq!(adopt(level(), 'l', 500, &[2_500]), [5_000]);
    assert_eq!(adopt(level(), 'c', 7, &[2, 3]), [5_000]);
    assert_eq!(adopt(grid(6), 'l', 1_000, &[2_001]), [3]);
    assert_eq!(
        adopt(grid(6), 'c', own(grid(6)), &[1, 2, 0, 4, 5]),
        [1, 2, 0, 4]
    );
    assert_eq!(adopt(grid(6), 'c', own(grid(6)), &[1, 0, 0, 0]), [1]);
    assert_eq!(adopt(grid(6), 'c', own(sliding(6)), &[1, 2]), [3]);
    // Cells that mean other moments have another name, and those of a stored record keep theirs.
    let moved = Cells::exact(&Quota::per_minute(6), 1_000_000_000).unwrap();
    let names = [Part::Cells(fixed(6)), Part::Cells(moved), sliding(6)].map(own);
    assert_eq!(names, [47_490, 48_493, 47_583]);
    assert_eq!(calendar().layout(), ('c', CALENDAR));
}
