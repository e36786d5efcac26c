//! The moments that were granted in a line, the earliest first.

use super::chunked_deque::ChunkedDeque;
use crate::clock::Tick;
use crate::quota::Quota;

#[derive(Debug, Default)]
pub(super) struct Slots {
    moments: ChunkedDeque<Tick>,
    /// By how many parts of a nanosecond, of which a quota's limit makes one, each has moved up
    /// beyond its moment. Nothing as long as that is so for none.
    beyond: ChunkedDeque<u64>,
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
        self.pop_last();
    }

    pub(super) fn pop_last(&mut self) {
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
    pub(super) fn reschedule(&mut self, mut plan: impl FnMut(Tick) -> Tick) {
        self.moments.change(0, |at| *at = plan(*at));
        self.beyond = ChunkedDeque::default();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Against moments that carry their parts with them.
    #[test]
    fn slots_keep_their_remainders() {
        const PERIOD: u64 = 1_000_000_007;
        const LIMIT: u64 = 9;

        let quota = Quota::per(LIMIT, Duration::from_nanos(PERIOD));
        let (mut slots, mut model) = (Slots::default(), Vec::<(u64, u64)>::new());
        let (mut random, mut shifted) = (3_u64, 0);
        for _ in 0..20_000 {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let (what, which) = (random >> 60, random >> 40 & 0xffff);
            let place = usize::try_from(which).expect("it is small") % (model.len() + 1);
            let at = (100 + which) * PERIOD;
            match what {
                0..=6 => {
                    slots.add(Tick::from_nanos(at));
                    model.insert(model.partition_point(|one| one.0 <= at), (at, 0));
                }
                7 if !model.is_empty() => {
                    let first = model[0].0;
                    slots.move_up(Tick::from_nanos(first));
                    model.insert(0, (first, 0));
                    model.pop();
                }
                8 => {
                    slots.pop_last();
                    model.pop();
                }
                9 if place < model.len() => {
                    slots.remove(place);
                    model.remove(place);
                }
                10 | 11 => {
                    slots.shift(place, what, &quota);
                    for (at, rest) in model.iter_mut().skip(place) {
                        let all = what * PERIOD + *rest;
                        (*at, *rest) = (at.saturating_sub(all / LIMIT), all % LIMIT);
                        shifted += *rest;
                    }
                }
                12 if which < 20_000 => {
                    slots.reschedule(|at| at);
                    for (_, rest) in &mut model {
                        *rest = 0;
                    }
                }
                13 => {
                    let (now, most) = (50 * PERIOD + at / 4, place % 8);
                    let due = model.iter().take_while(|one| one.0 <= now).count();
                    assert_eq!(slots.take_due(Tick::from_nanos(now), most), due.min(most));
                    model.drain(..due.min(most));
                }
                _ => {}
            }
            let moments: Vec<u64> = slots.moments.iter().map(|at| at.as_nanos()).collect();
            let known: Vec<u64> = model.iter().map(|one| one.0).collect();
            assert_eq!(moments, known);
            if !slots.beyond.is_empty() {
                assert!(slots.beyond.iter().eq(model.iter().map(|one| &one.1)));
            }
            // As the lines do, which never let one behind come before one in front.
            if !known.is_sorted() {
                (slots, model) = (Slots::default(), Vec::new());
            }
        }
        assert!(shifted > 1_000, "too little happened");
    }
}
