//! The moments of costs, oldest first.

use std::collections::VecDeque;

use super::fields::Fields;
use crate::clock::Tick;

/// The first capacity. It doubles.
const MIN_CAPACITY: usize = 4;

/// Costs that count for a period from their moment on.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Moments {
    /// Each moment with the sum of all costs up to it, modulo 2^64. So the cost between two moments is a
    /// subtraction, and the moment at which a sum is reached is found by a binary search.
    entries: VecDeque<(u64, u64)>,
    /// The sum of the costs that were dropped; 0 if all were.
    dropped: u64,
    /// The newest moment, even if its cost was given back. An older one counts as this one, because what had
    /// expired by then is gone.
    pub(super) seen: u64,
}

/// Manual impl: a copy keeps the capacity, so that it grows in the same steps.
impl Clone for Moments {
    fn clone(&self) -> Self {
        let mut entries = VecDeque::with_capacity(self.entries.capacity());
        entries.extend(&self.entries);
        Self { entries, ..*self }
    }
}

impl Moments {
    /// How many distinct moments there are.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The newest moment whose cost counts.
    pub(super) fn newest(&self) -> Option<u64> {
        self.entries.back().map(|(at, _)| *at)
    }

    /// The sum of all costs before `place`.
    fn before(&self, place: usize) -> u64 {
        match place.checked_sub(1) {
            Some(last) => self.entries[last].1,
            None => self.dropped,
        }
    }

    /// The cost from `place` on.
    pub(super) fn cost_from(&self, place: usize) -> u64 {
        self.before(self.len()).wrapping_sub(self.before(place))
    }

    /// How many moments are at least `period` old. On a busy key the oldest one is usually not.
    pub(super) fn expired(&self, now: u64, period: u64) -> usize {
        let is_expired = |(at, _): &(u64, u64)| at + period <= now;
        match self.entries.front() {
            Some(oldest) if is_expired(oldest) => self.entries.partition_point(is_expired),
            _ => 0,
        }
    }

    /// The moment that completes `enough` cost, counted from `place` on.
    pub(super) fn completes(&self, place: usize, enough: u64) -> Option<u64> {
        let since = |sum: u64| sum.wrapping_sub(self.dropped);
        let target = since(self.before(place)).saturating_add(enough);
        let found = self
            .entries
            .partition_point(|(_, sum)| since(*sum) < target);
        self.entries.get(found).map(|(at, _)| *at)
    }

    /// Drops the first `count` moments.
    pub(super) fn drop_oldest(&mut self, count: usize) {
        if count > 0 {
            let is_rest = count < self.len();
            self.dropped = if is_rest { self.before(count) } else { 0 };
            self.entries.drain(..count);
            if self.entries.capacity() / 8 >= self.len().max(MIN_CAPACITY) {
                // There were more, under an earlier quota or more traffic.
                let enough = self.len().next_power_of_two();
                self.entries.shrink_to(enough.max(MIN_CAPACITY));
            }
        }
    }

    /// Drops all of them, and their memory.
    pub(super) fn clear(&mut self) {
        (self.entries, self.dropped) = (VecDeque::new(), 0);
    }

    /// Adds a cost.
    pub(super) fn add(&mut self, now: u64, cost: u64) {
        self.seen = self.seen.max(now);
        let sum = self.before(self.len()).wrapping_add(cost);
        match self.entries.back_mut() {
            Some(last) if last.0 >= self.seen => last.1 = sum,
            _ => self.entries.push_back((self.seen, sum)),
        }
    }

    /// Adds a cost to the newest moment, which becomes `now` if that is later.
    pub(super) fn join(&mut self, now: u64, cost: u64) {
        self.seen = self.seen.max(now);
        if let Some(last) = self.entries.back_mut() {
            *last = (last.0.max(now), last.1.wrapping_add(cost));
        }
    }

    /// Takes back `cost` of the moments up to `latest`, newest first. The first `kept` moments stay.
    pub(super) fn take_back(&mut self, kept: usize, latest: u64, cost: u64) {
        let end = self.entries.partition_point(|(at, _)| *at <= latest);
        let (mut place, mut left) = (end, cost);
        while left > 0 && place > kept {
            let (before, sum) = (self.before(place - 1), self.entries[place - 1].1);
            let held = sum.wrapping_sub(before);
            if held > left {
                self.entries[place - 1].1 = sum.wrapping_sub(left);
                left = 0;
            } else {
                left -= held;
                place -= 1;
            }
        }
        self.entries.drain(place..end.max(place));
        let given = cost - left;
        for (_, sum) in self.entries.range_mut(place..) {
            *sum = sum.wrapping_sub(given);
        }
    }

    /// Lists them: the newest moment, and for each how much later than the one before it is, and its cost.
    pub(super) fn list(&mut self, fields: &mut Fields<'_>) {
        let listed = std::mem::take(self);
        let mut len = listed.len();
        self.seen = listed.seen;
        fields.count(&mut self.seen);
        fields.len(&mut len);
        let (mut last, mut sum) = (0, 0);
        for place in 0..len {
            let entry = listed.entries.get(place);
            let (mut later, mut cost) = entry.map_or((0, 0), |(at, sum)| {
                (at - last, sum.wrapping_sub(listed.before(place)))
            });
            fields.count(&mut later);
            fields.count(&mut cost);
            let is_later = place == 0 || later > 0;
            fields.require(is_later && later <= self.seen - last);
            fields.require(cost > 0 && cost <= Tick::MAX.as_nanos() - sum);
            if fields.has_failed() {
                return;
            }
            (last, sum) = (last + later, sum + cost);
            let at = fields.moved().moment(last);
            match self.entries.back_mut() {
                // Moments before the zero of this clock are its zero, and those after its end are its end.
                Some(newest) if newest.0 >= at => newest.1 = sum,
                _ => self.entries.push_back((at, sum)),
            }
        }
        self.seen = fields.moved().moment(self.seen);
    }

    /// The bytes on the heap.
    pub(super) fn heap_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<(u64, u64)>()
    }

    /// An upper bound of [`heap_bytes`](Self::heap_bytes) for up to `limit` moments.
    pub(super) fn max_heap_bytes(limit: u64) -> usize {
        let len = usize::try_from(limit).unwrap_or(usize::MAX);
        let capacity = len.checked_next_power_of_two().unwrap_or(usize::MAX);
        let bytes = size_of::<(u64, u64)>();
        capacity.max(MIN_CAPACITY).saturating_mul(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each moment with its cost.
    fn costs(moments: &Moments) -> Vec<(u64, u64)> {
        let costs = (0..moments.len()).map(|place| {
            let (at, sum) = moments.entries[place];
            (at, sum.wrapping_sub(moments.before(place)))
        });
        costs.collect()
    }

    #[test]
    fn moments_behave_like_a_list() {
        let mut seed = 7_u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        let (mut moments, mut list) = (Moments::default(), Vec::<(u64, u64)>::new());
        let mut longest = 0;
        for step in 0..30_000_u64 {
            if list.is_empty() {
                // Sums wrap around.
                moments.dropped = u64::MAX - 50;
            }
            // It grows and shrinks in turns.
            match random(if step / 100 % 2 == 0 { 5 } else { 9 }) {
                0..=3 => {
                    moments.add(step, step % 7 + 1);
                    list.push((step, step % 7 + 1));
                }
                4 => {
                    let (latest, cost) = (step.saturating_sub(random(12)), random(9));
                    moments.take_back(0, latest, cost);
                    let mut left = cost;
                    for (_, held) in list.iter_mut().rev().filter(|(at, _)| *at <= latest) {
                        let given = left.min(*held);
                        (*held, left) = (*held - given, left - given);
                    }
                    list.retain(|(_, held)| *held > 0);
                }
                _ => {
                    let gone = moments.expired(step, 10);
                    assert_eq!(gone, list.iter().filter(|(at, _)| at + 10 <= step).count());
                    moments.drop_oldest(gone);
                    list.drain(..gone);
                }
            }
            longest = longest.max(list.len());
            assert_eq!(costs(&moments), list);
            let total = list.iter().map(|(_, held)| held).sum::<u64>();
            assert_eq!(moments.cost_from(0), total);
            assert_eq!(moments.completes(0, total + 1), None);
            assert_eq!(
                moments.completes(0, total),
                list.last().map(|(at, _)| *at).filter(|_| total > 0)
            );
            assert!(moments.heap_bytes() <= 8 * Moments::max_heap_bytes(longest as u64));
            assert_eq!(moments.clone().heap_bytes(), moments.heap_bytes());
        }
    }

    #[test]
    fn unused_capacity_is_released() {
        let mut moments = Moments::default();
        (0..1_000).for_each(|at| moments.add(at, 1));
        assert_eq!(moments.heap_bytes(), Moments::max_heap_bytes(1_000));
        moments.drop_oldest(995);
        assert!(moments.heap_bytes() <= Moments::max_heap_bytes(5));
    }
}
