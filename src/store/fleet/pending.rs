//! Keys with changes that the store does not have yet.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::AtomicUsize},
};

use tokio::sync::oneshot;

use crate::algorithm::Portable;
use crate::clock::Tick;
use crate::error::StoreError;
use crate::store::cas::report::Change;
use crate::sync::{Mutex, MutexGuard, Ordering, lock};

const SHARDS: usize = 64;
/// The most changes of one key that wait for a report. More are put together.
const MAX_CHANGES: usize = 8;

/// The keys with changes, by the hash of the key.
#[derive(Debug)]
pub(in crate::store) struct PendingKeys<T = PendingKey> {
    shards: [Mutex<Shard<T>>; SHARDS],
    len: AtomicUsize,
}

/// A key with something to exchange.
pub(in crate::store) trait Listed {
    fn pending(&mut self) -> &mut PendingKey;
}

/// How far the keys of a round have been looked at.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::store) struct Place {
    pub(in crate::store) shard: usize,
    /// The last key of the shard that was looked at.
    pub(in crate::store) after: Option<u64>,
}

/// Ordered, so that a simulation takes the same steps each time.
pub(in crate::store) type Shard<T = PendingKey> = BTreeMap<u64, T>;

/// What is to be reported of a key, beside the cost that its state in the table holds.
#[expect(clippy::struct_excessive_bools, reason = "they are independent")]
#[derive(Debug)]
pub(in crate::store) struct PendingKey {
    pub(in crate::store) name: Arc<str>,
    /// A report that was sent. The store has it or not; it is sent again, unchanged, until a reply
    /// says which.
    pub(in crate::store) sent: Option<SentReport>,
    /// Changes that came later, oldest first. They precede the cost in the table.
    pub(in crate::store) unsent: Vec<Change>,
    /// Whether an exchange is under way.
    pub(in crate::store) in_flight: bool,
    /// The round in which it was listed or exchanged last.
    pub(in crate::store) round: u64,
    /// Whether a request has needed more than the state in the table since the last exchange.
    pub(in crate::store) is_used: bool,
    /// Whether the exchange cannot wait for the end of the interval.
    pub(in crate::store) is_urgent: bool,
    /// Whether it was added before the fleet's time was known. The moments of its changes then mean
    /// nothing to others.
    pub(in crate::store) is_early: bool,
    /// When the oldest change that the store may not have was made.
    pub(in crate::store) since: Tick,
    /// The cost of changes that counted no more before they were sent.
    pub(in crate::store) dropped: u64,
    /// Requests that wait for the end of an exchange.
    pub(in crate::store) waiters: Vec<oneshot::Sender<Result<(), StoreError>>>,
}

/// A report, until its reply has arrived.
#[derive(Clone, Debug, Default)]
pub(in crate::store) struct SentReport {
    pub(in crate::store) sequence: u64,
    pub(in crate::store) changes: Arc<[Change]>,
}

impl Listed for PendingKey {
    fn pending(&mut self) -> &mut PendingKey {
        self
    }
}

impl<T> PendingKeys<T> {
    pub(in crate::store) fn new() -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            len: AtomicUsize::new(0),
        }
    }

    pub(in crate::store) fn shard(&self, hash: u64) -> MutexGuard<'_, Shard<T>> {
        // The table finds a key by the high bits, and shards by the low ones.
        lock(&self.shards[usize::from(hash.to_le_bytes()[0]) % SHARDS])
    }

    /// The shard of this number, if there are so many.
    pub(in crate::store) fn shard_at(&self, number: usize) -> Option<MutexGuard<'_, Shard<T>>> {
        self.shards.get(number).map(lock)
    }

    pub(in crate::store) fn shards(&self) -> impl Iterator<Item = MutexGuard<'_, Shard<T>>> {
        self.shards.iter().map(lock)
    }

    /// How many keys have changes.
    pub(in crate::store) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    pub(in crate::store) fn count_added(&self) {
        self.len.fetch_add(1, Ordering::Relaxed);
    }

    pub(in crate::store) fn count_removed(&self) {
        self.len.fetch_sub(1, Ordering::Relaxed);
    }
}

impl PendingKey {
    pub(in crate::store) fn new(name: Arc<str>, now: Tick) -> Self {
        Self {
            name,
            sent: None,
            unsent: Vec::new(),
            in_flight: false,
            round: 0,
            is_used: false,
            is_urgent: false,
            is_early: false,
            since: now,
            dropped: 0,
            waiters: Vec::new(),
        }
    }

    /// Adds a change. If there are many, they are put together, so that no less counts, and costs that
    /// count no more are dropped.
    pub(in crate::store) fn push<A: Portable>(&mut self, algorithm: &A, change: Change, now: Tick) {
        self.unsent.push(change);
        if self.unsent.len() > MAX_CHANGES {
            let before = total_cost(&self.unsent);
            self.unsent
                .retain(|change| !is_over(algorithm, *change, now));
            self.dropped += before - total_cost(&self.unsent);
        }
        while self.unsent.len() > MAX_CHANGES
            && (self.merge_costs(algorithm, now) || self.merge_refunds() || self.drop_refund())
        {
        }
    }

    /// Puts two refunds together that have only costs between them, as of the earlier moment: time has
    /// returned more of them then. Returns whether there were any.
    fn merge_refunds(&mut self) -> bool {
        let mut last = None;
        for place in 0..self.unsent.len() {
            match (self.unsent[place], last) {
                (Change::Charge { .. }, _) => {}
                (Change::Refund { taken_at, cost }, Some((first, at, more))) => {
                    self.unsent[place] = Change::Refund {
                        taken_at: taken_at.min(at),
                        cost: cost.saturating_add(more),
                    };
                    self.unsent.remove(first);
                    return true;
                }
                (Change::Refund { taken_at, cost }, None) => last = Some((place, taken_at, cost)),
                _ => last = None,
            }
        }
        false
    }

    /// Drops the oldest change that gives a cost back. Returns whether there was any.
    fn drop_refund(&mut self) -> bool {
        let gives_back = |change: &Change| {
            matches!(
                change,
                Change::Refund { .. } | Change::Cancel { .. } | Change::Forgive { .. }
            )
        };
        let oldest = self.unsent.iter().position(gives_back);
        oldest.map(|oldest| self.unsent.remove(oldest)).is_some()
    }

    /// Whether there is nothing to exchange, beside the cost in the table.
    pub(in crate::store) fn is_idle(&self) -> bool {
        !self.is_used && self.sent.is_none() && self.unsent.is_empty() && self.waiters.is_empty()
    }

    /// The cost that the store may not know of, beside that in the table.
    pub(in crate::store) fn unknown_cost(&self) -> u64 {
        let sent = self
            .sent
            .as_ref()
            .map_or(0, |sent| total_cost(&sent.changes));
        sent.saturating_add(total_cost(&self.unsent))
    }

    /// Puts two costs together that have no other change between them, as of a moment as of which they
    /// count no less than each of them would. Of all such pairs it takes the one that is nearest
    /// together for its age. Returns whether there was any.
    fn merge_costs<A: Portable>(&mut self, algorithm: &A, now: Tick) -> bool {
        let mut best: Option<(u128, usize)> = None;
        for second in 1..self.unsent.len() {
            let pair = (self.unsent[second - 1], self.unsent[second]);
            let (
                Change::Charge { taken_at, .. },
                Change::Charge {
                    taken_at: later, ..
                },
            ) = pair
            else {
                continue;
            };
            let gap = later.at.since(taken_at.at).as_nanos();
            let age = now.since(later.at).as_nanos() + 1;
            let distance = (gap << 32) / age;
            if best.is_none_or(|best| distance < best.0) {
                best = Some((distance, second));
            }
        }
        let Some((_, second)) = best else {
            return false;
        };
        let first = self.unsent.remove(second - 1);
        let later = self.unsent.get_mut(second - 1);
        if let (
            Change::Charge {
                taken_at: first,
                cost: more,
            },
            Some(Change::Charge { taken_at, cost }),
        ) = (first, later)
        {
            taken_at.last = taken_at.last.max(first.last);
            let joined = A::joined_moment(algorithm, first.at, more, taken_at.at);
            taken_at.at = joined.unwrap_or(taken_at.last);
            *cost = cost.saturating_add(more);
        }
        true
    }

    /// Lets the waiting requests go on.
    pub(in crate::store) fn wake(&mut self, result: &Result<(), StoreError>) {
        for waiter in self.waiters.drain(..) {
            // The request may have been dropped.
            let _ = waiter.send(result.clone());
        }
    }
}

/// The cost of changes that were admitted.
pub(in crate::store) fn total_cost(changes: &[Change]) -> u64 {
    let costs = changes.iter().map(|change| match change {
        Change::Charge { cost, .. } => *cost,
        _ => 0,
    });
    costs.fold(0, u64::saturating_add)
}

/// Whether a cost of a window or cell counts no more. Costs of other algorithms add up, so none of them
/// can be dropped alone.
fn is_over<A: Portable>(algorithm: &A, change: Change, now: Tick) -> bool {
    let mut state = algorithm.fresh(now);
    let has_cells =
        A::cell_end(algorithm, &state, now) < Tick::MAX && algorithm.facts().limits == 1;
    let Change::Charge { taken_at, .. } = change else {
        return false;
    };
    // Of a cost that is less old, a part may count, which alone is less than one.
    let is_old = now.since(taken_at.last) >= algorithm.quota().period();
    if !has_cells || !is_old {
        return false;
    }
    change.apply(algorithm, &mut state, now);
    algorithm.forgettable_at(&state) <= now
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::{Algorithm, TokenBucket};
    use crate::quota::Quota;

    /// Far more costs than are kept, with and without pauses in which the bucket refills.
    #[test]
    fn costs_of_a_bucket_that_are_put_together_count_as_before() {
        let bucket = TokenBucket::new(Quota::per_second(100));
        for pause in [1_u64, 10_000_000, 30_000_000] {
            let mut key = PendingKey::new("key".into(), Tick::ZERO);
            let mut exact = bucket.fresh(Tick::ZERO);
            let mut now = Tick::from_nanos(1 << 60);
            for step in 0..200 {
                now = Tick::from_nanos(now.as_nanos() + pause * (1 + step % 7));
                let change = Change::Charge {
                    taken_at: now.into(),
                    cost: 1 + step % 3,
                };
                change.apply(&bucket, &mut exact, now);
                key.push(&bucket, change, now);
                assert!(key.unsent.len() <= MAX_CHANGES);
            }
            let mut merged = bucket.fresh(Tick::ZERO);
            for change in &key.unsent {
                change.apply(&bucket, &mut merged, now);
            }
            let reset = |state| bucket.peek(state, now, 0).reset_after.as_nanos();
            let (merged, exact) = (reset(&merged), reset(&exact));
            // Each of them may count a nanosecond later.
            assert!(
                (exact..exact + 200).contains(&merged),
                "{merged}, not {exact}"
            );
        }
    }

    fn charge(at: Tick) -> Change {
        let (taken_at, cost) = (at.into(), 2);
        Change::Charge { taken_at, cost }
    }

    #[test]
    fn refunds_between_costs_are_put_together() {
        let bucket = TokenBucket::new(Quota::per_second(100));
        let mut key = PendingKey::new("key".into(), Tick::ZERO);
        let at = Tick::from_nanos(1 << 60);
        for _ in 0..1_000 {
            let (taken_at, cost) = (at, 1);
            key.push(&bucket, charge(at), at);
            key.push(&bucket, Change::Refund { taken_at, cost }, at);
            assert!(key.unsent.len() <= MAX_CHANGES);
        }
        let mut state = bucket.fresh(at);
        for change in &key.unsent {
            change.apply(&bucket, &mut state, at);
        }
        // 1,000 of 2,000 are kept.
        assert_eq!(bucket.peek(&state, at, 0).reset_after.as_secs(), 10);
    }

    /// Time has returned the cost, so nothing is given back of a later one.
    #[test]
    fn a_late_refund_takes_nothing_from_a_later_cost() {
        let bucket = TokenBucket::new(Quota::per_second(100));
        let mut key = PendingKey::new("key".into(), Tick::ZERO);
        let (early, late) = (
            Tick::from_nanos(1 << 60),
            Tick::from_nanos((1 << 60) + (1 << 40)),
        );
        key.push(&bucket, charge(late), late);
        for _ in 0..20 {
            let (taken_at, cost) = (early, 2);
            key.push(&bucket, Change::Refund { taken_at, cost }, late);
        }
        let mut state = bucket.fresh(late);
        for change in &key.unsent {
            change.apply(&bucket, &mut state, late);
        }
        assert_eq!(bucket.peek(&state, late, 0).remaining(), 98);
    }

    /// Otherwise less would count than was admitted.
    #[test]
    fn no_cost_is_dropped_for_changes_that_cannot_be_put_together() {
        let bucket = TokenBucket::new(Quota::per_second(100));
        let mut key = PendingKey::new("key".into(), Tick::ZERO);
        let at = Tick::from_nanos(1 << 60);
        for _ in 0..50 {
            let (taken_at, cost) = (at, 1);
            key.push(&bucket, charge(at), at);
            key.push(&bucket, Change::Cancel { taken_at, cost }, at);
        }
        assert_eq!(total_cost(&key.unsent), 100);
        assert!(key.unsent.len() <= MAX_CHANGES);
    }
}
