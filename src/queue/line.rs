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
//! # Alarms
//! Each waiter has an alarm of its own in its future, set for the slot that it had when it was last
//! polled. Whichever rings, all who are due go. Slots move up while alarms do not, but only the
//! first in line matters: if its alarm is set later than its slot, it is woken to set it anew. That
//! is one wake-up, and the alarm another: two at most for each request that goes.

use std::collections::VecDeque;
use std::task::Waker;
use std::time::Duration;

use super::Order;
use super::list::List;
use crate::clock::Tick;
use crate::quota::Quota;

#[derive(Debug, Default)]
pub(super) struct Line {
    waiters: List<Waiter>,
    /// As many as there are waiters in order.
    slots: VecDeque<Slot>,
    /// What each of them costs, if it is the same for all.
    cost: Option<u64>,
}

#[derive(Debug)]
struct Waiter {
    waker: Option<Waker>,
    cost: u64,
    stands: Stands,
    /// While it waits, when its alarm rings; when its turn has come, the slot that it got.
    when: Tick,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stands {
    Waiting,
    /// Its turn has come; its owner has not seen that yet.
    Called,
    /// It was sent away to make room. The limiter has been told.
    Shed(Duration),
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    at: Tick,
    /// Parts of a nanosecond, of which a quota's limit makes one, by which it has moved up beyond
    /// `at`.
    rest: u64,
}

/// What a waiter is told that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Come,
    /// Ask again at that moment, or when woken.
    Wait(Tick),
    /// It has lost its place to somebody newer; there may be room again after this long.
    Shed(Duration),
}

/// What becomes of the cost of a waiter that leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// The limiter is to get it back: those behind have moved up.
    Refund,
    /// It is gone.
    Keep,
}

impl Line {
    /// How many wait.
    pub(super) const fn len(&self) -> usize {
        self.waiters.len()
    }

    #[cfg(all(test, tower_throttle_loom))]
    pub(super) fn slots(&self) -> Vec<Tick> {
        self.slots.iter().map(|slot| slot.at).collect()
    }

    /// Whether nobody needs it any longer.
    pub(super) const fn is_deserted(&self) -> bool {
        self.waiters.is_deserted()
    }

    /// A place for a request to which the limiter has granted `slot`.
    pub(super) fn join(
        &mut self,
        cost: u64,
        slot: Tick,
        order: Order,
        woken: &mut Vec<Waker>,
    ) -> usize {
        match (self.len(), self.cost) {
            (0, _) => self.cost = Some(cost),
            (_, Some(same)) if same == cost => {}
            _ => self.cost = None,
        }
        // Nearly always the last: two threads may come here in another order than they asked.
        let later = self.slots.iter().rev().take_while(|one| one.at > slot);
        let place = self.slots.len() - later.count();
        self.slots.insert(place, Slot { at: slot, rest: 0 });
        let waiter = |when| Waiter {
            waker: None,
            cost,
            stands: Stands::Waiting,
            when,
        };
        let at = match order {
            Order::Oldest => {
                let last = self.slots.back().map_or(slot, |last| last.at);
                self.waiters.push_back(waiter(last))
            }
            Order::Newest => {
                let first = self.slots.front().map_or(slot, |first| first.at);
                self.waiters.push_front(waiter(first))
            }
        };
        self.wake_first(woken);
        at
    }

    /// Calls all whose turn has come.
    pub(super) fn release(&mut self, now: Tick, woken: &mut Vec<Waker>) {
        let mut called = false;
        while self.slots.front().is_some_and(|slot| slot.at <= now) {
            let (Some(slot), Some(at)) = (self.slots.pop_front(), self.waiters.front()) else {
                break;
            };
            self.waiters.unlink(at);
            if let Some(waiter) = self.waiters.get_mut(at) {
                waiter.stands = Stands::Called;
                // An alarm that rings now wakes it anyway.
                if waiter.when > now {
                    woken.extend(waiter.waker.take());
                }
                waiter.when = slot.at;
            }
            called = true;
        }
        if called {
            self.wake_first(woken);
        }
    }

    /// Wakes the first in line if its alarm is set too late.
    fn wake_first(&mut self, woken: &mut Vec<Waker>) {
        let (Some(slot), Some(at)) = (self.slots.front(), self.waiters.front()) else {
            return;
        };
        if let Some(first) = self.waiters.get_mut(at) {
            if first.when > slot.at {
                first.when = slot.at;
                woken.extend(first.waker.take());
            }
        }
    }

    /// Asks for the waiter at `at`, who will be woken by `waker`. Its place is free again unless it
    /// is told to wait.
    pub(super) fn ask(
        &mut self,
        at: usize,
        now: Tick,
        waker: &mut Option<Waker>,
        gone: &mut Option<Waker>,
        woken: &mut Vec<Waker>,
    ) -> Turn {
        self.release(now, woken);
        let first = self.waiters.front() == Some(at);
        let Some(waiter) = self.waiters.get_mut(at) else {
            return Turn::Come;
        };
        let turn = match waiter.stands {
            Stands::Called => Turn::Come,
            Stands::Shed(wait) => Turn::Shed(wait),
            Stands::Waiting => {
                // The old one is dropped by the caller, who holds no lock then.
                std::mem::swap(&mut waiter.waker, waker);
                if let (true, Some(slot)) = (first, self.slots.front()) {
                    waiter.when = slot.at;
                } else if waiter.when <= now {
                    // It was overtaken. It will be woken when it is the first.
                    waiter.when = Tick::MAX;
                }
                return Turn::Wait(waiter.when);
            }
        };
        self.clear(at, gone);
        turn
    }

    /// Gives up the place at `at`. The waker is left to the caller to drop.
    fn clear(&mut self, at: usize, gone: &mut Option<Waker>) {
        *gone = self.waiters.take(at).and_then(|waiter| waiter.waker);
    }

    /// Takes the waiter at `at` out; everyone behind moves up. `quota` is asked only where costs
    /// differ, and answers if a single one says it all.
    pub(super) fn leave(
        &mut self,
        at: usize,
        quota: impl FnOnce() -> Option<Quota>,
        gone: &mut Option<Waker>,
        woken: &mut Vec<Waker>,
    ) -> Left {
        let Some(waiter) = self.waiters.get(at) else {
            return Left::Keep;
        };
        let (cost, when) = (waiter.cost, waiter.when);
        let left = match waiter.stands {
            Stands::Shed(_) => Left::Keep,
            // It was called and did not come: another may go in its stead.
            Stands::Called => self.move_up(cost, when, quota),
            Stands::Waiting => {
                let last = self.waiters.back() == Some(at);
                if last || self.cost.is_some() {
                    self.slots.pop_back();
                    Left::Refund
                } else {
                    let rank = self.waiters.rank(at);
                    self.slots.remove(rank);
                    match quota() {
                        Some(quota) => {
                            self.shift(rank, cost, &quota);
                            Left::Refund
                        }
                        None => Left::Keep,
                    }
                }
            }
        };
        self.clear(at, gone);
        self.wake_first(woken);
        left
    }

    /// Gives everyone in line the benefit of a cost that was taken for `slot`, before any of them,
    /// and is now given back.
    pub(super) fn move_up(
        &mut self,
        cost: u64,
        slot: Tick,
        quota: impl FnOnce() -> Option<Quota>,
    ) -> Left {
        if self.slots.is_empty() {
            return Left::Refund;
        }
        if self.cost == Some(cost) {
            self.slots.push_front(Slot { at: slot, rest: 0 });
            self.slots.pop_back();
            return Left::Refund;
        }
        match quota() {
            Some(quota) => {
                self.shift(0, cost, &quota);
                Left::Refund
            }
            None => Left::Keep,
        }
    }

    /// Moves the slots from `rank` on up by what `cost` is worth.
    fn shift(&mut self, rank: usize, cost: u64, quota: &Quota) {
        // 64 bits times 63 bits, plus 63 bits.
        let parts = u128::from(cost) * u128::from(quota.period_ns());
        let limit = u128::from(quota.limit());
        for slot in self.slots.range_mut(rank..) {
            let all = parts + u128::from(slot.rest);
            let ns = u64::try_from(all / limit).unwrap_or(u64::MAX);
            slot.at = Tick::from_nanos(slot.at.as_nanos().saturating_sub(ns));
            slot.rest = u64::try_from(all % limit).unwrap_or_default();
        }
    }

    /// Sends the one away that would go last, and answers what it cost.
    pub(super) fn shed(&mut self, wait: Duration, woken: &mut Vec<Waker>) -> Option<u64> {
        let at = self.waiters.back()?;
        self.waiters.unlink(at);
        self.slots.pop_back();
        let waiter = self.waiters.get_mut(at)?;
        waiter.stands = Stands::Shed(wait);
        woken.extend(waiter.waker.take());
        Some(waiter.cost)
    }

    /// Plans anew for a quota that has changed: who waits has as many units before it as before, at
    /// the new pace.
    pub(super) fn replan(&mut self, now: Tick, from: &Quota, to: &Quota, woken: &mut Vec<Waker>) {
        for slot in &mut self.slots {
            let span = slot.at.as_nanos().saturating_sub(now.as_nanos());
            let at = now.as_nanos().saturating_add(scaled(span, from, to));
            *slot = Slot {
                at: Tick::from_nanos(at),
                rest: 0,
            };
        }
        self.release(now, woken);
        self.wake_first(woken);
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
