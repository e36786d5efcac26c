//! Keys with changes that the store does not have yet.

use std::{collections::BTreeMap, sync::Arc};

use tokio::sync::oneshot;

use crate::algorithm::Algorithm;
use crate::clock::Tick;
use crate::error::StoreError;
use crate::store::cas::report::Change;
use crate::sync::{Mutex, MutexGuard, lock};

const SHARDS: usize = 64;
/// The most changes of one key that wait for a report. More are put together.
const MAX_CHANGES: usize = 8;

/// The keys with changes, by the hash of the key.
#[derive(Debug)]
pub(super) struct PendingKeys {
    shards: [Mutex<Shard>; SHARDS],
}

/// Ordered, so that a simulation takes the same steps each time.
pub(super) type Shard = BTreeMap<u64, PendingKey>;

/// What is to be reported of a key, beside the cost that its state in the table holds.
#[derive(Debug)]
pub(super) struct PendingKey {
    pub(super) name: Arc<str>,
    /// A report that was sent. The store has it or not; it is sent again, unchanged, until a reply
    /// says which.
    pub(super) sent: Option<SentReport>,
    /// Changes that came later, oldest first. They precede the cost in the table.
    pub(super) unsent: Vec<Change>,
    /// Whether an exchange is under way.
    pub(super) in_flight: bool,
    /// Whether the exchange cannot wait for the end of the interval.
    pub(super) is_urgent: bool,
    /// Whether it was added before the fleet's time was known. The moments of its changes then mean
    /// nothing to others.
    pub(super) is_early: bool,
    /// When the oldest change that the store may not have was made.
    pub(super) since: Tick,
    /// The cost of changes that counted no more before they were sent.
    pub(super) dropped: u64,
    /// Requests that wait for the end of an exchange.
    pub(super) waiters: Vec<oneshot::Sender<Result<(), StoreError>>>,
}

/// A report, until its reply has arrived.
#[derive(Clone, Debug, Default)]
pub(super) struct SentReport {
    pub(super) sequence: u64,
    pub(super) changes: Arc<[Change]>,
}

impl PendingKeys {
    pub(super) fn new() -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
        }
    }

    pub(super) fn shard(&self, hash: u64) -> MutexGuard<'_, Shard> {
        // The table finds a key by the high bits, and shards by the low ones.
        lock(&self.shards[usize::from(hash.to_le_bytes()[0]) % SHARDS])
    }

    pub(super) fn shards(&self) -> impl Iterator<Item = MutexGuard<'_, Shard>> {
        self.shards.iter().map(lock)
    }

    /// How many keys have changes.
    pub(super) fn len(&self) -> usize {
        self.shards().map(|shard| shard.len()).sum()
    }
}

impl PendingKey {
    pub(super) fn new(name: Arc<str>, now: Tick) -> Self {
        Self {
            name,
            sent: None,
            unsent: Vec::new(),
            in_flight: false,
            is_urgent: false,
            is_early: false,
            since: now,
            dropped: 0,
            waiters: Vec::new(),
        }
    }

    /// Adds a change. If there are many, the oldest ones are put together.
    /// Those that count no more are dropped.
    pub(super) fn push<A: Algorithm>(&mut self, algorithm: &A, change: Change, now: Tick) {
        self.unsent.push(change);
        if self.unsent.len() > MAX_CHANGES {
            let before = total_cost(&self.unsent);
            self.unsent
                .retain(|change| !is_over(algorithm, *change, now));
            self.dropped += before - total_cost(&self.unsent);
        }
        while self.unsent.len() > MAX_CHANGES && self.merge_oldest() {}
    }

    /// Puts the two oldest costs together that have no other change between them, as of the later
    /// moment: they count for longer than each of them would have. Returns whether there were any.
    fn merge_oldest(&mut self) -> bool {
        for second in 1..self.unsent.len() {
            let pair = (self.unsent[second - 1], self.unsent[second]);
            let (
                Change::Charge { cost, .. },
                Change::Charge {
                    taken_at,
                    cost: more,
                },
            ) = pair
            else {
                continue;
            };
            let cost = cost.saturating_add(more);
            self.unsent[second] = Change::Charge { taken_at, cost };
            self.unsent.remove(second - 1);
            return true;
        }
        false
    }

    /// Lets the waiting requests go on.
    pub(super) fn wake(&mut self, result: &Result<(), StoreError>) {
        for waiter in self.waiters.drain(..) {
            // The request may have been dropped.
            let _ = waiter.send(result.clone());
        }
    }
}

/// The cost of changes that were admitted.
pub(super) fn total_cost(changes: &[Change]) -> u64 {
    let costs = changes.iter().map(|change| match change {
        Change::Charge { cost, .. } => *cost,
        _ => 0,
    });
    costs.fold(0, u64::saturating_add)
}

/// Whether a cost counts no more.
fn is_over<A: Algorithm>(algorithm: &A, change: Change, now: Tick) -> bool {
    let Change::Charge { .. } = change else {
        return false;
    };
    let mut state = algorithm.fresh(now);
    change.apply(algorithm, &mut state, now);
    algorithm.forgettable_at(&state) <= now
}
