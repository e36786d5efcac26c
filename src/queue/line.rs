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

use std::iter::repeat_n;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use super::Order;
use super::mixed::MixedQueue;
use super::outcome::{CostOutcome, WaitOutcome};
use super::sorted_map::SortedMap;
use super::uniform::UniformQueue;
use super::waiters::{Rank, Ranks};
use crate::clock::{Tick, nanos};
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
    shed: SortedMap<Duration>,
    status: Arc<LineStatus>,
    /// Whether every waiter so far joined at the back and none was shed. Never becomes true again.
    /// Ranks are published only while it is true.
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
    /// Every waiter up to this rank was released or removed. Starts at zero, which is below every
    /// rank. It does not rise once the line is no longer FIFO, and a new waiter at the front sets it
    /// to zero.
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
            shed: SortedMap::default(),
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
        dispatch!(&self.queue, queue => queue.contains(rank)) || self.shed.contains(rank)
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
        self.len() == 0 && self.shed.len() == 0
    }

    /// When the next waiter is released.
    pub(super) fn next_slot(&self) -> Option<Tick> {
        dispatch!(&self.queue, queue => queue.first())
    }

    /// When the last waiter is released.
    pub(super) fn last_slot(&self) -> Option<Tick> {
        dispatch!(&self.queue, queue => queue.last())
    }

    /// Adds a waiter to which the limiter has granted `slot`.
    pub(super) fn join(&mut self, cost: u64, slot: Tick, order: Order) -> Rank {
        let rank = match order {
            Order::Oldest => self.ranks.back(),
            Order::Newest => {
                // The new rank is lower than the published one, so it would look released.
                self.is_fifo = false;
                self.status.released_up_to.store(0, Ordering::Release);
                self.ranks.front()
            }
        };
        if self.len() == 0 {
            self.queue = Queue::Uniform(UniformQueue::new(cost));
        }
        match &mut self.queue {
            Queue::Uniform(queue) if queue.cost == cost => queue.join(rank, slot, order),
            _ => self.as_mixed().join(rank, cost, slot, order),
        }
        rank
    }

    /// The queue as one whose costs may differ. It is converted if it is not.
    fn as_mixed(&mut self) -> &mut MixedQueue {
        if let Queue::Uniform(queue) = &mut self.queue {
            let cost = queue.cost;
            let (waiters, slots) = std::mem::take(queue).into_parts();
            let queue = MixedQueue::new(cost, self.is_fifo, waiters, slots);
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

    /// Moves the wakers of all waiters to `wakers`.
    pub(super) fn take_wakers(&mut self, wakers: &mut Vec<Waker>) {
        dispatch!(&mut self.queue, queue => queue.take_wakers(wakers));
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
            let shed = self.shed.remove(rank);
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
    /// it move up if the time that its cost is worth is known. `quota` returns the limiter's quota if
    /// it has exactly one, and is called only if costs differ.
    ///
    /// Returns whether the caller must refund the cost to the limiter. A shed waiter's is refunded
    /// already.
    pub(super) fn remove(
        &mut self,
        rank: Rank,
        quota: impl FnOnce() -> Option<Quota>,
        stale_waker: &mut Option<Waker>,
    ) -> CostOutcome {
        let removed = match &mut self.queue {
            Queue::Uniform(queue) => queue.remove(rank).map(|waker| (CostOutcome::Refund, waker)),
            Queue::Mixed(queue) => queue.remove(rank, quota),
        };
        let Some((outcome, waker)) = removed else {
            self.shed.remove(rank);
            return CostOutcome::Keep;
        };
        *stale_waker = waker;
        outcome
    }

    /// Applies the refund of a cost that was taken before the cost of any waiter, for `slot`. Moves
    /// all waiters up and returns `Refund`. If costs differ and there is no single quota, moves none
    /// and returns `Keep`.
    pub(super) fn apply_refund(
        &mut self,
        cost: u64,
        slot: Tick,
        quota: impl FnOnce() -> Option<Quota>,
    ) -> CostOutcome {
        if self.len() == 0 {
            return CostOutcome::Refund;
        }
        if let Queue::Uniform(queue) = &mut self.queue {
            if queue.cost == cost {
                queue.move_up(slot);
                return CostOutcome::Refund;
            }
        }
        match quota() {
            Some(quota) => {
                self.as_mixed().shift_earlier(cost, &quota);
                CostOutcome::Refund
            }
            None => CostOutcome::Keep,
        }
    }

    /// Moves all slots earlier by `span`.
    pub(super) fn shift_earlier(&mut self, span: Duration) {
        let cost = nanos(span);
        if cost > 0 {
            let per_nano = Quota::per(1, Duration::from_nanos(1));
            self.as_mixed().shift_earlier(cost, &per_nano);
        }
    }

    /// The costs of the waiters that repeated calls of [`shed`](Self::shed) would remove for a request
    /// of `cost`, in the order of removal. At most one if costs differ: one waiter of the same cost
    /// makes enough room.
    pub(super) fn costs_to_shed(
        &self,
        cost: u64,
        quota: impl FnOnce() -> Option<Quota>,
    ) -> impl Iterator<Item = u64> {
        match &self.queue {
            Queue::Uniform(queue) => repeat_n(queue.cost, queue.len()),
            Queue::Mixed(queue) => repeat_n(
                cost,
                usize::from(queue.last_removable_of(cost, quota).is_some()),
            ),
        }
    }

    /// Removes a waiter to make room for a request of `cost`. The waiters behind it move up.
    ///
    /// If all waiters have the same cost, removes the last one. Otherwise removes the last one whose
    /// cost is `cost`, if there is one. So waiters of a rare cost are not removed for requests of
    /// other costs. The waiter's outcome says to retry after `retry_after`.
    pub(super) fn shed(
        &mut self,
        cost: u64,
        retry_after: Duration,
        quota: impl Fn() -> Option<Quota>,
        wakers: &mut Vec<Waker>,
    ) {
        let removed = match &mut self.queue {
            Queue::Uniform(queue) => queue.pop_back(),
            Queue::Mixed(queue) => queue.last_removable_of(cost, &quota).and_then(|rank| {
                let (_, waker) = queue.remove(rank, quota)?;
                Some((rank, waker))
            }),
        };
        if let Some((rank, waker)) = removed {
            // Stops publishing ranks: this one would look released when a later one is.
            self.is_fifo = false;
            self.shed.insert(rank, retry_after);
            wakers.extend(waker);
        }
    }

    /// Removes the waiter that is released last, if all costs are `cost`. Returns its slot.
    pub(super) fn shed_equal(
        &mut self,
        cost: u64,
        wait: Duration,
        wakers: &mut Vec<Waker>,
    ) -> Option<Tick> {
        let slot = match &self.queue {
            Queue::Uniform(queue) if queue.cost == cost => queue.last()?,
            _ => return None,
        };
        self.shed(cost, wait, || None, wakers);
        Some(slot)
    }

    /// Reschedules all waiters for a quota that has changed, then [releases](Self::release) those that
    /// are due. The cost ahead of each waiter stays the same and is refilled at the new rate.
    pub(super) fn reschedule(
        &mut self,
        now: Tick,
        from: &Quota,
        to: &Quota,
        wakers: &mut Vec<Waker>,
    ) {
        let new_slot = |slot: Tick| {
            let span = slot.as_nanos().saturating_sub(now.as_nanos());
            Tick::from_nanos(now.as_nanos().saturating_add(rescale_span(span, from, to)))
        };
        dispatch!(&mut self.queue, queue => queue.reschedule(new_slot));
        self.release(now, wakers);
    }
}

/// Converts `span` from the rate of `from` to the rate of `to`, rounded up:
/// span * (to.period / to.limit) / (from.period / from.limit).
fn rescale_span(span: u64, from: &Quota, to: &Quota) -> u64 {
    let mut numerator = u128::from(to.period_ns()) * u128::from(from.limit());
    let mut denominator = u128::from(from.period_ns()) * u128::from(to.limit());
    // At most 2^126 each. If `span * numerator` could exceed 128 bits, both are shifted right. The
    // numerator is rounded up and the denominator down, so the result is never too early.
    let excess = (u128::BITS - numerator.leading_zeros()).saturating_sub(u64::BITS - 1);
    if excess > 0 {
        numerator = (numerator >> excess) + 1;
        denominator >>= excess;
    }
    (u128::from(span) * numerator)
        .checked_div(denominator)
        .map_or(u64::MAX, |whole| {
            let left_over = u128::from(span) * numerator % denominator > 0;
            u64::try_from(whole + u128::from(left_over)).unwrap_or(u64::MAX)
        })
}

#[cfg(all(test, not(tower_throttle_loom), not(tower_throttle_shuttle)))]
mod tests {
    use super::*;
    use crate::queue::wake::tests::TestWaker;

    fn tick(ns: u64) -> Tick {
        Tick::from_nanos(ns)
    }

    /// A line with a waiter of each of these costs, a nanosecond per unit.
    fn line(costs: &[u64], order: Order) -> (Line, Vec<Rank>) {
        let mut line = Line::new(1);
        let mut next_slot = 1;
        let join = |cost: &u64| {
            let rank = line.join(*cost, tick(next_slot), order);
            next_slot += cost;
            rank
        };
        let ranks = costs.iter().map(join).collect();
        (line, ranks)
    }

    #[expect(
        clippy::unnecessary_wraps,
        reason = "the closure that the line takes returns an option"
    )]
    fn quota() -> Option<Quota> {
        Some(Quota::per(1, Duration::from_nanos(1)))
    }

    #[test]
    fn a_waiter_polled_with_a_new_waker_is_woken_by_it() {
        for costs in [[1, 1], [1, 2]] {
            let (mut line, ranks) = line(&costs, Order::Oldest);
            let [old, new] = [TestWaker::new(), TestWaker::new()];
            let mut stale = None;
            for waker in [&old, &new] {
                let waker = Waker::from(Arc::clone(waker));
                assert_eq!(line.poll_waiter(ranks[0], &waker, &mut stale), None);
            }
            // The old waker is handed out, to be dropped without a lock.
            assert!(stale.is_some_and(|stale| stale.will_wake(&Arc::clone(&old).into())));
            let mut wakers = Vec::new();
            line.release(tick(1), &mut wakers);
            wakers.into_iter().for_each(Waker::wake);
            assert_eq!((old.count(), new.count()), (0, 1));
        }
    }

    #[test]
    fn the_newest_rank_does_not_count_as_released_in_a_line_that_was_fifo() {
        let (mut line, ranks) = line(&[1, 1, 1], Order::Oldest);
        line.release(tick(1), &mut Vec::new());
        let status = Arc::clone(line.status());
        assert!(status.has_released(ranks[0]) && !status.has_released(ranks[1]));
        let newest = line.join(1, tick(4), Order::Newest);
        assert!(!status.has_released(newest), "it would go at once");
        line.release(tick(2), &mut Vec::new());
        assert!(!line.contains(newest) && line.contains(ranks[1]));
    }

    #[test]
    fn one_odd_cost_leaves_the_others_last_come_first_served() {
        let (mut line, ranks) = line(&[1, 1, 5, 1, 1], Order::Newest);
        let mut released = Vec::new();
        for now in 1..=9 {
            line.release(tick(now), &mut Vec::new());
            for (index, rank) in ranks.iter().enumerate() {
                if !line.contains(*rank) && !released.contains(&index) {
                    released.push(index);
                }
            }
        }
        // The slots of cost 1 are 1, 2, 8 and 9. The slot of cost 5 is 3.
        assert_eq!(released, [4, 3, 2, 1, 0]);
    }

    /// A waiter that a poll finds released without the lock has left the line.
    #[test]
    fn no_waiter_in_the_line_looks_released() {
        for costs in [&[1, 1, 1, 1][..], &[1, 1, 5, 1, 1], &[2, 1, 3, 1]] {
            for (order, sheds) in [
                (Order::Oldest, true),
                (Order::Newest, false),
                (Order::Newest, true),
            ] {
                let (mut line, mut ranks) = line(costs, Order::Oldest);
                ranks.push(line.join(1, tick(30), order));
                ranks.push(line.join(1, tick(31), order));
                if sheds {
                    line.shed(1, Duration::from_secs(1), quota, &mut Vec::new());
                }
                ranks.push(line.join(1, tick(32), order));
                let status = Arc::clone(line.status());
                for now in 0..=32 {
                    line.release(tick(now), &mut Vec::new());
                    let mut waits = ranks.iter().filter(|rank| line.contains(**rank));
                    let early = waits.find(|rank| status.has_released(**rank));
                    assert_eq!(early, None, "at {now} of {costs:?}, {order:?}");
                }
                assert_eq!(line.len(), 0);
            }
        }
    }

    /// If the steps per removal grew with the length, this test would take minutes.
    #[test]
    fn removal_time_does_not_grow_with_the_length_if_costs_differ() {
        let costs: Vec<_> = (0..40_000).map(|index| 1 + index % 2).collect();
        for order in [Order::Oldest, Order::Newest] {
            let (mut line, ranks) = line(&costs, order);
            for rank in &ranks[1..39_999] {
                let outcome = line.remove(*rank, quota, &mut None);
                assert_eq!(outcome, CostOutcome::Refund);
            }
            assert_eq!(line.len(), 2);
            // Only the cost of the first waiter is left ahead of the last one.
            assert_eq!(line.next_slot(), Some(tick(1)));
            assert_eq!(line.last_slot(), Some(tick(2)));
        }
    }

    #[test]
    fn a_request_replaces_the_last_one_of_its_cost_where_costs_differ() {
        let (mut line, ranks) = line(&[1, 1, 5, 1], Order::Newest);
        let to_shed: Vec<_> = line.costs_to_shed(5, quota).collect();
        assert_eq!(to_shed, [5]);
        assert_eq!(line.costs_to_shed(7, quota).count(), 0);
        // The slot of cost 5 is not the last one, so its removal moves others, which needs a quota.
        assert_eq!(line.costs_to_shed(5, || None).count(), 0);
        assert_eq!(line.costs_to_shed(1, || None).count(), 1);
        line.shed(1, Duration::from_secs(3), quota, &mut Vec::new());
        assert_eq!(line.len(), 3);
        let shed = line.poll_waiter(ranks[0], Waker::noop(), &mut None);
        assert_eq!(shed, Some(WaitOutcome::Shed(Duration::from_secs(3))));
    }

    #[test]
    fn a_line_that_was_mixed_and_emptied_uses_new_ranks() {
        let (mut line, ranks) = line(&[1, 2], Order::Oldest);
        line.shed(2, Duration::from_secs(1), quota, &mut Vec::new());
        line.release(tick(1), &mut Vec::new());
        assert!(line.len() == 0 && !line.is_unused());
        let next = line.join(3, tick(9), Order::Oldest);
        assert!(!ranks.contains(&next));
        assert!(line.contains(next) && line.contains(ranks[1]));
        line.release(tick(9), &mut Vec::new());
        assert!(!line.is_unused(), "the shed waiter was not polled");
        assert!(
            line.poll_waiter(ranks[1], Waker::noop(), &mut None)
                .is_some()
        );
        assert!(line.is_unused());
    }

    #[test]
    fn moving_slots_by_no_time_keeps_the_costs_equal() {
        let (mut line, _) = line(&[1, 1, 1], Order::Oldest);
        line.shift_earlier(Duration::ZERO);
        // A line of different costs would remove one waiter at most.
        assert_eq!(line.costs_to_shed(2, || None).count(), 3);
        assert_eq!(line.last_slot(), Some(tick(3)));
    }

    #[test]
    fn a_waiter_of_another_cost_is_not_shed_as_an_equal_one() {
        let (mut line, _) = line(&[1, 1], Order::Oldest);
        let mut shed = |cost| line.shed_equal(cost, Duration::ZERO, &mut Vec::new());
        assert_eq!(shed(2), None);
        assert_eq!(shed(1), Some(tick(2)));
        assert_eq!(line.len(), 1);
    }

    #[test]
    fn the_wakers_of_all_waiters_are_taken_once() {
        for costs in [[1, 1, 1], [1, 2, 1]] {
            let (mut line, ranks) = line(&costs, Order::Oldest);
            for rank in &ranks[..2] {
                assert_eq!(line.poll_waiter(*rank, Waker::noop(), &mut None), None);
            }
            let mut wakers = Vec::new();
            line.take_wakers(&mut wakers);
            assert_eq!(wakers.len(), 2, "one waiter was never polled");
            line.take_wakers(&mut wakers);
            assert_eq!((wakers.len(), line.len()), (2, 3));
        }
    }

    #[test]
    fn a_span_is_converted_exactly_and_rounded_up() {
        let quota = |limit, period| Quota::per(limit, Duration::from_nanos(period));
        for (from_limit, from_period) in [(1, 1), (3, 7), (8, 3)] {
            for (to_limit, to_period) in [(1, 1), (2, 5), (9, 4)] {
                let (from, to) = (quota(from_limit, from_period), quota(to_limit, to_period));
                for span in 0..100 {
                    let exact = (span * to_period * from_limit).div_ceil(from_period * to_limit);
                    assert_eq!(rescale_span(span, &from, &to), exact, "{from} to {to}");
                }
            }
        }
    }

    /// The products of limit and period take more than 64 bits.
    #[test]
    fn a_span_between_large_quotas_is_never_converted_to_less() {
        let quota = |limit| Quota::per(limit, Duration::from_nanos(1 << 50));
        let (large, smaller) = (quota(1 << 62), quota(3 << 60));
        // Three quarters, and not more than 2 above.
        let exact = (u128::from(u64::MAX) * 3).div_ceil(4);
        let converted = u128::from(rescale_span(u64::MAX, &smaller, &large));
        assert!((exact..=exact + 2).contains(&converted), "{converted}");
        // More than 64 bits.
        assert_eq!(rescale_span(u64::MAX, &large, &smaller), u64::MAX);
        // The ratio is 4, and what is lost by the shift is rounded up.
        let quarter = quota(1 << 60);
        assert_eq!(rescale_span(1 << 40, &large, &quarter), (1 << 42) + 1);
    }
}
