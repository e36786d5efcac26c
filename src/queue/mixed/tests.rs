use std::collections::BTreeSet;
use std::time::Duration;

use super::*;

/// The same in plain lists: slots with their remainders, costs, and waiters by rank.
#[derive(Default)]
struct Model {
    slots: Vec<(u64, u128)>,
    costs: Vec<u64>,
    waiters: Vec<(Rank, u64)>,
    lifo: BTreeSet<u64>,
}

impl Model {
    fn join(&mut self, rank: Rank, cost: u64, slot: u64) {
        let at = self.slots.partition_point(|one| one.0 <= slot);
        self.slots.insert(at, (slot, 0));
        self.costs.push(cost);
        if self.ranks(cost).iter().any(|one| *one > rank) {
            self.lifo.insert(cost);
        }
        self.waiters.push((rank, cost));
        self.waiters.sort_unstable();
    }

    /// The ranks, or the positions, of a cost.
    fn ranks(&self, cost: u64) -> Vec<Rank> {
        let all = self.waiters.iter().filter(|one| one.1 == cost);
        all.map(|one| one.0).collect()
    }

    fn positions(&self, cost: u64) -> Vec<usize> {
        (0..self.costs.len())
            .filter(|at| self.costs[*at] == cost)
            .collect()
    }

    fn remove_waiter(&mut self, rank: Rank) -> u64 {
        let at = self.waiters.iter().position(|one| one.0 == rank);
        let (_, cost) = self.waiters.remove(at.expect("it waits"));
        if self.ranks(cost).is_empty() {
            self.lifo.remove(&cost);
        }
        cost
    }

    fn remove(&mut self, rank: Rank, quota: Option<&Quota>) -> CostOutcome {
        let cost = self.waiters.iter().find(|one| one.0 == rank);
        let cost = cost.expect("it waits").1;
        let positions = self.positions(cost);
        let at = if self.lifo.contains(&cost) {
            positions[positions.len() - 1]
        } else {
            let of_class = self.ranks(cost).iter().position(|one| *one == rank);
            positions[of_class.expect("it is of this class")]
        };
        self.remove_waiter(rank);
        self.costs.remove(at);
        self.slots.remove(at);
        if at == self.costs.len() {
            return CostOutcome::Refund;
        }
        let Some(quota) = quota else {
            return CostOutcome::Keep;
        };
        self.shift(at, cost, quota);
        CostOutcome::Refund
    }

    fn shift(&mut self, from: usize, cost: u64, quota: &Quota) {
        let limit = u128::from(quota.limit());
        for (at, rest) in &mut self.slots[from..] {
            let all = *rest + u128::from(cost) * u128::from(quota.period_ns());
            *at = at.saturating_sub(u64::try_from(all / limit).expect("it is small"));
            *rest = all % limit;
        }
    }

    fn release(&mut self, now: u64, most: usize) -> Vec<Rank> {
        let mut released = Vec::new();
        while released.len() < most && self.slots.first().is_some_and(|one| one.0 <= now) {
            let (cost, _) = (self.costs.remove(0), self.slots.remove(0));
            let rank = self.ranks(cost)[0];
            self.remove_waiter(rank);
            released.push(rank);
        }
        released
    }
}

#[test]
fn a_mixed_queue_behaves_like_plain_lists() {
    const PERIOD: u64 = 1_000_000_007;

    let quota = Quota::per(9, Duration::from_nanos(PERIOD));
    let (mut queue, mut model) = (MixedQueue::default(), Model::default());
    let (mut next, mut middle, mut front) = (2_000_000, 1_000_000, 1_000_000);
    let (mut random, mut longest, mut kept, mut shed) = (5_u64, 0, 0, 0);
    let mut end = 1_000 * PERIOD;
    for _ in 0..12_000 {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        let (what, which) = (random >> 60, random >> 40 & 0xffff);
        let cost = which % 4 + 1;
        match what {
            0..=7 => {
                // Behind all, behind those of the first level, or before all.
                let rank = match what {
                    0..=3 => &mut next,
                    4 | 5 => &mut middle,
                    _ => &mut front,
                };
                *rank = if what < 6 { *rank + 1 } else { *rank - 1 };
                let rank = *rank;
                // Now and then a slot before those of others, which removals have moved.
                let slot = match model.slots.last() {
                    Some((last, _)) if which > 60_000 => {
                        last.saturating_sub((which - 60_000) * PERIOD / 9_000)
                    }
                    _ => end,
                };
                queue.join(rank, cost, Tick::from_nanos(slot));
                model.join(rank, cost, slot);
                end += cost * PERIOD / 9;
            }
            8..=11 if !model.waiters.is_empty() => {
                let at = usize::try_from(which).expect("it is small") % model.waiters.len();
                let rank = model.waiters[at].0;
                let quota = (which % 8 > 0).then_some(&quota);
                let expected = model.remove(rank, quota);
                let left = queue.remove(rank, &|| quota.copied());
                assert_eq!(left.map(|left| left.0), Some(expected));
                assert!(queue.remove(rank, &|| None).is_none());
                kept += usize::from(expected == CostOutcome::Keep);
            }
            12 => {
                let (now, most) = (
                    end - which % 64 * PERIOD,
                    1 + cost.trailing_zeros() as usize,
                );
                let released = model.release(now, most);
                let last = queue.release(Tick::from_nanos(now), most, &mut Vec::new());
                assert_eq!(last, released.last().copied());
            }
            13 => {
                let last = model.ranks(cost).pop();
                assert_eq!(queue.last_removable_of(cost, || Some(quota)), last);
                let is_last = model.costs.last() == Some(&cost);
                assert_eq!(
                    queue.last_removable_of(cost, || None),
                    last.filter(|_| is_last)
                );
                shed += usize::from(last.is_some());
            }
            14 => {
                queue.shift_earlier(cost, &quota);
                model.shift(0, cost, &quota);
            }
            15 if which < 5_000 => {
                queue.reschedule(|slot| slot);
                model.slots.iter_mut().for_each(|one| one.1 = 0);
            }
            _ => {}
        }
        let times: Vec<_> = queue.iter().map(Tick::as_nanos).collect();
        let known: Vec<_> = model.slots.iter().map(|one| one.0).collect();
        assert_eq!(times, known);
        assert_eq!(queue.first().map(Tick::as_nanos), known.first().copied());
        assert_eq!(queue.last().map(Tick::as_nanos), known.last().copied());
        let ranks = model.waiters.iter().map(|one| &one.0);
        assert!(queue.waiters.keys().eq(ranks));
        longest = longest.max(known.len());
    }
    assert!(
        longest > 50 && kept > 100 && shed > 100,
        "too little happened"
    );
}
