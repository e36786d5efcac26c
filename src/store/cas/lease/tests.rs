//! Reports of machines, one after the other, on the record of one key.

use super::*;
use crate::algorithm::{FixedWindow, Portable, TokenBucket, Words};
use crate::quota::Quota;

const SECOND: Duration = Duration::from_secs(1);

fn at(ms: u64) -> Tick {
    Tick::from_nanos((1 << 60) + ms * 1_000_000)
}

/// A machine that has used nothing, keeps `kept` units, and needs one.
fn report(node: u64, sequence: u64, kept: u64, wanted: u64) -> LeaseReport<'static> {
    LeaseReport {
        node,
        sequence,
        changes: &[],
        leased: 0,
        kept,
        wanted,
        needed: 1,
        life: SECOND,
        present_since: Tick::ZERO,
        clocks_differ: false,
    }
}

fn lease<A: Portable>(
    decider: &Decider<A>,
    record: &mut Record,
    now: Tick,
    report: &LeaseReport<'_>,
) -> u64 {
    let (reply, after) = decider.lease(record, now, report).expect("a reply");
    if let Some(after) = after {
        *record = Record::from_bytes(&after.to_bytes()).expect("readable");
    }
    reply.lease.units
}

fn left<A: Portable>(decider: &Decider<A>, record: &Record, now: Tick) -> u64 {
    let mut nothing = report(99, 1, 0, 0);
    nothing.needed = 0;
    let (reply, _) = decider.lease(record, now, &nothing).expect("a reply");
    A::available(&decider.algorithm, &reply.state, now)
}

fn bucket() -> Decider<TokenBucket> {
    let quota = Quota::per_second(10).burst(100);
    Decider::new(TokenBucket::new(quota)).expect("valid")
}

#[test]
fn grants_shrink_near_the_limit_and_end_with_single_units() {
    let (decider, mut record) = (bucket(), Record::default());
    let mut grants = Vec::new();
    for node in 0..40 {
        let granted = lease(&decider, &mut record, at(0), &report(node, 1, 0, 30));
        grants.push(granted);
    }
    assert_eq!(grants[..4], [30, 17, 8, 5]);
    assert!(grants.is_sorted_by(|one, next| one >= next), "{grants:?}");
    assert_eq!(grants.iter().sum::<u64>(), 100);
    assert_eq!(grants.last(), Some(&0));
}

/// Otherwise the units that are out would come on top of those that refill.
#[test]
fn the_bucket_does_not_refill_what_is_out() {
    let (decider, mut record) = (bucket(), Record::default());
    assert_eq!(
        lease(&decider, &mut record, at(0), &report(1, 1, 0, 40)),
        40
    );
    assert_eq!(left(&decider, &record, at(0)), 60);
    assert_eq!(left(&decider, &record, at(999)), 60);
    // At its end, it counts as used.
    assert_eq!(left(&decider, &record, at(1_000)), 60);
    assert_eq!(left(&decider, &record, at(2_000)), 70);
}

#[test]
fn a_lease_that_is_returned_frees_its_units_once() {
    let (decider, mut record) = (bucket(), Record::default());
    lease(&decider, &mut record, at(0), &report(1, 1, 0, 40));
    let mut back = report(1, 2, 0, 0);
    back.needed = 0;
    let changes = [Change::Charge {
        taken_at: at(0).into(),
        cost: 5,
    }];
    (back.changes, back.leased) = (&changes, 5);
    for _ in 0..3 {
        assert_eq!(lease(&decider, &mut record, at(0), &back), 0);
        assert_eq!(left(&decider, &record, at(0)), 95);
    }
    // Units of a lease that has ended are not freed.
    assert_eq!(
        lease(&decider, &mut record, at(0), &report(2, 1, 0, 40)),
        23
    );
    back.node = 2;
    assert_eq!(lease(&decider, &mut record, at(1_000), &back), 0);
    assert_eq!(left(&decider, &record, at(1_000)), 100 - 23);
}

#[test]
fn units_of_one_window_that_are_used_in_the_next_count_there() {
    let window = FixedWindow::new(Quota::per_second(10));
    let decider = Decider::new(window).expect("valid");
    let start = at(0).as_nanos() / 1_000_000_000 * 1_000_000_000;
    let at = |ms: u64| Tick::from_nanos(start + ms * 1_000_000);
    let mut record = Record::default();
    assert_eq!(
        lease(&decider, &mut record, at(900), &report(1, 1, 0, 4)),
        4
    );
    let granted = (0..20).map(|node| {
        let report = report(10 + node, 1, 0, 1);
        lease(&decider, &mut record, at(1_050), &report)
    });
    assert_eq!(granted.sum::<u64>(), 6);
}

#[test]
fn a_denial_changes_nothing_in_the_store() {
    let (decider, mut record) = (bucket(), Record::default());
    lease(&decider, &mut record, at(0), &report(1, 1, 0, 100));
    let mut all = report(1, 2, 100, 100);
    all.needed = 100;
    assert_eq!(lease(&decider, &mut record, at(0), &all), 100);
    let (reply, after) = decider
        .lease(&record, at(0), &report(2, 1, 0, 5))
        .expect("a reply");
    assert_eq!((reply.lease.units, after), (0, None));
    assert_eq!(reply.next_end, Some(at(1_000)));
}

/// The computed time of the store steps back when a reply is read late.
#[test]
fn a_lease_that_is_renewed_ends_no_earlier_than_before() {
    let (decider, mut record) = (bucket(), Record::default());
    let renew = |record: &mut Record, sequence, now, kept| {
        let report = report(1, sequence, kept, 20);
        let (reply, after) = decider.lease(record, now, &report).expect("a reply");
        *record = after.expect("it is written");
        reply.lease.ends_at
    };
    assert_eq!(renew(&mut record, 1, at(100), 0), at(1_100));
    assert_eq!(renew(&mut record, 2, at(40), 20), at(1_100));
    assert_eq!(left(&decider, &record, at(1_099)), 80);
    assert_eq!(renew(&mut record, 3, at(500), 20), at(1_500));
    // A lease of which nothing is left binds the next one to nothing.
    let mut back = report(1, 4, 0, 0);
    back.needed = 0;
    assert_eq!(lease(&decider, &mut record, at(600), &back), 0);
    assert_eq!(renew(&mut record, 5, at(200), 0), at(1_200));
}

/// In a rolling deploy, machines of two configurations use a key.
#[test]
fn a_lease_that_has_ended_counts_in_every_configuration() {
    let of = |quota| Decider::new(FixedWindow::new(quota)).expect("valid");
    let (old, new) = (of(Quota::per_day(100)), of(Quota::per_second(10)));
    let mut record = Record::default();
    assert_eq!(lease(&old, &mut record, at(0), &report(1, 1, 0, 10)), 10);
    assert_eq!(lease(&new, &mut record, at(0), &report(2, 1, 0, 0)), 0);
    // The first machine crashes. The second one is the first to find that its lease has ended.
    lease(&new, &mut record, at(5_000), &report(2, 2, 0, 1));
    assert_eq!(left(&old, &record, at(5_000)), 90 - 1);
    assert_eq!(left(&old, &record, at(50_000)), 90 - 1);
}

#[test]
fn a_reply_says_whether_the_lease_had_ended() {
    let (decider, mut record) = (bucket(), Record::default());
    let mut reply_to = |now, report: &LeaseReport<'_>| {
        let (reply, after) = decider.lease(&record, now, report).expect("a reply");
        record = after.unwrap_or_else(|| record.clone());
        reply
    };
    let used = |cost| {
        let taken_at = at(0).into();
        [Change::Charge { taken_at, cost }]
    };
    let (five, none) = (used(5), []);
    let mut next = report(1, 1, 0, 20);
    assert!(!reply_to(at(0), &next).has_ended, "it had none");
    (next.sequence, next.kept) = (2, 15);
    (next.changes, next.leased) = (&five, 5);
    assert!(!reply_to(at(500), &next).has_ended, "it is renewed");
    (next.sequence, next.kept) = (3, 15);
    let reply = reply_to(at(1_500), &next);
    assert!(reply.has_ended);
    assert_eq!(reply.lease.units, 20, "what it kept is not a part of it");
    let left = TokenBucket::available(&decider.algorithm, &reply.state, at(1_500));
    assert_eq!(left, 100 - 20, "both reports are counted, once");
    (next.sequence, next.kept) = (4, 20);
    (next.changes, next.leased) = (&none, 0);
    assert!(reply_to(at(4_000), &next).has_ended, "all is used up");
    // A lease ends, and a reset undoes what it counted.
    let reset = [Change::Reset];
    (next.sequence, next.changes) = (5, &reset);
    assert!(!reply_to(at(6_000), &next).has_ended);
}

#[test]
fn what_was_used_after_a_reset_counts_although_the_lease_has_ended() {
    let (decider, mut record) = (bucket(), Record::default());
    lease(&decider, &mut record, at(0), &report(1, 1, 0, 40));
    let changes = [
        Change::Reset,
        Change::Charge {
            taken_at: at(1_000).into(),
            cost: 3,
        },
    ];
    let mut late = report(1, 2, 0, 0);
    // Eight were used before the reset.
    (late.changes, late.leased, late.needed) = (&changes, 11, 0);
    assert_eq!(lease(&decider, &mut record, at(1_000), &late), 0);
    assert_eq!(left(&decider, &record, at(1_000)), 100 - 3);
}

#[test]
fn a_record_is_kept_until_its_leases_count_no_more() {
    let (decider, mut record) = (bucket(), Record::default());
    lease(&decider, &mut record, at(0), &report(1, 1, 0, 40));
    let ttl = Decider::<TokenBucket>::time_to_live(&record, at(0));
    assert!(ttl >= Duration::from_secs(5), "{ttl:?}");
}

/// Otherwise its costs would count in a window that is over, and the units would be granted again.
#[test]
fn what_a_machine_with_a_late_clock_uses_counts_by_the_clocks_of_the_others() {
    let window = FixedWindow::new(Quota::per_second(10));
    let decider = Decider::new(window).expect("valid");
    let start = (1_u64 << 60) / 1_000_000_000 * 1_000_000_000 + 1_000_000_000;
    let at = |ms: u64| Tick::from_nanos(start + ms * 1_000_000);
    for clocks_differ in [true, false] {
        let mut record = Record::default();
        let of = |node, sequence, wanted| LeaseReport {
            clocks_differ,
            ..report(node, sequence, 0, wanted)
        };
        let changes = [Change::Charge {
            taken_at: at(1_050).into(),
            cost: 1,
        }];
        let mut ahead = of(1, 1, 0);
        (ahead.changes, ahead.needed) = (&changes, 0);
        lease(&decider, &mut record, at(1_050), &ahead);
        let mut used = 0;
        for sequence in 1..=20 {
            let changes = [Change::Charge {
                taken_at: at(950).into(),
                cost: used,
            }];
            let mut late = of(2, sequence, 4);
            late.needed = 0;
            (late.changes, late.leased) = (&changes, used);
            used = lease(&decider, &mut record, at(950), &late);
        }
        assert_eq!(
            used == 0,
            clocks_differ,
            "{used} are granted again and again"
        );
    }
}

/// Such a machine holds units of the window of the others, and its own clock shows the one before. What it
/// used some time before its report would count there.
#[test]
fn what_a_machine_with_a_late_clock_uses_counts_as_of_no_earlier_than_the_grant() {
    let window = FixedWindow::new(Quota::per_second(10));
    let decider = Decider::new(window).expect("valid");
    let start = (1_u64 << 60) / 1_000_000_000 * 1_000_000_000 + 1_000_000_000;
    let at = |ms: u64| Tick::from_nanos(start + ms * 1_000_000);
    let mut record = Record::default();
    let of = |node, sequence, wanted| LeaseReport {
        clocks_differ: true,
        needed: 0,
        ..report(node, sequence, 0, wanted)
    };
    let charge = |ms, cost| {
        [Change::Charge {
            taken_at: at(ms).into(),
            cost,
        }]
    };
    let mut ahead = of(1, 1, 0);
    let changes = charge(1_005, 1);
    ahead.changes = &changes;
    lease(&decider, &mut record, at(1_005), &ahead);
    let (mut used, mut total) = (0, 0);
    for sequence in 1..=20 {
        let ms = 800 + sequence * 5;
        let changes = charge(ms - 10, used);
        let mut late = of(2, sequence, 4);
        (late.changes, late.leased) = (&changes, used);
        used = lease(&decider, &mut record, at(ms), &late);
        total += used;
    }
    assert!(
        total <= 9,
        "{total} are granted beside the one that was used"
    );
}
