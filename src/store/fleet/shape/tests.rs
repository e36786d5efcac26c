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
        (quick(), 2_668, 1_334),
        (Part::Cells(fixed(6)), 2 * MINUTE, MINUTE),
        (grid(6), 75 * SECOND, MINUTE),
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
    let rest = [400, 1_400, 2_400].map(|second| calendar().time_to_renew(second * SECOND));
    assert_eq!(rest, [600, 600, 1_000].map(|second| second * SECOND));
}

#[test]
fn what_refills_is_rounded_down_and_granted_ahead() {
    let refill = |part: Part, span| part.refill(span);
    assert_eq!([refill(level(), 2_999), refill(quick(), 2_999)], [2, 8]);
    let of_grid = |seconds| refill(grid(6), seconds * SECOND);
    assert_eq!([7, 8, 15].map(of_grid), [0, 1, 2]);
    assert_eq!(refill(Part::Cells(fixed(6)), 30 * SECOND), 0);
    // More than a limit can have.
    assert_eq!(refill(level(), NEVER), MAX_UNITS);
    assert_eq!(ratio(u64::MAX, u64::MAX, 1), MAX_UNITS);
    let ahead = |part: Part, used: &[u64], at, span| part.ahead(used, at, span);
    assert_eq!(ahead(level(), &[0, 0], 0, 4 * MILLI), 4);
    assert_eq!(ahead(Part::Cells(fixed(60)), &[50], 59 * SECOND, MINUTE), 0);
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
    let from = |offset| Cells::new(&Quota::per_minute(6), 60_000_000_000, offset, 1).unwrap();
    for (offset, end) in [(0, 60), (20_000_000_000, 20), (80_000_000_000, 20)] {
        let part = Part::Cells(from(offset));
        let rest = part.window_rest(10 * SECOND);
        assert_eq!(rest, Some((end - 10) * SECOND), "{offset}");
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
        assert!(part.time_to_full(&[MAX_USED, 0], 0) > 0);
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
        let more = part.more(used, at);
        (more.wait, more.more, more.per_unit)
    };
    assert_eq!(more(level(), &[0, 0], 0), (NEVER, 1, MILLI));
    assert_eq!(more(level(), &[2, 500], 0), (500, 1, MILLI));
    assert_eq!(more(level(), &[3, 0], 0), (MILLI, 1, MILLI));
    assert_eq!(more(quick(), &[2, 500], 0), (167, 1, 334));
    assert_eq!(more(grid(6), &[], 0), (NEVER, 0, 10 * SECOND));
    let of_grid = more(grid(6), &[3, 0, 2], 70 * SECOND);
    assert_eq!(of_grid, (20 * SECOND, 2, 10 * SECOND));
    assert_eq!(quick().time_to_full(&[2, 500], 0), 834);
    assert_eq!(quick().time_to_renew(0), 334);
    let renewed = |part: Part| part.time_to_renew(70 * SECOND);
    let cells = [Part::Cells(fixed(6)), grid(6)];
    assert_eq!(cells.map(renewed), [50, 50].map(|wait| wait * SECOND));
    let full = |used: &[u64]| grid(6).time_to_full(used, 70 * SECOND);
    assert_eq!(
        [full(&[]), full(&[3]), full(&[0, 3])],
        [0, 50, 35].map(|wait| wait * SECOND)
    );
}
