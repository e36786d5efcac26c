//! What a machine keeps of a key of which it holds units, beside the state in the table.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::plan::Chunk;
use crate::clock::Tick;
use crate::error::StoreError;
use crate::store::{
    cas::report::Change,
    fleet::{Listed, PendingKey},
};

/// What a machine keeps of a key of which it holds units, or has something to report.
#[derive(Debug)]
pub(super) struct LeaseKey {
    /// The changes that are to be reported, and the requests that wait.
    pub(super) pending: PendingKey,
    /// A report that was sent. It is sent again, unchanged, until a reply says whether the store has it.
    pub(super) sent: Option<SentLease>,
    /// How much of the costs that are to be reported was taken from the lease.
    pub(super) leased: u64,
    /// The units that were put into the table. Those that it does not have any more were used.
    pub(super) in_table: u64,
    /// Units that are used when those in the table have run out.
    pub(super) reserve: u64,
    /// With so many units left, the machine asks for more.
    pub(super) low: u64,
    /// Nothing is used of the lease from this moment on.
    pub(super) stop: Tick,
    /// When it was listed or exchanged last.
    pub(super) exchanged_at: Tick,
    /// When the exchange was begun that is under way.
    pub(super) sent_at: Tick,
    /// What was used since the last exchange.
    pub(super) used: u64,
    pub(super) chunk: Chunk,
    /// Until then, denials need no exchange.
    pub(super) checked_until: Tick,
    /// How much the store had left beyond what it granted last.
    pub(super) left_in_store: u64,
    /// Until then, the store has no more than that: it has just been asked.
    pub(super) asked_until: Tick,
    /// The cost of the requests that wait.
    pub(super) waiting: u64,
    /// The least cost of a request that waits; zero if none does.
    pub(super) needed: u64,
    /// Whether a change is to be reported that cannot wait for the next look.
    pub(super) has_urgent_change: bool,
    /// Whether the store has granted units that are not used, and are to be given back.
    pub(super) is_to_return: bool,
    /// How often the machine had been suspended when the exchange was begun that is under way.
    pub(super) suspensions: u64,
}

/// A report, until its reply has arrived.
#[derive(Clone, Debug)]
pub(super) struct SentLease {
    pub(super) sequence: u64,
    pub(super) changes: Arc<[Change]>,
    pub(super) leased: u64,
    pub(super) kept: u64,
    pub(super) wanted: u64,
    pub(super) needed: u64,
    /// Whether an exchange of it has ended without a reply, so that the store may have it.
    pub(super) may_be_stored: bool,
}

impl Listed for LeaseKey {
    fn pending(&mut self) -> &mut PendingKey {
        &mut self.pending
    }
}

impl LeaseKey {
    pub(super) fn new(name: Arc<str>, now: Tick, most: u64) -> Self {
        Self {
            pending: PendingKey::new(name, now),
            sent: None,
            leased: 0,
            in_table: 0,
            reserve: 0,
            low: 0,
            stop: Tick::ZERO,
            exchanged_at: now,
            sent_at: now,
            used: 0,
            chunk: Chunk::new(most),
            checked_until: Tick::ZERO,
            left_in_store: u64::MAX,
            asked_until: Tick::ZERO,
            waiting: 0,
            needed: 0,
            has_urgent_change: false,
            is_to_return: false,
            suspensions: 0,
        }
    }

    /// The units that may be used, after the table was read.
    pub(super) const fn left(&self) -> u64 {
        self.in_table.saturating_add(self.reserve)
    }

    /// Whether there is nothing to report and nothing to hold.
    pub(super) fn is_empty(&self) -> bool {
        self.sent.is_none()
            && self.pending.unsent.is_empty()
            && self.pending.waiters.is_empty()
            && self.leased == 0
            && self.left() == 0
            && !self.is_to_return
    }

    /// Lets a request wait for the next exchange.
    pub(super) fn wait(&mut self, cost: u64) -> oneshot::Receiver<Result<(), StoreError>> {
        let (waiter, receiver) = oneshot::channel();
        self.pending.waiters.push(waiter);
        self.waiting = self.waiting.saturating_add(cost);
        self.needed = match self.needed {
            0 => cost,
            needed => needed.min(cost),
        };
        receiver
    }

    /// Lets the waiting requests go on.
    pub(super) fn wake(&mut self, result: &Result<(), StoreError>) {
        self.pending.wake(result);
        (self.waiting, self.needed) = (0, 0);
    }

    /// Forgets what was taken from a lease that has ended since: it counts already. What was taken after
    /// a reset counts again.
    pub(super) fn forget_leased(&mut self) {
        let mut left = std::mem::take(&mut self.leased);
        if self.pending.unsent.contains(&Change::Reset) {
            return;
        }
        for change in &mut self.pending.unsent {
            if let Change::Charge { cost, .. } = change {
                let skipped = left.min(*cost);
                (*cost, left) = (*cost - skipped, left - skipped);
            }
        }
        let counts = |change: &Change| !matches!(change, Change::Charge { cost: 0, .. });
        self.pending.unsent.retain(counts);
    }

    /// Takes back a report that the store has refused.
    pub(super) fn take_back(&mut self) {
        let Some(sent) = self.sent.take() else { return };
        self.leased = self.leased.saturating_add(sent.leased);
        let later = std::mem::take(&mut self.pending.unsent);
        self.pending.unsent = sent.changes.iter().copied().chain(later).collect();
    }
}
