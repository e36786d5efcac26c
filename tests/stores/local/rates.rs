//! Rates whose interval has a long remainder: a table changes from any rate to any other.

use std::fmt::Debug;
use std::time::Duration;

use tower_throttle::algorithm::{Algorithm, AnyAlgorithm};
use tower_throttle::clock::{Clock, Tick};
use tower_throttle::{
    FixedWindow, LeakyBucket, Local, ManualClock, Quota, SlidingWindow, TokenBucket,
};

use crate::random::Random;
use test_support::from_env;

const HOUR: u64 = 3_600_000_000_000;

/// A table, and the states of its keys as the algorithm alone keeps them.
struct Checked<A: Algorithm> {
    local: Local<A, ManualClock>,
    clock: ManualClock,
    algorithm: A,
    states: Vec<Option<A::State>>,
}

impl<A: Algorithm> Checked<A> {
    fn new(algorithm: &A, capacity: usize, keys: usize, start: Tick) -> Self {
        let clock = ManualClock::new();
        clock.set(start);
        Self {
            local: Local::new(algorithm.clone())
                .with_clock(clock.clone())
                .capacity(capacity),
            clock,
            algorithm: algorithm.clone(),
            states: vec![None; keys],
        }
    }

    fn check(&mut self, key: u64, cost: u64, context: &dyn Debug) {
        let now = self.clock.now();
        let at = usize::try_from(key).expect("few keys");
        let state = self.states[at].get_or_insert_with(|| self.algorithm.fresh(now));
        let expected = self.algorithm.decide(state, now, cost);
        let decided = self.local.check_n(&key, cost);
        assert_eq!(decided, expected, "{context:?}, key {key}, now {now:?}");
    }

    fn set(&mut self, next: &A) {
        let now = self.clock.now();
        for slot in &mut self.states {
            // A key whose state has expired is treated as unused.
            let state = slot.take();
            *slot = state.filter(|state| self.algorithm.forgettable_at(state) > now);
            if let Some(state) = slot {
                next.rescale(state, &self.algorithm, now);
            }
        }
        let set = self.local.set_algorithm(next.clone());
        set.expect("every quota is accepted");
        self.algorithm = next.clone();
    }
}

/// Goes from 100 per second to `rate` per second and back, with used keys.
fn there_and_back<A: Algorithm>(algorithm: &A, rate: u64) {
    let start = Tick::from_nanos(1_000 * HOUR + rate * 12_345);
    let mut checked = Checked::new(algorithm, 20, 6, start);
    for limit in [rate, 100] {
        for key in 0..6 {
            for _ in 0..=key {
                checked.check(key, 1 + rate % 3, &(rate, limit));
            }
        }
        let quota = Quota::per_second(limit);
        let next = algorithm.with_quota(quota).expect("a supported quota");
        checked.set(&next);
        assert_eq!(checked.local.quota(), quota);
        for turn in 0..24 {
            checked
                .clock
                .advance(Duration::from_nanos(turn * 7_654_321));
            checked.check(turn % 6, 1 + turn % 4, &(rate, limit));
        }
    }
}

/// Shows promise 47.
#[test]
fn every_rate_to_a_thousand_per_second_is_accepted_and_keeps_the_usage() {
    let quota = Quota::per_second(100);
    for rate in 1..=1_000 {
        there_and_back(&TokenBucket::new(quota), rate);
        there_and_back(&LeakyBucket::new(quota), rate);
        there_and_back(&LeakyBucket::new(quota).queue(9), rate);
        there_and_back(&FixedWindow::new(quota), rate);
        there_and_back(&FixedWindow::new(quota).anchored(), rate);
        there_and_back(&SlidingWindow::new(quota), rate);
        there_and_back(&AnyAlgorithm::new(TokenBucket::new(quota)), rate);
    }
}

/// Random requests over days, with pauses from nanoseconds to hours.
fn days<A: Algorithm>(algorithm: &A, seed: u64) {
    let mut random = Random::new(seed);
    let start = Tick::from_nanos(random.below(20_000 * HOUR));
    let mut checked = Checked::new(algorithm, 300, 200, start);
    for _ in 0..1_500 {
        let pause = match random.below(20) {
            0 => random.below(3 * HOUR),
            1..5 => random.below(60_000_000_000),
            _ => random.below(10_000_000),
        };
        checked.clock.advance(Duration::from_nanos(pause));
        let key = random.below(200);
        let cost = 1 + random.below(3);
        checked.check(key, cost, &(algorithm, seed));
    }
}

/// Shows promise 40.
#[test]
fn a_table_decides_over_days_as_the_algorithm() {
    let quotas = [
        Quota::per_second(97).burst(5),
        Quota::per_second(999_983),
        Quota::per_minute(999_979),
        Quota::per_minute(7).burst(3),
    ];
    for seed in 0..from_env("TRACES", 12) {
        for quota in quotas {
            let limit = Quota::per(quota.limit(), quota.period());
            let queue = LeakyBucket::new(quota).queue(3);
            days(&TokenBucket::new(quota), seed);
            days(&TokenBucket::new(quota).initial(1), seed);
            days(&LeakyBucket::new(quota), seed);
            days(&queue, seed);
            days(&FixedWindow::new(limit), seed);
            let anchored = FixedWindow::new(limit).anchored();
            days(&anchored, seed);
            days(&SlidingWindow::new(limit), seed);
            let pair = (TokenBucket::new(quota), anchored);
            days(&pair, seed);
            let any = AnyAlgorithm::new(TokenBucket::new(quota));
            days(&any, seed);
        }
    }
}

/// Shows promise 47.
#[test]
fn a_quota_of_large_numbers_is_accepted_and_loses_no_usage() {
    let narrow = Quota::per_second(10).burst(12);
    // The remainder has 34 bits.
    let wide = Quota::per(9_999_999_967, Duration::from_secs(1_009)).burst(12);
    for algorithm in [LeakyBucket::new(narrow), LeakyBucket::new(narrow).queue(9)] {
        let start = Tick::from_nanos(900 * HOUR);
        let mut checked = Checked::new(&algorithm, 300, 200, start);
        for quota in [wide, narrow, wide] {
            for turn in 0..1_000_u64 {
                checked.check(turn % 200, 1 + turn % 2, &quota);
            }
            let next = algorithm.with_quota(quota).expect("a supported quota");
            checked.set(&next);
            for turn in 0..1_000_u64 {
                checked.clock.advance(Duration::from_nanos(20));
                checked.check(turn % 200, 1 + turn % 2, &quota);
            }
            assert_eq!(checked.local.stats().evicted, 0);
        }
    }
}
