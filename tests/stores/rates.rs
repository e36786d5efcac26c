//! Rates whose interval has a long remainder: their states take one word, and a table changes from
//! any rate to any other.

use std::fmt::Debug;
use std::time::Duration;

use tower_throttle::algorithm::{Algorithm, AnyAlgorithm, Inherit, Words};
use tower_throttle::clock::{Clock, Tick};
use tower_throttle::{
    FixedWindow, LeakyBucket, Local, ManualClock, Quota, SlidingWindow, TokenBucket,
};

use crate::env::from_env;
use crate::random::Random;

const HOUR: u64 = 3_600_000_000_000;

/// A table, and the states of its keys as the algorithm alone keeps them.
struct Checked<A: Words> {
    local: Local<A, ManualClock>,
    clock: ManualClock,
    algorithm: A,
    states: Vec<Option<A::State>>,
}

impl<A: Words> Checked<A> {
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

    fn set(&mut self, next: &A, inherit: Inherit) {
        let now = self.clock.now();
        for slot in &mut self.states {
            // A key whose state has expired is treated as unused.
            let state = slot.take();
            *slot = state.filter(|state| self.algorithm.forgettable_at(state) > now);
            if let Some(state) = slot {
                next.rescale(state, &self.algorithm, now, inherit);
            }
        }
        let set = self.local.set_algorithm(next.clone(), inherit);
        set.expect("every quota is accepted");
        self.algorithm = next.clone();
    }
}

/// Goes from 100 per second to `rate` per second and back, with used keys.
fn there_and_back<A: Words>(algorithm: &A, rate: u64, has_counts: bool) {
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
        checked.set(&next, Inherit::AsIs);
        assert_eq!(checked.local.quota(), quota);
        for turn in 0..24 {
            checked
                .clock
                .advance(Duration::from_nanos(turn * 7_654_321));
            checked.check(turn % 6, 1 + turn % 4, &(rate, limit));
        }
        // A count that exceeds a lower limit does not fit the bits of that limit.
        let fits = !has_counts || rate >= 100;
        assert!(!fits || checked.local.stats().outside == 0, "{rate}");
    }
}

/// Shows promise 47.
#[test]
fn every_rate_to_a_thousand_per_second_is_accepted_and_keeps_the_usage() {
    let quota = Quota::per_second(100);
    for rate in 1..=1_000 {
        there_and_back(&TokenBucket::new(quota), rate, false);
        there_and_back(&LeakyBucket::new(quota), rate, false);
        there_and_back(&LeakyBucket::new(quota).queue(9), rate, false);
        there_and_back(&FixedWindow::new(quota), rate, true);
        there_and_back(&FixedWindow::new(quota).anchored(), rate, true);
        there_and_back(&SlidingWindow::new(quota), rate, true);
        there_and_back(&AnyAlgorithm::new(TokenBucket::new(quota)), rate, false);
    }
}

fn bytes_per_key<A: Words>(algorithm: A) -> usize {
    let capacity = 10_000;
    let stats = Local::new(algorithm).capacity(capacity).stats();
    stats.table_bytes.div_ceil(capacity)
}

/// Shows promise 42.
#[test]
fn every_rate_to_a_million_per_second_or_minute_takes_one_word_per_key() {
    let mut random = Random::new(11);
    let few = (1..=1_000).chain([999_953, 999_979, 999_983, 999_999, 1_000_000]);
    let random = (0..from_env("TRACES", 300)).map(|_| 1 + random.below(1_000_000));
    for limit in few.chain(random) {
        for quota in [Quota::per_second(limit), Quota::per_minute(limit)] {
            let bytes = [
                bytes_per_key(TokenBucket::new(quota)),
                bytes_per_key(LeakyBucket::new(quota)),
                bytes_per_key(FixedWindow::new(quota)),
                bytes_per_key(FixedWindow::new(quota).anchored()),
                bytes_per_key(SlidingWindow::new(quota)),
            ];
            assert_eq!(bytes, [23; 5], "{quota}");
        }
    }
}

/// Random requests over days, with pauses from nanoseconds to hours: the time base moves often, and
/// sets migrate late. Returns the most states that were outside of the slots at once.
fn days<A: Words>(algorithm: &A, seed: u64) -> usize {
    let mut random = Random::new(seed);
    let start = Tick::from_nanos(random.below(20_000 * HOUR));
    let mut checked = Checked::new(algorithm, 300, 200, start);
    let mut outside = 0;
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
        outside = outside.max(checked.local.stats().outside);
    }
    outside
}

/// Shows promise 42.
#[test]
fn states_stay_in_one_word_over_days() {
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
            assert_eq!(days(&TokenBucket::new(quota), seed), 0, "{quota}");
            assert_eq!(days(&TokenBucket::new(quota).initial(1), seed), 0);
            assert_eq!(days(&LeakyBucket::new(quota), seed), 0, "{quota}");
            assert_eq!(days(&queue, seed), 0, "{quota}");
            assert_eq!(days(&FixedWindow::new(limit), seed), 0, "{quota}");
            let anchored = FixedWindow::new(limit).anchored();
            assert_eq!(days(&anchored, seed), 0, "{quota}");
            assert_eq!(days(&SlidingWindow::new(limit), seed), 0, "{quota}");
            let pair = (TokenBucket::new(quota), anchored);
            assert_eq!(days(&pair, seed), 0, "{quota}");
            let any = AnyAlgorithm::new(TokenBucket::new(quota));
            assert_eq!(days(&any, seed), 0, "{quota}");
        }
    }
}

/// Two years after the start of the clock, and later.
#[test]
fn a_state_of_any_time_stays_in_one_word() {
    let bucket = TokenBucket::new(Quota::per_second(97));
    for years in [0, 1, 3, 10, 100, 280] {
        let start = Tick::from_nanos(years * 365 * 24 * HOUR);
        let mut checked = Checked::new(&bucket, 100, 20, start);
        for key in 0..20 {
            checked.check(key, 60, &years);
            checked.check(key, 60, &years);
        }
        assert_eq!(checked.local.stats().outside, 0, "{years}");
    }
}

/// States of two words in a table whose slots have one.
///
/// Shows promise 47.
#[test]
fn a_quota_of_wider_states_is_accepted_and_loses_no_usage() {
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
            checked.set(&next, Inherit::Proportional);
            for turn in 0..1_000_u64 {
                checked.clock.advance(Duration::from_nanos(20));
                checked.check(turn % 200, 1 + turn % 2, &quota);
            }
            let stats = checked.local.stats();
            assert_eq!(stats.evicted, 0);
            assert_eq!(stats.outside > 0, quota == wide, "{stats:?}");
            let taken = stats.table_bytes + stats.outside_bytes;
            assert!(taken <= stats.most_bytes, "{stats:?}");
        }
    }
}

/// Shows promises 42, 47.
#[test]
fn a_flood_of_wide_states_stays_within_most_bytes() {
    let clock = ManualClock::new();
    let local = Local::new(TokenBucket::new(Quota::per_second(10)))
        .with_clock(clock.clone())
        .capacity(1_000);
    let wide = Quota::per(9_999_999_967, Duration::from_secs(99_991));
    local.set_quota(wide).expect("every quota is accepted");
    clock.advance(Duration::from_secs(1_000_000));
    for key in 0..20_000 {
        let _ = local.check_n(&key, 1_000_000);
    }
    let stats = local.stats();
    assert!(stats.evicted > 0, "{stats:?}");
    assert!(stats.outside > 900, "{stats:?}");
    let taken = stats.table_bytes + stats.outside_bytes;
    assert!(taken <= stats.most_bytes, "{stats:?}");
}
