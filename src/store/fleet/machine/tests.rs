//! What a machine holds after each of its steps.

use super::super::{
    exchange::Grant,
    shape::{Cells, Level, Shape},
};
use super::*;

const LEVEL: ShapePart = ShapePart::Level(Level {
    capacity: 100,
    rate: 1,
    period: 1_000,
});

fn limit() -> Limit {
    Limit {
        shape: Shape::new(vec![LEVEL]),
        interval: 1_000,
        life: 1_000_000,
        ahead: false,
    }
}

/// Nanoseconds.
fn at(ns: u64) -> Tick {
    Tick::from_nanos(ns)
}

fn adopt(budget: &mut Budget, sent: u64, reply: Reply) {
    let time = StoreTime {
        begun: at(sent),
        sent: at(sent),
        received: at(sent),
        at: 0,
    };
    budget.adopt(&limit(), &reply, &time);
}

/// A reply with a grant. The fleet has 50 more, and one more per millisecond.
fn granted(units: u64) -> Reply {
    Reply {
        grant: Grant {
            epoch: 7,
            units,
            keeps: false,
        },
        figures: Figures {
            free: 50,
            wait: 1_000,
            more: 1,
            per_unit: 1_000,
            longest: 50_000,
            ..Figures::default()
        },
        window: NEVER / 2_000,
    }
}

/// A budget of so many units, after a request that waited for them.
fn budget(units: u64) -> Budget {
    let mut budget = Budget::default();
    assert_eq!(budget.decide(&limit(), at(0), 1, false), Answer::Wait);
    let report = budget.collect(None, at(0), false);
    assert_eq!((report.demand, report.waiting), (1, 1));
    adopt(&mut budget, 0, granted(units));
    budget
}

fn is_admitted(budget: &mut Budget, now: u64, cost: u64) -> bool {
    budget.decide(&limit(), at(now), cost, false) == Answer::Admit
}

/// The units that are used, kept, given back unused, and given back after they were reported.
fn report(budget: &mut Budget, now: u64, returns_all: bool) -> [u64; 4] {
    let report = budget.collect(None, at(now), returns_all);
    [report.used, report.kept, report.returned, report.given_back]
}

/// Shows promise 205.
#[test]
fn a_later_request_waits_only_if_units_are_free_and_none_was_denied() {
    let mut short = budget(10);
    assert_eq!(short.decide(&limit(), at(100), 60, false), Answer::Wait);
    assert!(matches!(
        short.decide(&limit(), at(100), 61, false),
        Answer::Deny(Some(_))
    ));
    assert_eq!(short.decide(&limit(), at(200), 60, false), Answer::Wait);
    assert_eq!(short.collect(None, at(300), false).waiting, 121);
    adopt(&mut short, 300, granted(10));
    // After a denial it denies until the exchange of its interval.
    let rest = Duration::from_millis(1);
    assert_eq!(
        short.decide(&limit(), at(300), 60, false),
        Answer::Deny(Some(rest))
    );
    // If that is late, it asks.
    assert_eq!(
        short.decide(&limit(), at(1_500_300), 60, false),
        Answer::Wait
    );
    assert_eq!(short.collect(None, at(1_600_000), false).waiting, 120);
    adopt(&mut short, 1_600_000, granted(10));
    for interval in 2..=u64::from(WARY) + 2 {
        assert!(is_admitted(&mut short, interval * 1_000_000 - 1, 1));
        short.collect(None, at(interval * 1_000_000), false);
        adopt(&mut short, interval * 1_000_000, granted(10));
    }
    let now = (u64::from(WARY) + 2) * 1_000_000;
    assert_eq!(short.decide(&limit(), at(now), 60, false), Answer::Wait);
    // Not without end.
    for more in 1..=MORE {
        short.collect(None, at(now), false);
        adopt(&mut short, now, granted(10));
        let answer = short.decide(&limit(), at(now), 60, false);
        assert_eq!(answer == Answer::Wait, more < MORE, "{more}");
    }
    // A used-up limit denies until it is free again.
    let mut used_up = budget(1);
    let mut reply = granted(0);
    reply.figures.free = 0;
    adopt(&mut used_up, 0, reply);
    let denied = Answer::Deny(Some(Duration::from_millis(2)));
    assert_eq!(used_up.decide(&limit(), at(0), 2, false), denied);
    assert_eq!(
        used_up.decide(&limit(), at(2_000_000), 2, false),
        Answer::Wait
    );
}

/// The first one after an interval without any waits again, and one that finds all on its way to the store.
///
/// Shows promises 204, 205.
#[test]
fn a_machine_that_gave_all_back_asks_again() {
    let mut quiet = budget(10);
    assert!(is_admitted(&mut quiet, 1, 1));
    assert_eq!(report(&mut quiet, 2, false)[2], 8);
    adopt(&mut quiet, 2, granted(10));
    assert_eq!(report(&mut quiet, 3, false), [0, 0, 10, 0]);
    adopt(&mut quiet, 3, granted(0));
    assert!(!quiet.is_due());
    assert_eq!(quiet.decide(&limit(), at(4), 1, false), Answer::Wait);
    let (mut closing, mut reply) = (Budget::default(), granted(1));
    reply.figures.free = 0;
    adopt(&mut closing, 0, reply);
    report(&mut closing, 1, true);
    assert_eq!(closing.decide(&limit(), at(1), 1, false), Answer::Wait);
}

/// Shows promise 200.
#[test]
fn nothing_is_used_after_a_life_or_the_end_of_a_window() {
    for window in [NEVER / 2_000, 500] {
        let mut budget = budget(10);
        let reply = Reply {
            window,
            ..granted(10)
        };
        // The reply took a while.
        let time = StoreTime {
            received: at(400),
            ..StoreTime::default()
        };
        budget.adopt(&limit(), &reply, &time);
        let end = 998_024_000.min(window * 1_000);
        assert!(is_admitted(&mut budget, end - 1, 1));
        assert_eq!(budget.held(at(end)), 0);
        let decided = [1, 1 << 40].map(|cost| budget.decide(&limit(), at(end), cost, false));
        assert_eq!(decided, [Answer::Wait, Answer::Deny(None)]);
    }
}

#[test]
fn a_key_is_full_again_when_what_was_used_since_the_reply_is_back() {
    let cells = |count| {
        ShapePart::Cells(Cells {
            limit: 100,
            length: 1_000_000,
            padding: 0,
            count,
            is_calendar: false,
            is_weighted: false,
        })
    };
    for (part, micros) in [(LEVEL, 7_000), (cells(1), 7_000), (cells(4), 8_000)] {
        let mut budget = budget(10);
        let mut reply = granted(10);
        (reply.figures.full, reply.figures.renew) = (5_000, 8_000);
        adopt(&mut budget, 0, reply);
        let limit = Limit {
            shape: Shape::new(vec![part]),
            ..limit()
        };
        let full_in = |budget: &Budget| budget.told(&limit, at(1_000_000)).3;
        assert_eq!(full_in(&budget), 4_000_000, "nothing is used");
        assert!(is_admitted(&mut budget, 1_000, 3));
        assert_eq!(full_in(&budget), micros * 1_000, "{part:?}");
    }
}

/// Shows promise 202.
#[test]
fn as_much_as_was_used_is_kept_until_the_reply_comes_and_the_rest_is_given_back() {
    let mut kept = budget(100);
    assert!(is_admitted(&mut kept, 1, 20));
    assert_eq!(report(&mut kept, 1_000, false), [20, 20, 60, 0]);
    assert!(is_admitted(&mut kept, 1_050, 20) && !is_admitted(&mut kept, 1_051, 1));
    let keeps = Reply {
        grant: Grant {
            epoch: 8,
            units: 3,
            keeps: true,
        },
        ..granted(0)
    };
    adopt(&mut kept, 1_100, keeps);
    assert_eq!(report(&mut kept, 1_200, true), [20, 0, 3, 0]);
    // What has lapsed is charged already.
    let mut lapsed = budget(100);
    assert!(is_admitted(&mut lapsed, 1, 20));
    assert_eq!(report(&mut lapsed, 1_000, false), [20, 20, 60, 0]);
    assert!(is_admitted(&mut lapsed, 1_050, 2));
    adopt(&mut lapsed, 1_100, granted(1));
    assert_eq!(report(&mut lapsed, 1_200, true), [0, 0, 1, 0]);
}

#[test]
fn a_denial_waits_no_longer_than_an_interval_for_what_is_out() {
    let mut out = budget(0);
    let mut reply = granted(0);
    let figures = &mut reply.figures;
    (figures.free, figures.wait, figures.longest) = (0, NEVER, 0);
    adopt(&mut out, 0, reply);
    let denied = Answer::Deny(Some(Duration::from_millis(1)));
    assert_eq!(out.decide(&limit(), at(0), 1, false), denied);
}

/// The rates of two clocks differ by less than a thousandth. Two refunds in an interval are told as of the earlier one.
///
/// Shows promise 202.
#[test]
fn uses_are_told_somewhat_late_and_refunds_somewhat_early() {
    let micros = |micros: u64| at(micros * 1_000);
    let time = StoreTime {
        begun: micros(10_000),
        sent: micros(10_000),
        received: micros(10_500),
        at: 5_000_000,
    };
    let used = [10_000 - 2_048, 10_000, 10_000 + 2_048].map(|at| time.store_time_of(micros(at)));
    assert_eq!(used, [5_000_000 - 2_046, 5_000_000, 5_000_000 + 2_050]);
    let given_back = [10_500 - 2_048, 10_500, 10_500 + 2_048].map(|taken_at| {
        let mut budget = budget(10);
        budget.refund(micros(20_000), 5, micros(taken_at + 1));
        budget.refund(micros(20_000), 2, micros(taken_at));
        let report = budget.collect(Some(&time), micros(20_000), false);
        assert_eq!(report.given_back, 7);
        report.given_back_at
    });
    assert_eq!(
        given_back,
        [5_000_000 - 2_050, 5_000_000, 5_000_000 + 2_046]
    );
}
