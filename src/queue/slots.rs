//! The slots granted in a line of equal costs, earliest first.

use super::chunked_deque::ChunkedDeque;
use super::shift::{Parts, Shift};
use crate::clock::Tick;
use crate::quota::Quota;

#[derive(Debug, Default)]
pub(super) struct Slots {
    slots: ChunkedDeque<Tick>,
    /// The base of each slot. Empty until the first shift: then each base is zero.
    bases: ChunkedDeque<Parts>,
    shift: Shift,
}

impl Slots {
    pub(super) const fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub(super) fn first(&self) -> Option<Tick> {
        self.get(0)
    }

    pub(super) fn last(&self) -> Option<Tick> {
        self.get(self.slots.len().checked_sub(1)?)
    }

    fn get(&self, at: usize) -> Option<Tick> {
        let slot = *self.slots.get(at)?;
        let base = self.bases.get(at).map_or(0, |base| *base);
        Some(self.shift.apply(slot, self.shift.total - base))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Tick> {
        (0..self.slots.len()).filter_map(|at| self.get(at))
    }

    /// Inserts a slot after all that are not later.
    pub(super) fn insert(&mut self, slot: Tick) {
        let mut at = self.slots.len();
        if self.last().is_some_and(|last| last > slot) {
            // Two threads may arrive in another order than the limiter decided in.
            let (mut low, mut high) = (0, at);
            while low < high {
                let middle = low.midpoint(high);
                if self.get(middle).is_some_and(|one| one <= slot) {
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
            at = low;
        }
        self.slots.insert(at, slot);
        if !self.bases.is_empty() || self.shift.total > 0 {
            self.bases.insert(at, self.shift.total);
        }
    }

    /// Inserts a slot before all others and removes the last one.
    pub(super) fn push_front_pop_back(&mut self, slot: Tick) {
        self.slots.push_front(slot);
        if !self.bases.is_empty() {
            self.bases.push_front(self.shift.total);
        }
        self.pop_last();
    }

    pub(super) fn pop_last(&mut self) {
        self.slots.pop_back();
        self.bases.pop_back();
    }

    /// Removes the slots that have come by `now`, at most `most`. Returns how many.
    pub(super) fn take_due(&mut self, now: Tick, most: usize) -> usize {
        let mut due = 0;
        if self.bases.is_empty() {
            let is_due = |slot: &Tick| {
                let is_due = *slot <= now && due < most;
                due += usize::from(is_due);
                is_due
            };
            self.slots.take_while(is_due, |_| ());
            return due;
        }
        while due < most && self.first().is_some_and(|first| first <= now) {
            self.slots.pop_front();
            self.bases.pop_front();
            due += 1;
        }
        due
    }

    /// Prefetches the first `many` slots.
    pub(super) fn prefetch(&self, many: usize) {
        self.slots.prefetch(many);
    }

    /// Moves every slot earlier by what `cost` is worth.
    pub(super) fn shift_earlier(&mut self, cost: u64, quota: &Quota) {
        let worth = Shift::worth(cost, quota);
        if !self.shift.can_add(worth, quota) {
            self.reschedule(|slot| slot);
        }
        while self.bases.len() < self.slots.len() {
            self.bases.push_back(self.shift.total);
        }
        self.shift.add(worth, quota);
    }

    /// Replaces each slot.
    pub(super) fn reschedule(&mut self, plan: impl Fn(Tick) -> Tick) {
        let Self {
            slots,
            bases,
            shift,
        } = self;
        let mut at = 0;
        slots.for_each_from(0, |slot| {
            let base = bases.get(at).map_or(0, |base| *base);
            *slot = plan(shift.apply(*slot, shift.total - base));
            at += 1;
        });
        self.bases = ChunkedDeque::default();
        self.shift = Shift::default();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Against slots that carry their own remainders.
    #[test]
    fn slots_keep_their_remainders() {
        const PERIOD: u64 = 1_000_000_007;

        let quotas = [9, 7].map(|limit| Quota::per(limit, Duration::from_nanos(PERIOD)));
        let (mut slots, mut model) = (Slots::default(), Vec::<(u64, u64)>::new());
        let (mut random, mut shifted) = (3_u64, 0);
        let mut quota = &quotas[0];
        for _ in 0..20_000 {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let (what, which) = (random >> 60, random >> 40 & 0xffff);
            let at = (100 + which) * PERIOD;
            match what {
                0..=6 => {
                    slots.insert(Tick::from_nanos(at));
                    model.insert(model.partition_point(|one| one.0 <= at), (at, 0));
                }
                7 if !model.is_empty() => {
                    let first = model[0].0;
                    slots.push_front_pop_back(Tick::from_nanos(first));
                    model.insert(0, (first, 0));
                    model.pop();
                }
                8 => {
                    slots.pop_last();
                    model.pop();
                }
                10 | 11 => {
                    if which < 2_000 {
                        // Another quota: remainders are dropped, to the later side.
                        quota = &quotas[usize::try_from(which % 2).expect("it is small")];
                        slots.reschedule(|slot| slot);
                        for slot in &mut model {
                            slot.1 = 0;
                        }
                    }
                    slots.shift_earlier(what, quota);
                    for (at, rest) in &mut model {
                        let all = what * PERIOD + *rest;
                        (*at, *rest) =
                            (at.saturating_sub(all / quota.limit()), all % quota.limit());
                        shifted += *rest;
                    }
                }
                12 if which < 20_000 => {
                    slots.reschedule(|at| at);
                    for slot in &mut model {
                        slot.1 = 0;
                    }
                }
                13 => {
                    let now = 50 * PERIOD + at / 4;
                    let most = usize::try_from(which % 8).expect("it is small");
                    let due = model.iter().take_while(|one| one.0 <= now).count();
                    assert_eq!(slots.take_due(Tick::from_nanos(now), most), due.min(most));
                    model.drain(..due.min(most));
                }
                _ => {}
            }
            let times: Vec<u64> = slots.iter().map(Tick::as_nanos).collect();
            let known: Vec<u64> = model.iter().map(|one| one.0).collect();
            assert_eq!(times, known);
            assert_eq!(slots.last().map(Tick::as_nanos), known.last().copied());
        }
        assert!(shifted > 1_000, "too little happened");
    }

    #[test]
    fn a_shift_beyond_all_bounds_leaves_no_moment_later() {
        let quota = Quota::per(1, Duration::from_nanos(1 << 62));
        let mut slots = Slots::default();
        slots.insert(Tick::from_nanos(1 << 63));
        for _ in 0..9 {
            slots.shift_earlier(u64::MAX, &quota);
            assert_eq!(slots.first(), Some(Tick::ZERO));
        }
    }
}
