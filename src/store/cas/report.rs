//! What a machine that decides in memory reports about a key, and what it learns.

use std::time::Duration;

use super::{
    decider::{Decider, with_entry},
    error::Failure,
    record::{Entry, Record},
};
use crate::algorithm::{Cost, GiveBack, Portable, Taken};
use crate::clock::Tick;

/// Something that a machine did to its own state of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) enum Change {
    /// Costs that were admitted, as of moments as of which they count no less than each as of its own.
    /// If the algorithm counts by windows or cells, the later one is the last moment of theirs.
    Charge {
        taken_at: Taken,
        cost: u64,
    },
    /// A cost that was given back.
    Refund {
        taken_at: Tick,
        cost: u64,
    },
    /// The same for a queued request whose turn had not come.
    Cancel {
        taken_at: Tick,
        cost: u64,
    },
    /// A cost that was given back because the request succeeded.
    Forgive {
        taken_at: Tick,
        cost: u64,
    },
    /// The key was denied for this long.
    Ban {
        at: Tick,
        length: Duration,
    },
    Reset,
}

/// Changes that are part of a record or not, all together.
#[derive(Clone, Copy, Debug)]
pub(in crate::store) struct Report<'a> {
    /// A number that no other machine has, nor this one after a restart.
    pub(in crate::store) node: u64,
    /// Larger than that of each earlier report of this machine.
    pub(in crate::store) sequence: u64,
    pub(in crate::store) changes: &'a [Change],
    /// Machines that have reported since then count as present. A state is kept for so long after it
    /// decides like a fresh one.
    pub(in crate::store) present_since: Tick,
    /// Whether the clocks of machines may differ, because the store does not report its time, or several.
    pub(in crate::store) clocks_differ: bool,
}

/// The state of a key with a report, and what is known of the fleet.
#[derive(Debug)]
pub(in crate::store) struct Reported<S> {
    pub(in crate::store) state: S,
    /// The machines that have reported lately, with this one.
    pub(in crate::store) nodes: usize,
    /// What has to be written before the report is a part of the record; `None` if nothing changes.
    pub(in crate::store) record: Option<Record>,
}

impl Change {
    /// Moves a cost or a ban to the moment at which the report is counted.
    pub(in crate::store) fn make_present(&mut self) {
        match self {
            Self::Charge { taken_at, .. } => *taken_at = Tick::MAX.into(),
            Self::Ban { at, .. } => *at = Tick::MAX,
            _ => {}
        }
    }

    /// A cost as of a moment that is later by `late`, but no later than `now` for that. Others stay as they
    /// are: a refund as of a later moment would give back more.
    pub(super) fn delayed_by(self, late: Duration, now: Tick) -> Self {
        match self {
            Self::Charge { taken_at, cost } => Self::Charge {
                taken_at: taken_at.map(|at| at.plus(late).min(now).max(at)),
                cost,
            },
            other => other,
        }
    }

    /// A cost as of `first` at the earliest. Others stay as they are.
    pub(super) fn not_before(self, first: Tick) -> Self {
        match self {
            Self::Charge { taken_at, cost } => Self::Charge {
                taken_at: taken_at.map(|at| at.max(first)),
                cost,
            },
            other => other,
        }
    }

    /// A cost that buckets count as of `first` at the earliest. Others stay as they are.
    pub(super) fn not_before_in_buckets(self, first: Tick) -> Self {
        match self {
            Self::Charge { taken_at, cost } => Self::Charge {
                taken_at: Taken {
                    at: taken_at.at.max(first),
                    ..taken_at
                },
                cost,
            },
            other => other,
        }
    }

    /// Applies the change to a state.
    pub(in crate::store) fn apply<A: Portable>(
        self,
        algorithm: &A,
        state: &mut A::State,
        now: Tick,
    ) {
        match self {
            Self::Charge { taken_at, cost } => {
                A::charge_late(algorithm, state, taken_at, now, cost);
            }
            Self::Refund { taken_at, cost } => {
                algorithm.refund(state, now, Cost::new(cost, taken_at), GiveBack::Refund);
            }
            Self::Cancel { taken_at, cost } => {
                algorithm.refund(state, now, Cost::new(cost, taken_at), GiveBack::Cancel);
            }
            Self::Forgive { taken_at, cost } => {
                algorithm.refund(state, now, Cost::new(cost, taken_at), GiveBack::Forgive);
            }
            Self::Ban { at, length } => {
                let left = length.saturating_sub(now.since(at));
                A::ban(algorithm, state, now, left);
            }
            Self::Reset => *state = algorithm.fresh(now),
        }
    }
}

/// How far the clock of a machine is behind those of the machines that have changed the record before, if
/// clocks may differ.
///
/// The state is as of their time. The costs of this machine would count as old ones, which the algorithm
/// has freed since: any number of them could be admitted until its clock shows the same.
pub(super) fn lateness(record: &Record, now: Tick, clocks_differ: bool) -> Duration {
    if clocks_differ {
        record.reported_at().since(now)
    } else {
        Duration::ZERO
    }
}

impl<A: Portable> Decider<A> {
    /// The record with `report`, unless it is a part of the record already.
    pub(in crate::store) fn report(
        &self,
        record: &Record,
        now: Tick,
        report: &Report<'_>,
    ) -> Result<Reported<A::State>, Failure> {
        let late = lateness(record, now, report.clocks_differ);
        let now = now.plus(late);
        let place = record
            .entries
            .iter()
            .position(|entry| entry.settings == self.settings);
        let mut state = match self.state_of(record, place, now) {
            // It is replaced without being read.
            None if report.changes.contains(&Change::Reset) => self.algorithm.fresh(now),
            state => state.ok_or(Failure::Damaged)?,
        };
        let nodes = 1 + record.others_since(report.node, report.present_since);
        let is_known = record.last_report_of(report.node) >= report.sequence;
        if report.changes.is_empty() || is_known {
            return Ok(Reported {
                state,
                nodes,
                record: None,
            });
        }
        // A bucket that is not kept was full by then, but not longer.
        let is_kept = place.is_some_and(|place| !record.entries[place].state.is_empty());
        let first = if is_kept || !self.is_summed(&state) {
            Tick::ZERO
        } else {
            report.present_since.plus(late)
        };
        for change in report.changes {
            let change = change.delayed_by(late, now).not_before_in_buckets(first);
            change.apply(&self.algorithm, &mut state, now);
        }
        let entry = Entry {
            settings: self.settings.clone(),
            forgettable_at: self.algorithm.forgettable_at(&state),
            state: self.to_bytes(&state)?,
        };
        let mut record = with_entry(record, place, entry, report.present_since)?;
        record.mark_report(report.node, report.sequence, now);
        Ok(Reported {
            state,
            nodes,
            record: Some(record),
        })
    }

    /// Whether costs may be reported as of a moment before the first of them.
    fn is_summed(&self, state: &A::State) -> bool {
        A::summed_moment(&self.algorithm, state, Tick::ZERO, 0).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::{SlidingLog, TokenBucket};
    use crate::quota::Quota;

    const NOW: Tick = Tick::from_nanos(1 << 60);

    fn ago(secs: u64) -> Tick {
        Tick::from_nanos(NOW.as_nanos() - secs * 1_000_000_000)
    }

    /// The time until the limit is unused after one report of 20 units as of `taken_at`.
    fn reset_after<A: Portable>(algorithm: A, record: &Record, taken_at: Tick) -> Duration {
        let decider = Decider::new(algorithm).expect("a limit");
        let report = Report {
            node: 1,
            sequence: 1,
            changes: &[Change::Charge {
                taken_at: taken_at.into(),
                cost: 20,
            }],
            present_since: ago(10),
            clocks_differ: false,
        };
        let reported = decider.report(record, NOW, &report).expect("a record");
        let state = reported.state;
        decider.algorithm.peek(&state, NOW, 0).reset_after
    }

    /// Until then, other machines may have used what the store has forgotten since.
    #[test]
    fn late_costs_count_as_of_the_moment_until_which_a_state_is_kept() {
        let bucket = TokenBucket::new(Quota::per_second(1));
        let of_bucket = |at| reset_after(bucket, &Record::default(), at).as_secs();
        assert_eq!(
            [5, 10, 15, 60].map(|secs| of_bucket(ago(secs))),
            [15, 10, 10, 10]
        );
        // A log counts each cost as of its own moment.
        let log = SlidingLog::new(Quota::per_minute(100));
        assert_eq!(reset_after(log, &Record::default(), ago(50)).as_secs(), 10);
    }

    /// Also if another configuration has written it since.
    #[test]
    fn a_full_bucket_is_kept_for_costs_that_are_reported_later() {
        let [decider, other] = [1, 2].map(|limit| {
            let bucket = TokenBucket::new(Quota::per_second(limit));
            Decider::new(bucket).expect("a limit")
        });
        let mut record = Record::default();
        for (node, decider, taken_at) in [(2, &decider, ago(9)), (3, &other, ago(9))] {
            let report = Report {
                node,
                sequence: 1,
                changes: &[Change::Charge {
                    taken_at: taken_at.into(),
                    cost: 1,
                }],
                present_since: ago(10),
                clocks_differ: false,
            };
            let reported = decider.report(&record, NOW, &report).expect("a record");
            record = reported.record.expect("is written");
        }
        // The bucket was full 8 seconds ago, and 20 units are worth 20 seconds.
        let left = reset_after(decider.algorithm, &record, ago(30)).as_secs();
        assert_eq!(left, 12);
    }
}
