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
    report::{Change, lateness},
};
use crate::algorithm::Portable;
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
    /// Whether the clocks of machines may differ, because the store does not report its time, or several.
    pub(in crate::store) clocks_differ: bool,
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

impl<A: Portable> Decider<A> {
    /// Makes the report a part of the record, unless it is one already, and grants units. The record
    /// has to be written before they may be used; it is `None` if nothing changes.
    pub(in crate::store) fn lease(
        &self,
        record: &Record,
        now: Tick,
        report: &LeaseReport<'_>,
    ) -> Result<(LeaseReply<A::State>, Option<Record>), Failure> {
        let algorithm = &self.algorithm;
        // Leases end by the clock of the machine, and costs count by those of the others.
        let (by_clock, late) = (now, lateness(record, now, report.clocks_differ));
        let now = now.plus(late);
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
        let mut ended = record.end_leases(by_clock);
        if report.clocks_differ {
            // The end is a moment of another clock.
            for lease in &mut ended {
                lease.ends_at = now;
            }
        }
        for lease in &ended {
            let ends_at = lease.ends_at.into();
            A::charge_late(algorithm, &mut state, ends_at, now, lease.units);
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
        // It has used its units since they were granted, whatever its clock shows.
        let granted_at = if report.clocks_differ {
            record.reported_by(report.node)
        } else {
            Tick::ZERO
        };
        let changes = report.changes.iter().map(|change| {
            let change = change.delayed_by(late, now);
            change.not_before(granted_at)
        });
        apply_changes(algorithm, &mut state, now, changes, counted);
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
            _ => lease.ends_at.max(by_clock.plus(report.life)),
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
        let at = latest_cost(report).max(now);
        if !record.mark_lease(report.node, report.sequence, at, lease) {
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
                let ends_at = lease.ends_at.into();
                A::charge_late(algorithm, &mut state, ends_at, now, lease.units);
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
            A::charge_late(&self.algorithm, &mut last, at.into(), at, lease.units);
            ends_at = ends_at.max(at);
        }
        self.algorithm.forgettable_at(&last).max(ends_at)
    }
}

/// When the last cost of a report was taken. If the machine's clock was set back since, that is later than
/// the report.
fn latest_cost(report: &LeaseReport<'_>) -> Tick {
    let moments = report.changes.iter().map(|change| match change {
        Change::Charge { taken_at, .. } if report.clocks_differ && taken_at.last < Tick::MAX => {
            taken_at.last
        }
        _ => Tick::ZERO,
    });
    moments.max().unwrap_or_default()
}

/// Applies changes in their order, without the first `counted` units of their costs.
fn apply_changes<A: Portable>(
    algorithm: &A,
    state: &mut A::State,
    now: Tick,
    changes: impl Iterator<Item = Change>,
    mut counted: u64,
) {
    for change in changes {
        let Change::Charge { taken_at, cost } = change else {
            if change == Change::Reset {
                // What has counted before does not count any more. So the costs after it count.
                counted = 0;
            }
            change.apply(algorithm, state, now);
            continue;
        };
        let skipped = cost.min(counted);
        counted -= skipped;
        // The machine's clock may be ahead of `now`. The cost must not count as of an earlier moment.
        let at = match taken_at.last {
            Tick::MAX => now,
            last => now.max(last),
        };
        let taken = taken_at.map(|taken_at| taken_at.min(at));
        A::charge_late(algorithm, state, taken, at, cost - skipped);
    }
}

/// How many units are granted to a machine that holds `held`, and how many are left. `view` is the state
/// in which the units count that others hold.
fn grant<A: Portable>(
    algorithm: &A,
    view: &A::State,
    now: Tick,
    nodes: usize,
    held: u64,
    report: &LeaseReport<'_>,
) -> (u64, u64) {
    let mut view = view.clone();
    algorithm.charge(&mut view, now, held);
    let left = A::available(algorithm, &view, now);
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
mod tests;
