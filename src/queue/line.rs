//! The line of one key: who waits, in order, and when they go. No lock, no clock, no I/O.
//!
//! # Slots
//! The limiter has granted each waiting request a moment. Here the moments and the requests are two
//! lists: `slots`, the earliest first, and `waiters` in the order in which they go. The n-th waiter
//! has the n-th slot. So whoever comes later goes later, whatever the limiter said to whom, and
//! nobody goes before a moment that the limiter granted.
//!
//! When a waiter leaves, the limiter gets its cost back and grants the moment after the last one
//! once more. So it is the *last* slot that is dropped, and everyone behind has the slot of the one
//! before. With an equal cost for all that is exact for every algorithm and any number of limits,
//! and it takes no time: no slot is touched but the last.
//!
//! Where costs differ, all behind go earlier by what the refund is worth, cost x t, which one quota
//! tells; what is below a nanosecond is carried. Where costs differ and several limits have their
//! say, nothing tells what the refund is worth to whom: those behind keep their moments and the
//! limiter gets nothing back. The place is lost, no promise is.
//!
//! # Ranks
//! Who waits is known by a rank. Whoever is called is out of the line: who asks and is not found has
//! been called. Where all go in the order in which they came, nobody need ask the line for that. It
//! shows the rank of the last one it called on a board, which they all can see; so of the many who
//! are released at one time none needs the lock.
//!
//! # Alarms
//! An alarm of the line rings for its earliest slot; whoever hears it calls all who are due, and
//! each of them is woken once. So nobody depends on another being polled. That alarms are set is
//! the business of `lines`, which looks at [`Line::next`] after each change.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use super::Order;
use super::slots::Slots;
use super::waiters::{Rank, Waiters};
use crate::clock::Tick;
use crate::quota::Quota;
use crate::sync::{AtomicU64, Ordering};

/// So many are called before others get the lock: a kilobyte of wakers, which allocators have at
/// hand.
const RELEASE_BATCH: usize = 64;

#[derive(Debug)]
pub(super) struct Line {
    waiters: Waiters,
    /// As many as there are waiters.
    slots: Slots,
    /// What each of them costs, if it is the same for all.
    cost: Option<u64>,
    /// Who was sent away to make room and has not seen that yet. The limiter has been told.
    shed: BTreeMap<Rank, Duration>,
    board: Arc<LineStatus>,
    /// Whether all have gone, or will, in the order in which they came.
    orderly: bool,
}

/// What those who stand in a line see of it without holding it.
#[derive(Debug)]
pub(super) struct LineStatus {
    /// The name of the line.
    pub(super) line: u64,
    /// Up to this rank everybody was called. In a line that is not orderly nobody is called by it.
    called: AtomicU64,
}

/// What a waiter is told that need wait no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitOutcome {
    Released,
    /// It has lost its place to somebody newer; there may be room again after this long.
    Shed(Duration),
}

/// What becomes of the cost of a waiter that leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CostOutcome {
    /// The limiter is to get it back: those behind have moved up.
    Refund,
    /// It is gone.
    Keep,
}

impl LineStatus {
    /// Whether the one of this rank has been called, as far as one can see from outside.
    #[inline]
    pub(super) fn calls(&self, rank: Rank) -> bool {
        rank <= self.called.load(Ordering::Acquire)
    }
}

impl Line {
    pub(super) fn new(line: u64) -> Self {
        Self {
            waiters: Waiters::default(),
            slots: Slots::default(),
            cost: None,
            shed: BTreeMap::new(),
            board: Arc::new(LineStatus {
                line,
                // Below every rank.
                called: AtomicU64::new(0),
            }),
            orderly: true,
        }
    }

    pub(super) const fn board(&self) -> &Arc<LineStatus> {
        &self.board
    }

    /// Whether the one of this rank waits, or was sent away and has not seen it.
    pub(super) fn holds(&self, rank: Rank) -> bool {
        self.waiters.find(rank).is_some() || self.shed.contains_key(&rank)
    }

    /// How many wait.
    pub(super) const fn len(&self) -> usize {
        self.waiters.len()
    }

    #[cfg(all(test, tower_throttle_loom))]
    pub(super) fn slots(&self) -> Vec<Tick> {
        self.slots.iter().collect()
    }

    /// Whether nobody needs it any longer.
    pub(super) fn is_unused(&self) -> bool {
        self.len() == 0 && self.shed.is_empty()
    }

    /// When the next one goes.
    pub(super) fn next(&self) -> Option<Tick> {
        self.slots.first()
    }

    /// A place for a request to which the limiter has granted `slot`.
    pub(super) fn join(&mut self, cost: u64, slot: Tick, order: Order) -> Rank {
        match (self.len(), self.cost) {
            (0, _) => self.cost = Some(cost),
            (_, Some(same)) if same == cost => {}
            _ => self.cost = None,
        }
        self.slots.add(slot);
        match (order, self.cost) {
            // A moment is granted for a cost: only a request of the same may take it over.
            (Order::Newest, Some(_)) => {
                self.orderly = false;
                self.waiters.push_front()
            }
            _ => self.waiters.push_back(),
        }
    }

    /// Calls those whose turn has come, or the first of them if they are many; then
    /// [`next`](Self::next) has come too.
    pub(super) fn release(&mut self, now: Tick, woken: &mut Vec<Waker>) {
        let due = self.slots.take_due(now, RELEASE_BATCH);
        if due == 0 {
            return;
        }
        // Of few sizes, so that it is one that was given back before.
        woken.reserve(due.next_power_of_two());
        let last = self.waiters.take(due, woken);
        // As many will be due the next time.
        self.slots.fetch(due);
        self.waiters.fetch(due);
        if let (true, Some(last)) = (self.orderly, last) {
            self.board.called.store(last, Ordering::Release);
        }
    }

    /// Wakes everybody, to look for themselves.
    pub(super) fn wake_all(&mut self, woken: &mut Vec<Waker>) {
        self.waiters.wake_all(woken);
    }

    /// Asks for the one of this rank, who is done with the line if there is an answer; otherwise it
    /// will be woken by `waker`. What is not needed of the wakers is left in `gone`, for the caller
    /// to drop, who holds no lock then.
    pub(super) fn ask(
        &mut self,
        rank: Rank,
        waker: &Waker,
        gone: &mut Option<Waker>,
    ) -> Option<WaitOutcome> {
        let Some(at) = self.waiters.find(rank) else {
            return Some(
                self.shed
                    .remove(&rank)
                    .map_or(WaitOutcome::Released, WaitOutcome::Shed),
            );
        };
        match self.waiters.waker(at) {
            Some(Some(known)) if known.will_wake(waker) => {}
            Some(known) => *gone = known.replace(waker.clone()),
            None => {}
        }
        None
    }

    /// Takes the one of this rank out, whom the line [holds](Self::holds); everyone behind moves up.
    /// `quota` is asked only where costs differ, and answers if a single one says it all.
    pub(super) fn leave(
        &mut self,
        rank: Rank,
        cost: u64,
        quota: impl FnOnce() -> Option<Quota>,
        gone: &mut Option<Waker>,
    ) -> CostOutcome {
        let Some(at) = self.waiters.find(rank) else {
            self.shed.remove(&rank);
            return CostOutcome::Keep;
        };
        let left = if self.cost.is_some() || self.waiters.is_last(at) {
            self.slots.pop_last();
            CostOutcome::Refund
        } else {
            let before = self.waiters.before(at);
            self.slots.remove(before);
            match quota() {
                Some(quota) => {
                    self.slots.shift(before, cost, &quota);
                    CostOutcome::Refund
                }
                None => CostOutcome::Keep,
            }
        };
        *gone = self.waiters.remove(at);
        left
    }

    /// Gives everyone in line the benefit of a cost that was taken for `slot`, before any of them,
    /// and is now given back.
    pub(super) fn move_up(
        &mut self,
        cost: u64,
        slot: Tick,
        quota: impl FnOnce() -> Option<Quota>,
    ) -> CostOutcome {
        if self.slots.is_empty() {
            return CostOutcome::Refund;
        }
        if self.cost == Some(cost) {
            self.slots.move_up(slot);
            return CostOutcome::Refund;
        }
        match quota() {
            Some(quota) => {
                self.slots.shift(0, cost, &quota);
                CostOutcome::Refund
            }
            None => CostOutcome::Keep,
        }
    }

    /// Sends the one away that would go last, and answers what it cost. Where costs differ that may
    /// be the newest, and nobody is.
    pub(super) fn shed(&mut self, wait: Duration, woken: &mut Vec<Waker>) -> Option<u64> {
        let cost = self.cost?;
        let (rank, waker) = self.waiters.pop_back()?;
        self.orderly = false;
        self.slots.pop_last();
        self.shed.insert(rank, wait);
        woken.extend(waker);
        Some(cost)
    }

    /// Plans anew for a quota that has changed: who waits has as many units before it as before, at
    /// the new pace.
    pub(super) fn reschedule(
        &mut self,
        now: Tick,
        from: &Quota,
        to: &Quota,
        woken: &mut Vec<Waker>,
    ) {
        self.slots.reschedule(|slot| {
            let span = slot.as_nanos().saturating_sub(now.as_nanos());
            Tick::from_nanos(now.as_nanos().saturating_add(scaled(span, from, to)))
        });
        self.release(now, woken);
    }
}

/// The time that what takes `span` at one pace takes at another; rounded up.
fn scaled(span: u64, from: &Quota, to: &Quota) -> u64 {
    let mut more = u128::from(to.period_ns()) * u128::from(from.limit());
    let mut less = u128::from(from.period_ns()) * u128::from(to.limit());
    // At most 2^126 each. What does not fit beside the span is cut, to the later side.
    let excess = (u128::BITS - more.leading_zeros()).saturating_sub(u64::BITS - 1);
    if excess > 0 {
        more = (more >> excess) + 1;
        less >>= excess;
    }
    (u128::from(span) * more)
        .checked_div(less)
        .map_or(u64::MAX, |whole| {
            let left_over = u128::from(span) * more % less > 0;
            u64::try_from(whole + u128::from(left_over)).unwrap_or(u64::MAX)
        })
}
