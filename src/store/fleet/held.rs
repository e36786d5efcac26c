//! What a machine holds of a key between two exchanges.

use super::figures::Figures;
use super::shape::gcd;
use crate::clock::{Tick, nanos};

/// The part of a budget that changes in exchanges, and when something begins or ends.
///
/// `left` of the lots and `own` together are `usable`, what is unripe, `next` and `unassigned`. A unit
/// that was used is in exactly one of: `unassigned`; `spent`; a report. A unit that was granted is in
/// exactly one of: `left` and `used` of its lot; a report.
#[derive(Clone, Debug, Default)]
pub(super) struct Rest {
    /// Units asked for in the interval before.
    pub(super) last_demand: u64,
    /// Units used since the last report: in windows that have ended, and in this one.
    pub(super) spent: [Spending; 2],
    /// Granted units, oldest first.
    pub(super) lots: [Lot; 2],
    /// Units that the machine took itself.
    pub(super) own: u64,
    pub(super) ripening: Ripening,
    /// Units that become usable at `next_from`.
    pub(super) next: u64,
    pub(super) next_from: Tick,
    pub(super) places: Places,
    pub(super) window_end: Tick,
    /// The smallest cost that waits.
    pub(super) waiting: u64,
    /// Whether `own` was taken since the last reply to a report made before.
    pub(super) has_taken: bool,
    /// Whether the report in flight settles what was taken.
    pub(super) settles_taken: bool,
    pub(super) reported: Tick,
    pub(super) figures: Option<Figures>,
    /// The last reset that is known.
    pub(super) reset: u64,
    /// Whether the next report is to reset the key.
    pub(super) resets: bool,
    /// Units reported before that are to be given back, and the first moment at which any was used.
    pub(super) given_back: Option<(u64, Tick)>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spending {
    pub(super) units: u64,
    /// The last use.
    pub(super) at: Tick,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lot {
    pub(super) epoch: u64,
    pub(super) expires: Tick,
    pub(super) left: u64,
    /// Not yet reported.
    pub(super) used: u64,
}

/// Units that become usable one after the other.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ripening {
    pub(super) units: u64,
    done: u64,
    since: Tick,
    /// Their places in the slot that begins at `since`; without, they are spread evenly, and each is half of its
    /// time early.
    places: Option<Places>,
}

/// Which of the units that become free in a slot are those of this machine: so the machines together use none
/// before it is free. A machine's places are as far from each other as if they were its own slot's alone.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Places {
    /// The place of its first unit.
    first: u64,
    count: u64,
    /// Of all machines; if 0, all units are usable at the end of the slot.
    all: u64,
    /// From the place of a unit to that of the next one, modulo `all`: without common divisors.
    step: u64,
    /// How many places had passed when it was last asked, and how many of its own.
    passed: u64,
    ripe: u64,
}

impl Rest {
    /// What was used since the last report.
    pub(super) fn used(&self) -> u64 {
        let [before, current] = self.spent;
        before.units.saturating_add(current.units)
    }

    /// What was used of it beside what was granted.
    pub(super) fn used_beside(&self) -> u64 {
        let granted = self.lots.iter().map(|lot| lot.used);
        self.used().saturating_sub(granted.sum())
    }
}

impl Ripening {
    pub(super) const fn new(units: u64, since: Tick, places: Option<Places>) -> Self {
        Self {
            units,
            done: 0,
            since,
            places,
        }
    }

    pub(super) const fn left(&self) -> u64 {
        self.units.saturating_sub(self.done)
    }

    /// Units are no more.
    pub(super) const fn set_left(&mut self, left: u64) {
        self.units = self.done + left;
    }

    /// How many more units are usable at `now`.
    pub(super) fn ripen(&mut self, interval: u64, now: Tick) -> u64 {
        if self.left() == 0 {
            return 0;
        }
        let elapsed = u128::from(nanos(now.since(self.since)).min(interval));
        let interval = u128::from(interval.max(1));
        let ripe = match &mut self.places {
            None => (2 * u128::from(self.units) * elapsed + interval) / (2 * interval),
            Some(places) => places.ripe(elapsed, interval).into(),
        };
        let ripe = u64::try_from(ripe).unwrap_or(u64::MAX).min(self.units);
        let more = ripe.saturating_sub(self.done);
        self.done += more;
        more
    }
}

impl Places {
    /// Of `count` units, of which `first` were granted before, on `all` places.
    pub(super) fn new(first: u64, count: u64, all: u64) -> Self {
        // By the golden ratio, so that any number of units in a row are far from each other.
        let golden = all * 610 / 987;
        let step = (golden..all).find(|step| gcd((*step).into(), all.into()) == 1);
        let step = step.unwrap_or(1);
        Self {
            first: (first % all.max(1)) * step % all.max(1),
            count,
            all,
            step,
            passed: 0,
            ripe: 0,
        }
    }

    fn ripe(&mut self, elapsed: u128, interval: u128) -> u64 {
        let passed = u128::from(self.all) * elapsed / interval;
        let passed = u64::try_from(passed).unwrap_or(self.all);
        if passed == self.all {
            return if elapsed < interval { 0 } else { u64::MAX };
        }
        if passed != self.passed {
            let sum = |first| sum_of_quotients(self.count, self.all, self.step, first);
            let last = self.first + self.all;
            self.ripe = sum(last).wrapping_sub(sum(last - passed));
            self.passed = passed;
        }
        self.ripe
    }
}

/// The sum of `(first + step * index) / all`, rounded down, for each index below `count`.
const fn sum_of_quotients(mut count: u64, mut all: u64, mut step: u64, mut first: u64) -> u64 {
    let mut sum = 0_u64;
    loop {
        let pairs = if count % 2 == 0 {
            (count / 2).wrapping_mul(count.wrapping_sub(1))
        } else {
            (count.wrapping_sub(1) / 2).wrapping_mul(count)
        };
        sum = sum.wrapping_add(pairs.wrapping_mul(step / all));
        sum = sum.wrapping_add(count.wrapping_mul(first / all));
        let last = (step % all) * count + first % all;
        if last < all {
            return sum;
        }
        (count, first, all, step) = (last / all, last % all, step % all, all);
    }
}

#[cfg(test)]
mod tests {
    use super::super::simulation::traces::Random;
    use super::*;

    /// Machines that share a slot together use no unit before it is free, and each uses its own evenly.
    ///
    /// Shows promise 200.
    #[test]
    fn places_are_free_when_they_are_used_and_evenly_spread() {
        // Units whose places are not known are usable at the end.
        let mut unknown = Places::new(0, 5, 0);
        assert_eq!(
            [999, 1_000].map(|at| unknown.ripe(at, 1_000)),
            [0, u64::MAX]
        );
        let mut random = Random::new(7);
        for _ in 0..200 {
            let all = 1 + random.log_uniform(12);
            let (mut parts, mut first) = (Vec::new(), 0);
            while first < all {
                let count = (1 + random.log_uniform(8)).min(all - first);
                parts.push((count, Places::new(first, count, all)));
                first += count;
            }
            for elapsed in 0..=1_000 {
                let ripe = |(_, places): &mut (u64, Places)| places.ripe(elapsed, 1_000);
                if elapsed == 1_000 {
                    assert!(parts.iter_mut().map(ripe).all(|ripe| ripe == u64::MAX));
                    continue;
                }
                let sum: u64 = parts.iter_mut().map(ripe).sum();
                assert_eq!(u128::from(sum), u128::from(all) * elapsed / 1_000);
                for (count, places) in &mut parts {
                    let even = u128::from(*count) * elapsed / 1_000;
                    let apart = u128::from(places.ripe(elapsed, 1_000)).abs_diff(even);
                    assert!(apart <= 8, "{apart} of {count} in {all}");
                }
            }
        }
    }
}
