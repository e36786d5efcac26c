//! The moments that were granted in a line, the earliest first.

use super::blocks::Blocks;
use crate::clock::Tick;
use crate::quota::Quota;

#[derive(Debug, Default)]
pub(super) struct Slots {
    moments: Blocks<Tick>,
    /// By how many parts of a nanosecond, of which a quota's limit makes one, each has moved up
    /// beyond its moment. Nothing as long as that is so for none.
    beyond: Blocks<u64>,
}

impl Slots {
    pub(super) const fn is_empty(&self) -> bool {
        self.moments.is_empty()
    }

    pub(super) fn first(&self) -> Option<Tick> {
        self.moments.front().copied()
    }

    #[cfg(all(test, tower_throttle_loom))]
    pub(super) fn iter(&self) -> impl Iterator<Item = Tick> {
        self.moments.iter().copied()
    }

    /// Behind all that are not later.
    pub(super) fn add(&mut self, at: Tick) {
        let last = self.moments.back();
        let place = if last.is_none_or(|last| *last <= at) {
            self.moments.len()
        } else {
            // Two threads may come here in another order than they asked.
            self.moments.partition_point(|one| *one <= at)
        };
        self.moments.insert(place, at);
        if !self.beyond.is_empty() {
            self.beyond.insert(place, 0);
        }
    }

    /// Instead of the last, one before all others, each of which moves a place back.
    pub(super) fn move_up(&mut self, at: Tick) {
        self.moments.push_front(at);
        if !self.beyond.is_empty() {
            self.beyond.push_front(0);
        }
        self.drop_last();
    }

    pub(super) fn drop_last(&mut self) {
        self.moments.pop_back();
        self.beyond.pop_back();
    }

    pub(super) fn remove(&mut self, at: usize) {
        self.moments.remove(at);
        self.beyond.remove(at);
    }

    /// Takes out those that have come by `now`, at most so many; answers how many.
    pub(super) fn take_due(&mut self, now: Tick, most: usize) -> usize {
        let mut due = 0;
        let is_due = |at: &Tick| {
            let is_due = *at <= now && due < most;
            due += usize::from(is_due);
            is_due
        };
        self.moments.take_while(is_due, |_| ());
        if !self.beyond.is_empty() {
            for _ in 0..due {
                self.beyond.pop_front();
            }
        }
        due
    }

    /// Lets the memory of the first so many come.
    pub(super) fn fetch(&self, many: usize) {
        self.moments.fetch(many);
    }

    /// Moves those from `from` on up by what `cost` is worth.
    pub(super) fn shift(&mut self, from: usize, cost: u64, quota: &Quota) {
        while self.beyond.len() < self.moments.len() {
            self.beyond.push_back(0);
        }
        // 64 bits times 63 bits, plus 63 bits.
        let parts = u128::from(cost) * u128::from(quota.period_ns());
        let limit = u128::from(quota.limit());
        let Self { moments, beyond } = self;
        let mut at = from;
        beyond.change(from, |beyond| {
            let all = parts + u128::from(*beyond);
            let ns = u64::try_from(all / limit).unwrap_or(u64::MAX);
            *beyond = u64::try_from(all % limit).unwrap_or_default();
            if let Some(moment) = moments.get_mut(at) {
                *moment = Tick::from_nanos(moment.as_nanos().saturating_sub(ns));
            }
            at += 1;
        });
    }

    /// Puts another moment in the place of each.
    pub(super) fn replan(&mut self, mut plan: impl FnMut(Tick) -> Tick) {
        self.moments.change(0, |at| *at = plan(*at));
        self.beyond = Blocks::default();
    }
}
