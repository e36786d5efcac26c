//! The slots granted in a line of equal costs, earliest first.

use super::chunked_deque::ChunkedDeque;
use crate::clock::Tick;

#[derive(Debug, Default)]
pub(super) struct Slots(ChunkedDeque<Tick>);

impl Slots {
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn first(&self) -> Option<Tick> {
        self.0.front().copied()
    }

    pub(super) fn last(&self) -> Option<Tick> {
        self.0.back().copied()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Tick> {
        (0..self.0.len()).filter_map(|at| self.0.get(at).copied())
    }

    /// Inserts a slot after all that are not later.
    pub(super) fn insert(&mut self, slot: Tick) {
        // Two threads may arrive in another order than the limiter decided in.
        let at = match self.last() {
            Some(last) if last > slot => self.0.partition_point(|one| *one <= slot),
            _ => self.0.len(),
        };
        self.0.insert(at, slot);
    }

    /// Inserts a slot before all others and removes the last one.
    pub(super) fn push_front_pop_back(&mut self, slot: Tick) {
        self.0.push_front(slot);
        self.pop_last();
    }

    pub(super) fn pop_last(&mut self) {
        self.0.pop_back();
    }

    /// Removes the slots that have come by `now`, at most `most`. Returns how many.
    pub(super) fn take_due(&mut self, now: Tick, most: usize) -> usize {
        let mut due = 0;
        let is_due = |slot: &Tick| {
            let is_due = *slot <= now && due < most;
            due += usize::from(is_due);
            is_due
        };
        self.0.take_while(is_due, |_| ());
        due
    }

    /// Prefetches the first `many` slots.
    pub(super) fn prefetch(&self, many: usize) {
        self.0.prefetch(many);
    }

    /// Replaces each slot.
    pub(super) fn reschedule(&mut self, new_slot: impl Fn(Tick) -> Tick) {
        self.0.for_each_from(0, |slot| *slot = new_slot(*slot));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_sorted_and_taken_when_they_are_due() {
        let (mut slots, mut model) = (Slots::default(), Vec::new());
        let mut random = 3_u64;
        for _ in 0..20_000 {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let (what, at) = (random >> 60, random >> 40 & 0xffff);
            match what {
                0..=6 => {
                    slots.insert(Tick::from_nanos(at));
                    model.insert(model.partition_point(|one| *one <= at), at);
                }
                7 if !model.is_empty() => {
                    let first = model[0] / 2;
                    slots.push_front_pop_back(Tick::from_nanos(first));
                    model.insert(0, first);
                    model.pop();
                }
                8 => {
                    slots.pop_last();
                    model.pop();
                }
                9 if at < 2_000 => {
                    slots.reschedule(|slot| Tick::from_nanos(slot.as_nanos() / 2));
                    for at in &mut model {
                        *at /= 2;
                    }
                }
                13 => {
                    let most = usize::try_from(at % 8).expect("it is small");
                    let due = model.iter().take_while(|one| **one <= at).count().min(most);
                    assert_eq!(slots.take_due(Tick::from_nanos(at), most), due);
                    model.drain(..due);
                }
                _ => {}
            }
            assert!(slots.iter().map(Tick::as_nanos).eq(model.iter().copied()));
            assert_eq!(slots.first().map(Tick::as_nanos), model.first().copied());
            assert_eq!(slots.last().map(Tick::as_nanos), model.last().copied());
            assert_eq!(slots.is_empty(), model.is_empty());
        }
        assert!(model.len() > 1_000, "too little happened");
    }
}
