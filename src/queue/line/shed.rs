//! Room in a full line: which waiters a new request replaces that goes before them.

use std::iter::repeat_n;
use std::task::Waker;
use std::time::Duration;

use super::{Line, Queue};
use crate::clock::Tick;
use crate::queue::Precedence;
use crate::quota::Quota;

impl Line {
    /// The costs of the waiters that repeated calls of [`shed`](Self::shed) would remove for a request
    /// of `cost`, in the order of removal. Only those that it would go before. At most one if costs
    /// differ: one waiter of the same cost makes enough room.
    pub(in crate::queue) fn costs_to_shed(
        &self,
        cost: u64,
        place: Precedence,
        quota: impl FnOnce() -> Option<Quota>,
    ) -> impl Iterator<Item = u64> {
        let rank = self.ranks.peek(place);
        match &self.queue {
            Queue::Uniform(queue) => repeat_n(queue.cost, queue.behind(rank)),
            Queue::Mixed(queue) => repeat_n(cost, queue.removable_behind(rank, cost, quota)),
        }
    }

    /// Removes a waiter to make room for a request of `cost`. The waiters behind it move up.
    ///
    /// If all waiters have the same cost, removes the last one. Otherwise removes the last one whose
    /// cost is `cost`, if there is one. So waiters of a rare cost are not removed for requests of
    /// other costs. The waiter's outcome says to retry after `retry_after`.
    pub(in crate::queue) fn shed(
        &mut self,
        cost: u64,
        retry_after: Duration,
        quota: impl Fn() -> Option<Quota>,
        wakers: &mut Vec<Waker>,
    ) {
        let removed = match &mut self.queue {
            Queue::Uniform(queue) => queue.pop_back(),
            Queue::Mixed(queue) => queue.last_removable_of(cost, &quota).and_then(|rank| {
                let (_, waker) = queue.remove(rank, &quota)?;
                Some((rank, waker))
            }),
        };
        if let Some((rank, waker)) = removed {
            // No rank is published any more: if a later one were, this one would look released.
            self.is_fifo = false;
            self.shed.insert(rank, retry_after);
            wakers.extend(waker);
        }
    }

    /// Removes the waiter that would be released last and returns its slot, if all costs are `cost` and
    /// the new request goes before it.
    pub(in crate::queue) fn shed_equal(
        &mut self,
        cost: u64,
        place: Precedence,
        wait: Duration,
        wakers: &mut Vec<Waker>,
    ) -> Option<Tick> {
        let slot = match &self.queue {
            Queue::Uniform(queue)
                if queue.cost == cost && !queue.is_last(self.ranks.peek(place)) =>
            {
                queue.last()?
            }
            _ => return None,
        };
        self.shed(cost, wait, || None, wakers);
        Some(slot)
    }
}
