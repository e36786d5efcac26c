//! The permits of a key on this machine, as the task sees them that keeps its lease.

use std::task::Waker;

use super::super::{
    lease::Lease,
    request::{Reserve, part_of, reserved},
    table::PermitTable,
};
use crate::clock::Tick;
use crate::queue::Line;
use crate::store::cas::{LeasePlan, LeaseView};

impl PermitTable {
    /// Wakes the task that asks the store for a request that waits. `start` makes the waker of a new task, if the key
    /// needs one.
    pub(super) fn ask(
        &self,
        id: u64,
        (queue, reserve): (u32, Reserve),
        start: impl FnOnce() -> Waker,
    ) {
        let mut shard = self.lock_shard(id);
        let entry = shard.entries.entry(id).or_default();
        let lease = entry.lease.get_or_insert_with(|| {
            Box::new(Lease {
                granted: 0,
                valid_until: Tick::ZERO,
                others: 0,
                queue,
                reserve,
                keeper: start(),
            })
        });
        lease.queue = queue;
        let keeper = lease.keeper.clone();
        drop(shard);
        keeper.wake();
    }

    /// What this machine is to hold of a key, given what the others have, and how many of the requests in its line
    /// may stay. If that `is_current`, there are no more: those for which there is no room are denied, but for those that may wait.
    pub(super) fn plan_lease(
        &self,
        id: u64,
        line: &Line,
        view: &LeaseView,
        is_current: bool,
    ) -> (LeasePlan, usize) {
        let limit = self.limit();
        let mut shard = self.lock_shard(id);
        let entry = shard.entries.get_mut(&id);
        let Some((in_flight, lease)) =
            entry.and_then(|entry| Some((entry.in_flight, entry.lease.as_mut()?)))
        else {
            return (LeasePlan::default(), usize::MAX);
        };
        let wanted = line
            .iter()
            .fold(0, |sum, (_, units)| units.saturating_add(sum));
        let share = view.share(limit, in_flight.saturating_add(wanted));
        // How many of the first waiters can go on together.
        let (mut holds, mut fitting) = (in_flight, 0);
        for (priority, units) in line.iter() {
            let part =
                part_of(limit, reserved(lease.reserve, priority)).saturating_sub(view.others);
            let after = holds.saturating_add(units);
            if after > part.min(share) {
                break;
            }
            (fitting, holds) = (fitting + 1, after);
        }
        let most = if is_current {
            lease.queue as usize + fitting
        } else {
            usize::MAX
        };
        let leaving = line.iter().skip(most).map(|(_, units)| units).sum();
        let plan = LeasePlan {
            holds,
            wants: in_flight.saturating_add(wanted).saturating_sub(leaving),
            grants: holds.min(share),
        };
        // Before the store hears of it: it may give what is not held any more to others at once.
        lease.granted = lease.granted.min(plan.grants);
        (plan, most)
    }

    /// The store has stored what was planned. `others` is what the other machines held then.
    pub(super) fn confirm_lease(&self, id: u64, plan: &LeasePlan, others: u64, valid_until: Tick) {
        let mut shard = self.lock_shard(id);
        if let Some(lease) = shard
            .entries
            .get_mut(&id)
            .and_then(|entry| entry.lease.as_mut())
        {
            lease.granted = plan.grants;
            lease.others = others;
            lease.valid_until = valid_until;
        }
    }

    /// Forgets the lease of a key, if that `is_over` or nothing is in flight. Returns whether there is none.
    pub(super) fn end_lease(&self, id: u64, is_over: bool) -> bool {
        let mut shard = self.lock_shard(id);
        let Some(entry) = shard.entries.get_mut(&id) else {
            return true;
        };
        if is_over || entry.in_flight == 0 {
            entry.lease = None;
        }
        let is_kept = entry.lease.is_some();
        shard.tidy(id);
        !is_kept
    }
}
