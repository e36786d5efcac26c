//! Units that machines take ahead of a key, and what they report of them.
//!
//! A machine that holds units may use them at any time until its lease ends. So units are granted only
//! as far as the algorithm would admit all units that are out, and the new ones, at this moment.
//! Adding costs, or moving them to a later moment, never makes an algorithm admit more afterwards. So
//! units that are used later, or reported as of a later moment than they were used, keep the promise
//! too.

use std::time::Duration;

use super::{
    decider::{Decider, with_entry},
    error::Failure,
    record::{Entry, Lease, Record},
    report::Change,
};
use crate::algorithm::{Algorithm, Packing};
use crate::clock::Tick;

/// What a machine did with its units, and what it asks for.
#[derive(Clone, Copy, Debug)]
pub(in crate::store) struct LeaseReport<'a> {
    /// A number that no other machine has, nor this one after a restart.
    pub(in crate::store) node: u64,
    /// Larger than that of each earlier report of this machine.
    pub(in crate::store) sequence: u64,
    pub(in crate::store) changes: &'a [Change],
    /// How much of the costs in `changes` was taken from the lease.
    pub(in crate::store) leased: u64,
    /// How many units of its lease the machine has not used and keeps. It gives the others back.
    pub(in crate::store) kept: u64,
    /// How many units it wants to hold.
    pub(in crate::store) wanted: u64,
    /// With how many units the smallest request can go on that waits for this exchange.
    pub(in crate::store) needed: u64,
    /// How long the units count as out.
    pub(in crate::store) life: Duration,
    /// Machines that have reported since then count as present.
    pub(in crate::store) present_since: Tick,
}

/// The state of a key with a report, and the lease of the machine.
#[derive(Clone, Debug)]
pub(in crate::store) struct LeaseReply<S> {
    /// The state in which the units count that other machines hold.
    pub(in crate::store) state: S,
    pub(in crate::store) lease: Lease,
    /// How much the store would have granted beyond that.
    pub(in crate::store) left: u64,
    /// Whether the lease had ended from which the machine took costs since it sent the report: they
    /// count already.
    pub(in crate::store) has_ended: bool,
    /// When the first lease of another machine ends.
    pub(in crate::store) next_end: Option<Tick>,
    /// The machines that have reported lately, with this one.
    pub(in crate::store) nodes: usize,
}

impl<A: Algorithm> Decider<A> {
    /// Makes the report a part of the record, unless it is one already, and grants units. The record
    /// has to be written before they may be used; it is `None` if nothing changes.
    pub(in crate::store) fn lease(
        &self,
        record: &Record,
        now: Tick,
        report: &LeaseReport<'_>,
    ) -> Result<(LeaseReply<A::State>, Option<Record>), Failure> {
        let algorithm = &self.algorithm;
        let place = record
            .entries
            .iter()
            .position(|entry| entry.settings == self.settings);
        let mut state = match self.state_of(record, place, now) {
            // It is replaced without being read.
            None if report.changes.contains(&Change::Reset) => algorithm.fresh(now),
            state => state.ok_or(Failure::Damaged)?,
        };
        let mut record = record.clone();
        // They may have been used up to the end.
        let ended = record.end_leases(now);
        for lease in &ended {
            A::Packing::charge_late(algorithm, &mut state, lease.ends_at, now, lease.units);
        }
        self.charge_others(&mut record, place, &ended, now);
        let others: u64 = record
            .leases_beside(report.node)
            .fold(0, |sum, lease| sum.saturating_add(lease.units));
        let next_end = record.leases_beside(report.node).map(|lease| lease.ends_at);
        let next_end = next_end.min();
        let nodes = 1 + record.others_since(report.node, report.present_since);
        let own = record.report_of(report.node);
        let mut lease = own.map(|(_, lease)| lease).unwrap_or_default();
        let is_known = own.is_some_and(|(sequence, _)| sequence >= report.sequence);
        let with_others = |state: &A::State| {
            let mut state = state.clone();
            algorithm.charge(&mut state, now, others);
            state
        };
        if is_known {
            let reply = LeaseReply {
                state: with_others(&state),
                lease,
                // It is not computed again.
                left: u64::MAX,
                // The next report says it, and skips them.
                has_ended: false,
                next_end,
                nodes,
            };
            return Ok((reply, None));
        }

        // What was taken from a lease counts already if the lease has ended.
        let counted = match own {
            Some(_) => report.leased.saturating_sub(lease.units),
            None => 0,
        };
        apply_changes(algorithm, &mut state, now, report.changes, counted);
        let held = lease.units;
        // A reset does not count what the lease did.
        let has_ended = own.is_some()
            && held < report.leased.saturating_add(report.kept)
            && !report.changes.contains(&Change::Reset);
        lease.units = held.saturating_sub(report.leased).min(report.kept);
        let view = with_others(&state);
        let (granted, left) = grant(algorithm, &view, now, nodes, lease.units, report);
        lease.units = lease.units.saturating_add(granted);
        lease.ends_at = match lease.units {
            0 => Tick::ZERO,
            // `now` may be earlier than at the last report. If the machine does not get this reply, it
            // uses its units up to the end that it knows.
            _ => lease.ends_at.max(now.plus(report.life)),
        };
        let reply = LeaseReply {
            state: view,
            lease,
            left,
            has_ended,
            next_end,
            nodes,
        };
        if held == 0 && lease.units == 0 && report.changes.is_empty() && ended.is_empty() {
            // A denial writes nothing.
            return Ok((reply, None));
        }
        if !record.mark_lease(report.node, report.sequence, now, lease) {
            return Err(Failure::TooManyLeases);
        }
        let entry = Entry {
            settings: self.settings.clone(),
            forgettable_at: self.forgettable_with_leases(&state, now, &record),
            state: self.to_bytes(&state)?,
        };
        let record = with_entry(&record, place, entry, now)?;
        Ok((reply, Some(record)))
    }

    /// Charges leases that have ended to the states of the other configurations: each of them may have
    /// granted the units. The one at `place` is written by the caller.
    fn charge_others(&self, record: &mut Record, place: Option<usize>, ended: &[Lease], now: Tick) {
        if ended.is_empty() {
            return;
        }
        for index in (0..record.entries.len()).filter(|index| Some(*index) != place) {
            let Some(other) = self.of_entry(&record.entries[index]) else {
                continue;
            };
            let Some(mut state) = other.state_of(record, Some(index), now) else {
                continue;
            };
            for lease in ended {
                let algorithm = &other.algorithm;
                A::Packing::charge_late(algorithm, &mut state, lease.ends_at, now, lease.units);
            }
            if let Ok(bytes) = other.to_bytes(&state) {
                let forgettable_at = other.forgettable_with_leases(&state, now, record);
                let entry = &mut record.entries[index];
                (entry.state, entry.forgettable_at) = (bytes, forgettable_at);
            }
        }
    }

    /// When the state decides like a fresh one, if all units that are out are used at the last moment.
    fn forgettable_with_leases(&self, state: &A::State, now: Tick, record: &Record) -> Tick {
        let mut last = state.clone();
        let mut ends_at = Tick::ZERO;
        for lease in record.leases() {
            let at = lease.ends_at.max(now);
            A::Packing::charge_late(&self.algorithm, &mut last, at, at, lease.units);
            ends_at = ends_at.max(at);
        }
        self.algorithm.forgettable_at(&last).max(ends_at)
    }
}

/// Applies changes in their order, without the first `counted` units of their costs.
fn apply_changes<A: Algorithm>(
    algorithm: &A,
    state: &mut A::State,
    now: Tick,
    changes: &[Change],
    mut counted: u64,
) {
    for change in changes {
        let Change::Charge { taken_at, cost } = *change else {
            if *change == Change::Reset {
                // What has counted before does not count any more. So the costs after it count.
                counted = 0;
            }
            change.apply(algorithm, state, now);
            continue;
        };
        let skipped = cost.min(counted);
        counted -= skipped;
        // The machine's clock may be ahead of `now`. The cost must not count as of an earlier moment.
        let at = match taken_at {
            Tick::MAX => now,
            taken_at => now.max(taken_at),
        };
        A::Packing::charge_late(algorithm, state, taken_at.min(at), at, cost - skipped);
    }
}

/// How many units are granted to a machine that holds `held`, and how many are left. `view` is the state in which the units
/// count that others hold.
fn grant<A: Algorithm>(
    algorithm: &A,
    view: &A::State,
    now: Tick,
    nodes: usize,
    held: u64,
    report: &LeaseReport<'_>,
) -> (u64, u64) {
    let mut view = view.clone();
    algorithm.charge(&mut view, now, held);
    let left = A::Packing::available(algorithm, &view, now);
    // All machines together never hold most of what is left.
    let fair = left / (2 * nodes as u64);
    let wanted = report.wanted.saturating_sub(held).min(fair);
    let granted = match report.needed.saturating_sub(held) {
        needed if needed > left => 0,
        needed => wanted.max(needed),
    };
    (granted, left - granted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::{FixedWindow, TokenBucket};
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
        }
    }

    fn lease<A: Algorithm>(
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

    fn left<A: Algorithm>(decider: &Decider<A>, record: &Record, now: Tick) -> u64 {
        let mut nothing = report(99, 1, 0, 0);
        nothing.needed = 0;
        let (reply, _) = decider.lease(record, now, &nothing).expect("a reply");
        A::Packing::available(&decider.algorithm, &reply.state, now)
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
            taken_at: at(0),
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
            let taken_at = at(0);
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
        let left = <TokenBucket as Algorithm>::Packing::available(
            &decider.algorithm,
            &reply.state,
            at(1_500),
        );
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
                taken_at: at(1_000),
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
}
