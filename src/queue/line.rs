//! The line of one key: its waiters, in order, and when each is released. No lock, clock or I/O.
//!
//! # Slots
//! A slot is a time at which the limiter allows a waiter to be released. Waiters and slots are kept in
//! separate lists. Waiters are released in the order of the line, in whatever order the limiter
//! granted the slots. Each is released at a slot that was granted for a cost equal to its own; it may
//! be the slot of another waiter.
//!
//! If a waiter is removed, the limiter gets its cost back and the waiters behind it move up:
//! - If all costs are equal, each takes the slot of the one before it. That is exact for every
//!   algorithm and any number of limits; see [`UniformQueue`].
//! - If costs differ, the slots behind it move earlier by the time in which the limit refills the
//!   cost: the cost times the period, divided by the limit. This is known if there is a single
//!   quota; see [`MixedQueue`].
//! - With several quotas that time is unknown. The slots stay and the cost is not refunded. Some
//!   capacity is unused, but no limit is exceeded.
//!
//! # Ranks
//! A waiter is found by its rank. A released waiter is no longer in the line, so a rank that is not
//! found is taken as released. The owner must not ask again after it was removed or got an outcome.
//! While all waiters join at the back and none is shed, the line publishes the rank of the last one
//! released ([`LineStatus`]). Then a waiter can see without a lock that it was released.
//!
//! # Timers
//! A timer fires for the earliest slot. Its handler releases all waiters that are due and wakes
//! each of them once, so no waiter depends on another one being polled. The module `guard` arms the
//! timers. It looks at [`Line::next_slot`] after each change.

mod moves;
mod shed;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use super::Precedence;
use super::mixed::MixedQueue;
use super::outcome::{CostOutcome, WaitOutcome};
use super::uniform::UniformQueue;
use super::waiters::{Rank, Ranks};
use crate::clock::Tick;
use crate::quota::Quota;
use crate::sync::{AtomicU64, Ordering};

/// The most waiters that are released while the lock is held once. Their wakers take 1 KiB, a size
/// that allocators serve from a cache.
const RELEASE_BATCH: usize = 64;

#[derive(Debug)]
pub(super) struct Line {
    queue: Queue,
    ranks: Ranks,
    /// Waiters that were removed to make room for other requests and have not been polled since, with
    /// the time to wait before a retry. Their costs are refunded already.
    shed: BTreeMap<Rank, Duration>,
    status: Arc<LineStatus>,
    /// Whether every waiter so far joined behind all others and none was shed. Once false, it stays false,
    /// and no rank is published any more.
    is_fifo: bool,
}

#[derive(Debug)]
enum Queue {
    Uniform(UniformQueue),
    Mixed(Box<MixedQueue>),
}

/// What the owner of a position sees of its line without a lock.
#[derive(Debug)]
pub(super) struct LineStatus {
    pub(super) line_id: u64,
    /// Every waiter up to this rank was released or removed. Zero is below every rank. It rises only
    /// while the line is FIFO, and a new waiter that overtakes others sets it to zero.
    released_up_to: AtomicU64,
}

impl LineStatus {
    /// Whether the waiter of this rank is known to have been released.
    #[inline]
    pub(super) fn has_released(&self, rank: Rank) -> bool {
        rank <= self.released_up_to.load(Ordering::Acquire)
    }
}

/// Calls a method that both kinds of queue have.
macro_rules! dispatch {
    ($queue:expr, $name:ident => $body:expr) => {
        match $queue {
            Queue::Uniform($name) => $body,
            Queue::Mixed($name) => $body,
        }
    };
}

impl Line {
    pub(super) fn new(line_id: u64) -> Self {
        Self {
            queue: Queue::Uniform(UniformQueue::default()),
            ranks: Ranks::default(),
            shed: BTreeMap::new(),
            status: Arc::new(LineStatus {
                line_id,
                released_up_to: AtomicU64::new(0),
            }),
            is_fifo: true,
        }
    }

    pub(super) const fn status(&self) -> &Arc<LineStatus> {
        &self.status
    }

    /// Whether the waiter of this rank waits, or was shed and has not been polled since.
    pub(super) fn contains(&self, rank: Rank) -> bool {
        dispatch!(&self.queue, queue => queue.contains(rank)) || self.shed.contains_key(&rank)
    }

    /// The number of waiters, without those that were shed.
    pub(super) fn len(&self) -> usize {
        dispatch!(&self.queue, queue => queue.len())
    }

    #[cfg(all(test, tower_throttle_loom))]
    pub(super) fn slots(&self) -> Vec<Tick> {
        dispatch!(&self.queue, queue => queue.iter().collect())
    }

    /// Whether the line can be dropped.
    pub(super) fn is_unused(&self) -> bool {
        self.len() == 0 && self.shed.is_empty()
    }

    /// When the next waiter is released.
    pub(super) fn next_slot(&self) -> Option<Tick> {
        dispatch!(&self.queue, queue => queue.first())
    }

    /// When the last waiter is released.
    pub(super) fn last_slot(&self) -> Option<Tick> {
        dispatch!(&self.queue, queue => queue.last())
    }

    /// Whether no waiter is behind this rank.
    pub(super) fn is_last(&self, rank: Rank) -> bool {
        match &self.queue {
            Queue::Uniform(queue) => queue.is_last(rank),
            Queue::Mixed(queue) => queue.last_rank().is_none_or(|last| last <= rank),
        }
    }

    /// Adds a waiter to which the limiter has granted `slot`.
    pub(super) fn join(&mut self, cost: u64, slot: Tick, place: Precedence) -> Rank {
        let (rank, is_last) = self.ranks.give(place);
        if !is_last {
            // The new rank may be lower than the published one: then it would look released.
            self.is_fifo = false;
            self.status.released_up_to.store(0, Ordering::Release);
        }
        if self.len() == 0 {
            self.queue = Queue::Uniform(UniformQueue::new(cost));
        }
        match &mut self.queue {
            Queue::Uniform(queue) if queue.cost == cost => queue.join(rank, slot),
            _ => self.as_mixed().join(rank, cost, slot),
        }
        rank
    }

    /// The queue as one whose costs may differ. It is converted if it is not.
    fn as_mixed(&mut self) -> &mut MixedQueue {
        if let Queue::Uniform(queue) = &mut self.queue {
            let (cost, has_overtaken) = (queue.cost, queue.has_overtaken);
            let (waiters, slots) = std::mem::take(queue).into_parts();
            let queue = MixedQueue::new(cost, has_overtaken, waiters, slots);
            self.queue = Queue::Mixed(Box::new(queue));
        }
        match &mut self.queue {
            Queue::Mixed(queue) => queue,
            Queue::Uniform(_) => unreachable!("the queue was converted"),
        }
    }

    /// Releases the waiters that are due, at most [`RELEASE_BATCH`], and moves their wakers to
    /// `wakers`. If more are due, [`next_slot`](Self::next_slot) is not later than `now`.
    pub(super) fn release(&mut self, now: Tick, wakers: &mut Vec<Waker>) {
        let last = dispatch!(&mut self.queue, queue => queue.release(now, RELEASE_BATCH, wakers));
        if let (true, Some(last)) = (self.is_fifo, last) {
            self.status.released_up_to.store(last, Ordering::Release);
        }
    }

    /// Returns the outcome if the waiter of this rank was released or shed; its rank must not be used
    /// again. Otherwise stores `waker` and returns `None`. A waker that is replaced goes to
    /// `stale_waker`, for the caller to drop once it holds no lock.
    pub(super) fn poll_waiter(
        &mut self,
        rank: Rank,
        waker: &Waker,
        stale_waker: &mut Option<Waker>,
    ) -> Option<WaitOutcome> {
        let Some(stored) = dispatch!(&mut self.queue, queue => queue.waker_mut(rank)) else {
            let shed = self.shed.remove(&rank);
            return Some(shed.map_or(WaitOutcome::Released, WaitOutcome::Shed));
        };
        if !stored
            .as_ref()
            .is_some_and(|stored| stored.will_wake(waker))
        {
            *stale_waker = stored.replace(waker.clone());
        }
        None
    }

    /// Removes the waiter of this rank. The line must [contain](Self::contains) it. The waiters behind
    /// it move up, if it is known how far. `quota` returns the limiter's quota if it has exactly one,
    /// and is called only if costs differ.
    ///
    /// Returns whether the caller must refund the cost to the limiter. The cost of a shed waiter is
    /// refunded already.
    pub(super) fn remove(
        &mut self,
        rank: Rank,
        quota: impl Fn() -> Option<Quota>,
        stale_waker: &mut Option<Waker>,
    ) -> CostOutcome {
        let removed = match &mut self.queue {
            Queue::Uniform(queue) => queue.remove(rank).map(|waker| (CostOutcome::Refund, waker)),
            Queue::Mixed(queue) => queue.remove(rank, &quota),
        };
        let Some((outcome, waker)) = removed else {
            self.shed.remove(&rank);
            return CostOutcome::Keep;
        };
        *stale_waker = waker;
        outcome
    }
}

#[cfg(all(test, not(tower_throttle_loom)))]
mod tests;
