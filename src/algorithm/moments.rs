//! The moments of costs, oldest first.

use std::collections::VecDeque;

use super::fields::Fields;
use crate::clock::Tick;

/// The first capacity. It doubles.
const MIN_CAPACITY: usize = 4;

/// Costs that count for a period from their moment on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Moments {
    /// Each moment with its cost, which is not zero.
    entries: VecDeque<(u64, u64)>,
    /// The sum of all costs, at most 2^63 - 1.
    total: u64,
    /// The newest moment, even if its cost was given back. An older one counts as this one, because what had
    /// expired by then is gone.
    pub(super) seen: u64,
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

    /// The cost from `place` on.
    pub(super) fn cost_from(&self, place: usize) -> u64 {
        let before = self.entries.range(..place).map(|(_, cost)| cost);
        self.total - before.sum::<u64>()
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
        if enough == self.cost_from(place) {
            return self.newest().filter(|_| enough > 0);
        }
        let mut sum = 0;
        let mut entries = self.entries.range(place..);
        let found = entries.find(|(_, cost)| {
            sum += cost;
            sum >= enough
        });
        found.map(|(at, _)| *at)
    }

    /// Drops the first `count` moments.
    pub(super) fn drop_oldest(&mut self, count: usize) {
        if count > 0 {
            self.total = self.cost_from(count);
            self.entries.drain(..count);
            if self.entries.capacity() / 8 >= self.len().max(MIN_CAPACITY) {
                // There were more, under an earlier quota or more traffic.
                let enough = self.len().next_power_of_two();
                self.entries.shrink_to(enough.max(MIN_CAPACITY));
            }
        }
    }

    /// Adds a cost.
    pub(super) fn add(&mut self, now: u64, cost: u64) {
        self.seen = self.seen.max(now);
        self.total += cost;
        match self.entries.back_mut() {
            Some(last) if last.0 >= self.seen => last.1 += cost,
            _ => self.entries.push_back((self.seen, cost)),
        }
    }

    /// Adds a cost to the newest moment, which becomes `now` if that is later.
    pub(super) fn join(&mut self, now: u64, cost: u64) {
        self.seen = self.seen.max(now);
        if let Some(last) = self.entries.back_mut() {
            *last = (last.0.max(now), last.1 + cost);
            self.total += cost;
        }
    }

    /// Takes back `cost` of the moments up to `latest`, newest first. The first `kept` moments stay.
    pub(super) fn take_back(&mut self, kept: usize, latest: u64, cost: u64) {
        let end = self.entries.partition_point(|(at, _)| *at <= latest);
        let (mut end_of_rest, mut left) = (end.max(kept), cost);
        for (_, held) in self.entries.range_mut(kept..end.max(kept)).rev() {
            let given = left.min(*held);
            *held -= given;
            left -= given;
            if *held > 0 {
                break;
            }
            end_of_rest -= 1;
        }
        self.total -= cost - left;
        self.entries.drain(end_of_rest..end.max(kept));
    }

    /// Lists them: the newest moment, and each with its cost.
    pub(super) fn list(&mut self, fields: &mut Fields<'_>) {
        let listed = std::mem::take(&mut self.entries);
        let (mut len, mut last) = (listed.len(), 0);
        self.total = 0;
        fields.moment(&mut self.seen);
        fields.len(&mut len);
        for place in 0..len {
            let (mut at, mut cost) = listed.get(place).copied().unwrap_or_default();
            fields.moment(&mut at);
            fields.count(&mut cost);
            self.total = self.total.saturating_add(cost);
            fields.require(last <= at && at <= self.seen);
            fields.require(cost > 0 && self.total <= Tick::MAX.as_nanos());
            last = at;
            match self.entries.back_mut() {
                // Moments before the zero of this clock are its zero, and those after its end are its end.
                Some(newest) if newest.0 >= at => newest.1 = newest.1.saturating_add(cost),
                _ => self.entries.push_back((at, cost)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the capacity is at most `factor` times what so many moments take.
    fn is_small(moments: &Moments, len: usize, factor: usize) -> bool {
        moments.entries.capacity() <= factor * (2 * len).max(MIN_CAPACITY)
    }

    #[test]
    fn unused_capacity_is_released() {
        let mut moments = Moments::default();
        (0..1_000).for_each(|at| moments.add(at, 1));
        assert!(is_small(&moments, 1_000, 1));
        moments.drop_oldest(995);
        assert!(is_small(&moments, 5, 1));
    }
}
