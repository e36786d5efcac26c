//! What a machine holds after each of its steps.

use super::*;

const RULES: Rules = Rules {
    interval: 1_000_000,
    capacity: 100,
    takes_ahead: false,
    ripens: false,
    machines: 2,
};
const AHEAD: Rules = Rules {
    takes_ahead: true,
    ..RULES
};
/// Microseconds.
const LIFE: u64 = 1_024_000;

fn at(ns: u64) -> Tick {
    Tick::from_nanos(ns)
}

fn told(reply: &Reply, sent: u64, budget: &mut Budget) {
    let time = StoreTime {
        sent: at(sent),
        received: at(sent),
        at: 0,
    };
    let reply = Reply {
        life: LIFE,
        window: NEVER / 2_000,
        ..*reply
    };
    budget.adopt(&RULES, &reply, &time);
}

/// A budget of `grant` units; the fleet has 50 more.
fn granted(grant: u64) -> Budget {
    let mut budget = Budget::default();
    let reply = Reply {
        epoch: 1,
        grant,
        free: 50,
        ..Reply::default()
    };
    told(&reply, 0, &mut budget);
    budget
}

fn is_admitted(budget: &mut Budget, rules: &Rules, now: u64, cost: u64) -> bool {
    matches!(budget.decide(rules, at(now), cost), Answer::Admit)
}

/// Reports, and gives all back.
fn report(budget: &mut Budget, now: u64) -> Report {
    budget.collect(&RULES, None, at(now), None)
}

/// The units that it says are used, used of lots, left of lots, and given back.
fn units(report: &Report) -> [u64; 4] {
    let [first, second] = report.lots;
    [
        report.spent[0].units + report.spent[1].units,
        first.used + second.used,
        first.returned + second.returned,
        report.given_back.units,
    ]
}

#[test]
fn a_demand_is_of_two_intervals_at_most() {
    let mut budget = Budget::default();
    let mut elapsed = |now| {
        let report = budget.collect(&RULES, None, at(now), Some(0));
        report.elapsed
    };
    assert_eq!([1_500_000, 4_500_000].map(&mut elapsed), [1_500, 2_000]);
}

/// Shows promise 202.
#[test]
fn a_refund_before_the_report_is_usable_again_and_is_not_reported() {
    let mut budget = granted(10);
    assert!(is_admitted(&mut budget, &RULES, 1, 7));
    budget.refund(&RULES, at(2), 5, at(1));
    assert_eq!((budget.usable, budget.rest.given_back), (8, None));
    assert_eq!(units(&report(&mut budget, 3)), [2, 2, 8, 0]);

    // Of units that the machine took itself.
    let mut budget = granted(0);
    assert!(is_admitted(&mut budget, &AHEAD, 1, 7));
    budget.refund(&AHEAD, at(2), 5, at(1));
    let figures = budget.rest.figures.expect("of the reply");
    let held = (budget.usable, budget.rest.own, figures.used);
    // Half of what is free was taken.
    assert_eq!((held, budget.rest.given_back), ((23, 23, 2), None));
    assert_eq!(units(&report(&mut budget, 3)), [2, 0, 0, 0]);
}

/// Shows promise 202.
#[test]
fn a_refund_after_the_report_is_reported() {
    let mut budget = granted(10);
    assert!(is_admitted(&mut budget, &RULES, 1, 7));
    assert_eq!(units(&report(&mut budget, 2)), [7, 7, 3, 0]);
    budget.refund(&RULES, at(3), 5, at(1));
    assert_eq!(budget.usable, 0);
    assert_eq!(units(&report(&mut budget, 4)), [0, 0, 0, 5]);
}

/// Shows promise 202.
#[test]
fn a_refund_of_units_that_have_lapsed_is_reported() {
    let mut budget = granted(10);
    assert!(is_admitted(&mut budget, &RULES, 1, 7));
    let expires = budget.rest.lots[1].expires;
    budget.refund(&RULES, expires, 5, at(1));
    assert_eq!(budget.usable, 0);
    assert_eq!(budget.rest.given_back, Some((5, at(1))));
}

/// Shows promise 202.
#[test]
fn nothing_is_used_from_the_moment_at_which_it_lapses() {
    let mut budget = granted(10);
    let expires = budget.rest.lots[1].expires;
    // A little less than the store's time: a thousandth, and a millisecond.
    assert_eq!(expires, at((LIFE - 1_000 - 1_000) * 1_000));
    assert!(budget.clone().try_spend(at(nanos(expires.since(at(1)))), 1));
    assert!(!budget.try_spend(expires, 1));
    assert!(!is_admitted(
        &mut budget,
        &RULES,
        nanos(expires.since(at(0))),
        1
    ));
}

#[test]
fn two_epochs_are_held_and_the_older_one_lapses_for_a_third() {
    let mut budget = granted(5);
    // A reply that grants nothing lets nothing lapse.
    for (epoch, grant, usable) in [(1, 5, 10), (2, 3, 13), (3, 0, 13), (3, 2, 5)] {
        let reply = Reply {
            epoch,
            grant,
            ..Reply::default()
        };
        told(&reply, epoch, &mut budget);
        assert_eq!(budget.usable, usable, "{epoch}");
    }
    assert_eq!(budget.rest.lots.map(|lot| lot.left), [3, 2]);
}

#[test]
fn units_of_the_next_slot_are_usable_somewhat_later_than_it_begins() {
    let mut budget = granted(0);
    let reply = Reply {
        next: 4,
        next_in: 1_024_000,
        ..Reply::default()
    };
    told(&reply, 0, &mut budget);
    assert_eq!(budget.rest.next_from, at(1_025_000_000));
}

#[test]
fn what_was_granted_before_a_reset_is_no_more() {
    let mut budget = granted(10);
    let reply = Reply {
        reset: 7,
        ..Reply::default()
    };
    told(&reply, 1, &mut budget);
    assert_eq!(budget.usable, 0);
    // A reset of its own is told with the last one that it knows, and the time goes on.
    report(&mut budget, 1_000_000);
    budget.reset();
    let report = report(&mut budget, 1_500_000);
    assert_eq!(
        (report.resets, report.reset, report.elapsed),
        (true, 7, 500)
    );
}

#[test]
fn a_request_that_waits_again_is_due() {
    let mut budget = granted(0);
    report(&mut budget, 1);
    assert!(!budget.is_due());
    let answer = budget.decide_slowly(&RULES, at(2), 1);
    assert!(matches!(answer, Answer::Wait { .. }));
    assert!(budget.is_due());
}

#[test]
fn a_request_waits_for_an_exchange_at_once_if_the_last_one_was_long_ago() {
    for (now, at_once) in [(1_400_000, false), (1_500_000, true)] {
        let answer = granted(0).decide(&RULES, at(now), 1);
        assert!(matches!(answer, Answer::Wait { now } if now == at_once));
    }
}

#[test]
fn a_machine_takes_its_share_of_what_is_free_beside_what_it_holds() {
    // 25 of 50, and 3.
    assert!(is_admitted(&mut granted(3), &AHEAD, 1, 28));
    assert!(!is_admitted(&mut granted(3), &AHEAD, 1, 29));
}

#[test]
fn what_a_machine_took_itself_is_not_free_as_well() {
    let mut budget = granted(0);
    assert!(is_admitted(&mut budget, &AHEAD, 1, 1));
    // 24 are usable and 25 are free.
    let answer = budget.decide(&AHEAD, at(2), 50);
    assert!(matches!(answer, Answer::Deny(Some(_))));
    let answer = budget.decide(&AHEAD, at(2), 49);
    assert!(matches!(answer, Answer::Wait { .. }));
}

#[test]
fn what_becomes_usable_later_is_no_more_if_it_was_charged() {
    let mut budget = granted(2);
    budget.rest.ripening = Ripening::new(6, at(1), None);
    budget.charge(&RULES, at(1), 5);
    assert_eq!((budget.usable, budget.rest.ripening.left()), (0, 3));
    assert!(is_admitted(&mut budget, &RULES, 2_000_000, 3));
    assert!(!is_admitted(&mut budget, &RULES, 2_000_000, 1));
}

/// While units become usable one after the other, a denial is not repeated without a look.
#[test]
fn a_denial_is_kept_unless_more_becomes_usable() {
    for (ripening, is_kept) in [(0, true), (5, false)] {
        let mut budget = granted(0);
        budget.rest.ripening = Ripening::new(ripening, at(2), None);
        let answer = budget.decide(&RULES, at(2), 60);
        assert!(matches!(answer, Answer::Deny(Some(_))));
        assert_eq!(budget.try_deny(at(2), 60).is_some(), is_kept);
    }
}

#[test]
fn a_machine_that_knows_nothing_of_the_fleet_tells_what_it_used() {
    let mut budget = Budget::default();
    assert!(is_admitted(&mut budget, &AHEAD, 1, 3));
    let bucket = crate::algorithm::TokenBucket::new(crate::quota::Quota::per_second(100));
    let shape = super::super::shaped::shape_of(&bucket, Tick::ZERO).expect("a shape");
    budget.look(&AHEAD, &shape, at(1));
    let (_, limit, remaining, _) = budget.told(at(1));
    assert_eq!((limit, remaining), (100, 97));
}

/// What a machine takes itself while a report is on the way, its reply grants once more.
///
/// Shows promise 201.
#[test]
fn what_is_taken_during_an_exchange_is_not_granted_as_well() {
    // Of 25 units, which are its part, it uses 10. The store knows of none of it.
    for (grant, usable, own, used) in [
        (0, 15, 15, 10),
        (4, 15, 15, 6),
        (18, 15, 7, 0),
        (30, 20, 0, 0),
    ] {
        let mut budget = granted(0);
        report(&mut budget, 1);
        assert!(is_admitted(&mut budget, &AHEAD, 2, 10));
        let reply = Reply {
            epoch: 1,
            grant,
            free: 50 - signed(grant),
            ..Reply::default()
        };
        told(&reply, 3, &mut budget);
        let known = budget.rest.figures.expect("of the reply").used;
        assert_eq!(
            (budget.usable, budget.rest.own, known),
            (usable, own, used),
            "{grant}"
        );
        let settled = grant.min(10);
        assert_eq!(
            units(&report(&mut budget, 4)),
            [10, settled, grant - settled, 0]
        );
    }
}
