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
//! An alarm of the line rings for its earliest slot; whoever hears it calls all who are due, and
//! each of them is woken once. So nobody depends on another being polled. That alarms are set is
//! the business of `lines`, which looks at [`Line::next`] after each change.

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
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stands {
    Waiting,
    /// Its turn, of this slot, has come; its owner has not seen that yet.
    Called(Tick),
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

/// What a waiter is told that need wait no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Come,
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

    /// When the next one goes.
    pub(super) fn next(&self) -> Option<Tick> {
        self.slots.front().map(|slot| slot.at)
    }

    /// A place for a request to which the limiter has granted `slot`.
    pub(super) fn join(&mut self, cost: u64, slot: Tick, order: Order) -> u32 {
        match (self.len(), self.cost) {
            (0, _) => self.cost = Some(cost),
            (_, Some(same)) if same == cost => {}
            _ => self.cost = None,
        }
        // Nearly always the last: two threads may come here in another order than they asked.
        let later = self.slots.iter().rev().take_while(|one| one.at > slot);
        let place = self.slots.len() - later.count();
        self.slots.insert(place, Slot { at: slot, rest: 0 });
        let waiter = Waiter {
            waker: None,
            cost,
            stands: Stands::Waiting,
        };
        match (order, self.cost) {
            // A moment is granted for a cost: only a request of the same may take it over.
            (Order::Newest, Some(_)) => self.waiters.push_front(waiter),
            _ => self.waiters.push_back(waiter),
        }
    }

    /// Calls all whose turn has come.
    pub(super) fn release(&mut self, now: Tick, woken: &mut Vec<Waker>) {
        if self.slots.front().is_none_or(|slot| slot.at > now) {
            return;
        }
        let due = self.slots.iter().take_while(|slot| slot.at <= now).count();
        woken.reserve(due);
        for _ in 0..due {
            let (Some(slot), Some(at)) = (self.slots.pop_front(), self.waiters.front()) else {
                break;
            };
            self.waiters.unlink(at);
            if let Some(waiter) = self.waiters.get_mut(at) {
                waiter.stands = Stands::Called(slot.at);
                woken.extend(waiter.waker.take());
            }
        }
    }

    /// Wakes everybody, to look for themselves.
    pub(super) fn wake_all(&mut self, woken: &mut Vec<Waker>) {
        woken.extend(
            self.waiters
                .values_mut()
                .filter_map(|waiter| waiter.waker.take()),
        );
    }

    /// Asks for the waiter at `at`, whose place is free again if there is an answer; otherwise it will
    /// be woken by `waker`. What is not needed of the wakers is left in `gone`, for the caller to
    /// drop, who holds no lock then.
    pub(super) fn ask(&mut self, at: u32, waker: &Waker, gone: &mut Option<Waker>) -> Option<Turn> {
        let Some(waiter) = self.waiters.get_mut(at) else {
            return Some(Turn::Come);
        };
        let turn = match waiter.stands {
            Stands::Called(_) => Turn::Come,
            Stands::Shed(wait) => Turn::Shed(wait),
            Stands::Waiting => {
                match &mut waiter.waker {
                    Some(known) if known.will_wake(waker) => {}
                    known => *gone = known.replace(waker.clone()),
                }
                return None;
            }
        };
        self.clear(at, gone);
        Some(turn)
    }

    /// Gives up the place at `at`. The waker is left to the caller to drop.
    fn clear(&mut self, at: u32, gone: &mut Option<Waker>) {
        *gone = self.waiters.take(at).and_then(|waiter| waiter.waker);
    }

    /// Takes the waiter at `at` out; everyone behind moves up. `quota` is asked only where costs
    /// differ, and answers if a single one says it all.
    pub(super) fn leave(
        &mut self,
        at: u32,
        quota: impl FnOnce() -> Option<Quota>,
        gone: &mut Option<Waker>,
    ) -> Left {
        let Some(waiter) = self.waiters.get(at) else {
            return Left::Keep;
        };
        let cost = waiter.cost;
        let left = match waiter.stands {
            Stands::Shed(_) => Left::Keep,
            // It was called and did not come: another may go in its stead.
            Stands::Called(slot) => self.move_up(cost, slot, quota),
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

    /// Sends the one away that would go last, and answers what it cost. Where costs differ that may
    /// be the newest, and nobody is.
    pub(super) fn shed(&mut self, wait: Duration, woken: &mut Vec<Waker>) -> Option<u64> {
        self.cost?;
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
