//! The moment as of which several costs count as one.

use crate::clock::Tick;

/// When costs were taken that count as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Buckets count them as of this moment.
    pub at: Tick,
    /// Windows, cells and logs count them as of this one, which is no earlier than that of any of them.
    pub last: Tick,
}

impl From<Tick> for Taken {
    /// All of them at the same moment.
    fn from(at: Tick) -> Self {
        Self { at, last: at }
    }
}

impl Taken {
    /// The same with both moments changed.
    #[must_use]
    pub fn map(self, moment: impl Fn(Tick) -> Tick) -> Self {
        Self {
            at: moment(self.at),
            last: moment(self.last),
        }
    }
}

/// The moment as of which several costs count as one, see
/// [`Portable::summed_moment`](super::Portable::summed_moment).
#[expect(unnameable_types, reason = "in the signature of a hidden method")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SummedMoment {
    at: Tick,
    /// The nanoseconds that the costs are worth. The moment of a bucket holds for every bucket in which
    /// they are worth more: what it does not count of the time between the costs, it counts as theirs.
    worth: Option<u64>,
    /// The last unit does not count before this moment.
    last: Option<Tick>,
}

impl SummedMoment {
    pub(super) const fn new(at: Tick) -> Self {
        Self {
            at,
            worth: None,
            last: None,
        }
    }

    /// The last unit counts as of `last`, and the others as of `at`.
    pub(super) const fn with_last(at: Tick, last: Tick) -> Self {
        Self {
            at,
            worth: None,
            last: Some(last),
        }
    }

    /// The moment of a bucket in which the costs are worth this many nanoseconds.
    pub(super) const fn of_bucket(at: Tick, worth: u64) -> Self {
        Self {
            at,
            worth: Some(worth),
            last: None,
        }
    }

    pub(super) const fn at(self) -> Tick {
        self.at
    }

    /// Each part of `cost` and when it was taken. No cost was taken after `last`.
    pub fn parts(self, cost: u64, last: Tick) -> [Option<(Taken, u64)>; 2] {
        let taken = |at: Tick| Taken {
            at: at.min(last),
            last,
        };
        let units = u64::from(self.last.is_some());
        let others = cost.saturating_sub(units);
        [
            (others > 0).then(|| (taken(self.at), others)),
            self.last.map(|of_last| (taken(of_last), units)),
        ]
    }

    /// That of two limits that count the same costs, of which one may have no moment of its own.
    pub(super) fn of_both(first: Option<Self>, second: Option<Self>) -> Option<Self> {
        match (first, second) {
            (Some(first), Some(second)) => Some(first.and(second)),
            (first, second) => first.or(second),
        }
    }

    /// The moment for both of two limits that count the same costs: no earlier than one of them needs.
    fn and(self, other: Self) -> Self {
        match (self.worth, other.worth) {
            (Some(own), Some(others)) if own < others => self,
            (Some(own), Some(others)) if own > others => other,
            (own, others) => Self {
                at: self.at.max(other.at),
                worth: own.and(others),
                last: self.last.max(other.last),
            },
        }
    }
}

#[cfg(all(test, not(tower_throttle_loom), not(tower_throttle_shuttle)))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::algorithm::{
        Algorithm, FixedWindow, LeakyBucket, Portable, SlidingGrid, SlidingLog, SlidingWindow,
        TokenBucket, WarmUp,
    };
    use crate::quota::Quota;

    const MS: u64 = 1_000_000;
    const START: u64 = 1 << 60;

    /// The time until a limit is free after a charge of `used`, some costs, and a charge of `more`: if each
    /// of the costs counts as of its moment, and if they count as one. They are requested for 100 ms, at
    /// about the end of the first charge, up to 2 at a time, with pauses of up to `pause`.
    fn both<A: Portable>(
        limit: &A,
        seed: u64,
        pause: u64,
        [used, more]: [u64; 2],
    ) -> [Duration; 2] {
        let mut chance = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut random = |below: u64| {
            chance ^= chance << 13;
            chance ^= chance >> 7;
            chance ^= chance << 17;
            chance % below
        };
        let mut now = Tick::from_nanos(START);
        let mut state = limit.fresh(now);
        let _ = limit.charge(&mut state, now, used);
        let before = state.clone();
        let busy = limit.peek(&state, now, 0).reset_after;
        now = now.plus(busy.saturating_sub(Duration::from_nanos(random(100 * MS))));
        now = now.plus(Duration::from_nanos(random(50 * MS)));
        let (since, mut last, mut total) = (now, now, 0);
        while now.since(since).as_nanos() < 100 * u128::from(MS) {
            let cost = 1 + random(2);
            if limit.decide(&mut state, now, cost).is_admitted() {
                (last, total) = (now, total + cost);
            }
            now = now.plus(Duration::from_nanos(1 + random(pause)));
        }
        let moment = A::summed_moment(limit, &state, since, total);
        let mut summed = before;
        if total > 0 {
            let parts = moment.expect("a moment").parts(total, now);
            for (taken, cost) in parts.into_iter().flatten() {
                A::charge_late(limit, &mut summed, taken, last, cost);
            }
        }
        [state, summed].map(|mut state| {
            let _ = limit.charge(&mut state, last, more);
            limit.peek(&state, last, 0).reset_after
        })
    }

    fn buckets() -> [TokenBucket; 3] {
        // A unit of the last one is no whole number of nanoseconds.
        [(100, 1), (1_000, 5), (700, 300)]
            .map(|(limit, burst)| TokenBucket::new(Quota::per_second(limit).burst(burst)))
    }

    #[test]
    fn a_bucket_counts_several_costs_as_one_exactly() {
        for seed in 0..2_000 {
            for bucket in buckets() {
                let meter = LeakyBucket::new(bucket.quota());
                let pause = if seed % 2 == 0 { MS } else { 30 * MS };
                let assert_same = |[each, one]: [Duration; 2]| {
                    let rounding = one.checked_sub(each).expect("no less");
                    assert!(rounding.as_nanos() <= 1, "seed {seed}: {each:?}, {one:?}");
                };
                assert_same(both(&bucket, seed, pause, [seed % 20, 1]));
                assert_same(both(&meter, seed, pause, [seed % 20, 1]));
                #[cfg(feature = "governor")]
                assert_same(both(
                    &crate::algorithm::Gcra::new(bucket.quota()),
                    seed,
                    pause,
                    [seed % 20, 1],
                ));
            }
        }
    }

    /// A cost counts more after idle time, so it has to count no less. What is stored of it counts too,
    /// unless the store is full meanwhile.
    #[test]
    fn a_warm_up_counts_several_costs_as_one_without_counting_less() {
        let mut most = Duration::ZERO;
        for seed in 0..4_000 {
            let warm_up = Duration::from_millis(match seed % 3 {
                0 => 500,
                1 => 1_000,
                _ => 10_000,
            });
            let limit = WarmUp::new(Quota::per_second(200), warm_up);
            let pause = if seed % 2 == 0 { MS } else { 30 * MS };
            for used_and_more in [[50, 0], [50, 20], [0, 0], [5, 0], [200, 0]] {
                let [each, one] = both(&limit, seed, pause, used_and_more);
                assert!(
                    each <= one,
                    "seed {seed}, {used_and_more:?}: {each:?}, {one:?}"
                );
                if pause == MS {
                    most = most.max(one.saturating_sub(each));
                }
            }
        }
        assert!(most < Duration::from_millis(30), "{most:?}");
    }

    /// Otherwise the slower of them would make the faster one pause.
    #[test]
    fn buckets_count_their_costs_as_of_the_moment_of_the_fastest() {
        let [slow, fast, _] = buckets();
        for seed in 0..2_000 {
            for limits in [(slow, fast), (fast, slow)] {
                let [each, one] = both(&limits, seed, 3 * MS, [seed % 10, 1]);
                assert!(each <= one, "seed {seed}: {each:?}, {one:?}");
            }
        }
        let now = Tick::from_nanos(START);
        let moment = |limit: &(TokenBucket, TokenBucket)| {
            let mut state = limit.fresh(now);
            let _ = limit.charge(&mut state, now, 3);
            let moment = <(TokenBucket, TokenBucket)>::summed_moment(limit, &state, now, 4);
            moment.map(SummedMoment::at)
        };
        let of_fast = Tick::from_nanos(START - MS);
        assert_eq!(moment(&(slow, fast)), Some(of_fast));
        assert_eq!(moment(&(fast, slow)), Some(of_fast));
        assert_eq!(
            moment(&(slow, slow)),
            Some(Tick::from_nanos(START - 10 * MS))
        );
    }

    /// The moment of three units.
    fn moment_of_three<A: Portable>(
        limit: &A,
        state: &A::State,
        now: Tick,
    ) -> Option<SummedMoment> {
        A::summed_moment(limit, state, now, 3)
    }

    #[test]
    fn a_cost_of_one_unit_is_one_part() {
        let [first, last] = [30, 60].map(|ns| Tick::from_nanos(START + ns));
        let parts = SummedMoment::with_last(first, last).parts(1, last);
        assert_eq!(parts, [None, Some((last.into(), 1))]);
        let [others, of_last] = SummedMoment::with_last(first, last).parts(3, last);
        assert_eq!(
            others.map(|(taken, cost)| (taken.at, cost)),
            Some((first, 2))
        );
        assert_eq!(of_last, Some((last.into(), 1)));
    }

    /// What the bucket alone makes of the costs does not depend on the limit beside it.
    #[test]
    fn a_bucket_beside_another_limit_counts_costs_as_of_its_own_moment() {
        fn check<A: Portable>(other: impl Fn(Quota) -> A) {
            let now = Tick::from_nanos(START);
            let last = now.plus(Duration::from_secs(1));
            for quota in [1, 5].map(|burst| Quota::per_second(100).burst(burst)) {
                let limit = (TokenBucket::new(quota), other(Quota::per_hour(1_000)));
                let mut state = limit.fresh(now);
                let _ = limit.charge(&mut state, now, 3);
                let moment = moment_of_three(&limit, &state, now);
                let parts = moment.expect("that of the bucket").parts(3, last);
                let alone = moment_of_three(&limit.0, &state.0, now);
                let at = alone.expect("a moment").at();
                assert_eq!(parts, [Some((Taken { at, last }, 3)), None]);
            }
        }
        check(SlidingLog::new);
        check(FixedWindow::new);
        check(SlidingWindow::new);
        check(SlidingGrid::new);
        // The other way round, and among three.
        let quota = Quota::per_second(100).burst(1);
        let hour = Quota::per_hour(1_000);
        let limit = (
            (FixedWindow::new(hour), TokenBucket::new(quota)),
            SlidingLog::new(hour),
        );
        let now = Tick::from_nanos(START);
        let mut state = limit.fresh(now);
        let _ = limit.charge(&mut state, now, 3);
        let moment = moment_of_three(&limit, &state, now);
        assert_eq!(moment.map(SummedMoment::at), Some(now));
    }

    #[test]
    fn windows_and_logs_have_no_moment_of_their_own() {
        let (now, quota) = (Tick::from_nanos(START), Quota::per_second(10));
        let limit = (FixedWindow::new(quota), SlidingLog::new(quota));
        let state = limit.fresh(now);
        let moment = <(FixedWindow, SlidingLog)>::summed_moment(&limit, &state, now, 1);
        assert_eq!(moment, None);
    }
}
