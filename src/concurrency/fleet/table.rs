//! The permits of a key on this machine, as the task sees them that keeps its lease.

use std::task::Waker;

use super::super::{
    lease::Lease,
    line::End,
    request::{PermitRequest, part_of},
    shard::KeyPermits,
    table::Joined,
    table::PermitTable,
};
use crate::clock::Tick;
use crate::store::cas::{LeasePlan, LeaseView};
use crate::sync::Ordering;

impl KeyPermits {
    /// The units of all that wait.
    fn wanted(&self) -> u64 {
        self.line.as_ref().map_or(0, |line| line.units_of(|_| true))
    }

    /// Ends the wait of the last request. Returns the waker to call.
    fn end_last(&mut self, end: End) -> Option<Waker> {
        let last = self.line.as_ref()?.last();
        self.end(last, end)
    }
}

impl PermitTable {
    /// Takes a permit that this machine holds, or joins the line and wakes the task that asks the store.
    /// `start` makes the waker of a new task, if the key needs one.
    pub(super) fn ask(
        &self,
        request: PermitRequest,
        queue: u32,
        start: impl FnOnce() -> Waker,
    ) -> Joined {
        // Those for which there is no room are denied once the store has answered.
        self.take_or_join(request, u32::MAX, |entry| {
            let lease = entry.lease.get_or_insert_with(|| {
                Box::new(Lease {
                    granted: 0,
                    valid_until: Tick::ZERO,
                    others: 0,
                    queue,
                    keeper: start(),
                })
            });
            lease.queue = queue;
        })
    }

    /// What this machine is to hold of a key, given what the others have. If that `is_current`, the requests for
    /// which there is no room are denied, but for those that may wait.
    pub(super) fn plan_lease(&self, id: u64, view: &LeaseView, is_current: bool) -> LeasePlan {
        let limit = self.limit();
        let mut wakers = Vec::new();
        let mut shard = self.lock_shard(id);
        let Some(entry) = shard.entries.get_mut(&id) else {
            return LeasePlan::default();
        };
        let Some(queue) = entry.lease.as_ref().map(|lease| lease.queue) else {
            return LeasePlan::default();
        };
        let in_flight = entry.in_flight;
        let share = view.share(limit, in_flight.saturating_add(entry.wanted()));
        // How many of the first waiters can go on together.
        let (mut holds, mut fitting) = (in_flight, 0);
        for waiter in entry.line.iter_mut().flat_map(|line| line.iter_mut()) {
            let part = part_of(limit, waiter.own).saturating_sub(view.others);
            let after = holds.saturating_add(waiter.units);
            if after > part.min(share) {
                break;
            }
            (fitting, holds) = (fitting + 1, after);
        }
        while is_current && entry.waiting() > queue as usize + fitting {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            wakers.extend(entry.end_last(End::Displaced));
        }
        let plan = LeasePlan {
            holds,
            wants: in_flight.saturating_add(entry.wanted()),
            grants: holds.min(share),
        };
        // Before the store hears of it: it may give what is not held any more to others at once.
        if let Some(lease) = &mut entry.lease {
            lease.granted = lease.granted.min(plan.grants);
        }
        drop(shard);
        wakers.into_iter().for_each(Waker::wake);
        plan
    }

    /// The store has stored what was planned. `others` is what the other machines held then.
    pub(super) fn confirm_lease(&self, id: u64, plan: &LeasePlan, others: u64, valid_until: Tick) {
        let mut wakers = Vec::new();
        let mut shard = self.lock_shard(id);
        let Some(entry) = shard.entries.get_mut(&id) else {
            return;
        };
        if let Some(lease) = &mut entry.lease {
            lease.granted = plan.grants;
            lease.others = others;
            lease.valid_until = valid_until;
        }
        self.grant(entry, &mut wakers);
        drop(shard);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Fails all requests that wait. If `is_over`, the task has ended.
    pub(super) fn fail_waiters(&self, id: u64, is_over: bool) {
        let mut shard = self.lock_shard(id);
        let Some(entry) = shard.entries.get_mut(&id) else {
            return;
        };
        let (mut wakers, mut keeper) = (Vec::new(), None);
        while entry.waiting() > 0 {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            wakers.extend(entry.end_last(End::Failed));
        }
        if is_over {
            keeper = entry.lease.take();
        }
        shard.tidy(id);
        drop(shard);
        drop(keeper);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Forgets the lease of a key that is not used. Returns whether it was not.
    pub(super) fn end_lease(&self, id: u64) -> bool {
        let mut shard = self.lock_shard(id);
        let entry = shard.entries.get_mut(&id);
        let Some(entry) = entry.filter(|entry| entry.lease.is_some()) else {
            return true;
        };
        if !entry.is_idle() {
            return false;
        }
        let lease = entry.lease.take();
        shard.tidy(id);
        drop(shard);
        drop(lease);
        true
    }
}
