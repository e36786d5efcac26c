//! Packed states decide like unpacked ones.

use std::fmt::Debug;
use std::time::Duration;

use tower_throttle::algorithm::{Algorithm, Cost, GiveBack, Words};
use tower_throttle::{
    Decision, FixedWindow, LeakyBucket, Quota, SlidingGrid, SlidingWindow, TokenBucket, WarmUp,
    clock::Tick,
};

use crate::random::{Random, seeds};

fn at(ns: u64) -> Tick {
    Tick::from_nanos(ns)
}

fn span(ns: u64) -> Duration {
    Duration::from_nanos(ns)
}

/// From this moment on, a state may fail to pack.
const FAR: u64 = 1 << 56;

/// A function that decides on packed words.
type Decide<A> = fn(&A, &mut [u64], Tick, u64) -> Option<Decision>;

/// Applies the same operations to the packed and the unpacked state.
struct Twins<A: Words> {
    algorithm: A,
    decide: Decide<A>,
    state: A::State,
    now: u64,
    /// A typical gap between changes of a decision.
    unit: u64,
    /// How many packed decisions were compared.
    compared: usize,
}

impl<A: Words<State: PartialEq + Debug>> Twins<A> {
    fn new(algorithm: A, unit: u64, random: &mut Random) -> Self {
        let now = random.log_uniform(57);
        Self {
            state: algorithm.fresh(at(now)),
            algorithm,
            decide: |algorithm, words, now, cost| A::decide_packed(algorithm, words, now, cost),
            now,
            unit,
            compared: 0,
        }
    }

    fn packed(&self) -> Option<Vec<u64>> {
        let mut words = vec![0; self.algorithm.facts().words];
        let packs = A::pack_into(&self.algorithm, &self.state, &mut words);
        packs.then_some(words)
    }

    /// Advances the time; sometimes steps back.
    fn pass(&mut self, random: &mut Random) {
        let gap = match random.below(10) {
            0..=3 => 0,
            4 | 5 => random.below(self.unit + 1),
            6 => self.unit,
            7 => self.unit.saturating_mul(random.below(70)),
            8 => self.unit.saturating_mul(random.below(5)) + random.below(3),
            _ => random.log_uniform(60) / (1 + random.below(1 << 20)),
        };
        self.now = if random.below(8) == 0 {
            self.now.saturating_sub(gap)
        } else {
            self.now.saturating_add(gap).min(1 << 62)
        };
    }

    /// Applies one operation to both. Returns how they differ.
    fn step(&mut self, random: &mut Random) -> Option<String> {
        self.pass(random);
        let (now, limit) = (at(self.now), self.algorithm.quota().limit());
        let cost = match random.below(10) {
            0 => 0,
            1 => limit,
            2 => limit + 1,
            3 => *random.pick(&[u64::MAX, 1 << 63, limit.saturating_mul(3)]),
            4 | 5 => 1 + random.below(limit),
            6 => 1 + random.below(limit.div_ceil(4)),
            _ => 1,
        };
        match random.below(16) {
            0 => {
                self.algorithm
                    .refund(&mut self.state, now, Cost::new(cost, now), GiveBack::Refund);
            }
            1 => {
                self.algorithm
                    .charge(&mut self.state, now, cost % (limit + 1));
            }
            2 => self.state = self.algorithm.fresh(now),
            _ => return self.decided(now, cost),
        }
        None
    }

    fn decided(&mut self, now: Tick, cost: u64) -> Option<String> {
        let before = self.packed();
        let expected = self.algorithm.decide(&mut self.state, now, cost);
        let before = before?;
        let mut words = before.clone();
        let Some(decision) = (self.decide)(&self.algorithm, &mut words, now, cost) else {
            let may_fail = self.now >= FAR || self.packed().is_none();
            return (!may_fail).then(|| format!("{cost} at {now:?} does not pack"));
        };
        self.compared += 1;
        let wrong = if decision != expected {
            "wrong decision"
        } else if self.packed().as_ref() != Some(&words) {
            "wrong state"
        } else if A::unpack_from(&self.algorithm, &words) != self.state {
            "unpacks to another state"
        } else if (decision.is_denied() || cost == 0) && words != before {
            "a denial changed the words"
        } else if words[0] >> 63 > 0 {
            "the highest bit is set"
        } else {
            return None;
        };
        let state = &self.state;
        Some(format!(
            "{cost} at {now:?}: {wrong}: {decision:?}, {words:?}; expected {expected:?}, {state:?}"
        ))
    }

    /// Runs one random trace. Returns how the two differ.
    fn disagreement(&mut self, random: &mut Random) -> Option<String> {
        let steps = 1 + random.below(80);
        (0..steps).find_map(|_| self.step(random))
    }
}

/// Asserts that no trace finds a difference and that many decisions were compared.
fn agree<A: Words<State: PartialEq + Debug>>(make: fn(&mut Random) -> (A, u64)) {
    let mut compared = 0;
    for seed in seeds(4_000) {
        let mut random = Random::new(seed);
        let (algorithm, unit) = make(&mut random);
        let mut twins = Twins::new(algorithm, unit, &mut random);
        if let Some(fault) = twins.disagreement(&mut random) {
            panic!("seed {seed}, {:?}: {fault}", twins.algorithm);
        }
        compared += twins.compared;
    }
    assert!(compared > 10_000, "only {compared} compared");
}

fn period(random: &mut Random) -> u64 {
    match random.below(3) {
        0 => *random.pick(&[1_000_000_000, 60_000_000_000, 86_400_000_000_000]),
        1 => 1 + random.log_uniform(61),
        _ => 1 + random.log_uniform(40),
    }
}

fn quota(random: &mut Random) -> (Quota, u64) {
    let period = period(random);
    let limit = (1 + random.log_uniform(40)).min(1 << 30);
    (Quota::per(limit, span(period)), period)
}

/// A grid with any number of cells and any width of a count, usually one that fits a table's slot.
fn grid(random: &mut Random) -> (SlidingGrid, u64) {
    let cells = 1 + random.below(60);
    let width = match random.below(8) {
        0 => 1 + random.below(63),
        _ => 1 + random.below((255 / (cells + 1)).min(63)),
    };
    // A limit of that many bits; sometimes with all bits set.
    let limit = (1_u64 << (width - 1)) | (random.next() >> (64 - width));
    let limit = match random.below(3) {
        0 => u64::MAX >> (64 - width),
        _ => limit,
    };
    let period = period(random);
    let grid = SlidingGrid::new(Quota::per(limit, span(period)))
        .cells(usize::try_from(cells).expect("few cells"))
        .offset(span(random.log_uniform(62)));
    let grid = if random.below(2) == 0 {
        grid
    } else {
        grid.strict()
    };
    (grid, period.div_ceil(cells))
}

#[test]
fn a_packed_grid_decides_like_an_unpacked_one() {
    agree(grid);
}

#[test]
fn a_default_grid_takes_only_the_words_its_counts_and_cell_need() {
    for (limit, words) in [(7, 1), (8, 2), (1_000, 3), (1 << 15, 3), (1 << 16, 4)] {
        let grid = SlidingGrid::new(Quota::per_second(limit));
        assert_eq!(grid.facts().words, words);
    }
}

#[test]
fn a_packed_warm_up_decides_like_an_unpacked_one() {
    agree(|random| {
        let (quota, period) = quota(random);
        let most = (10 * u128::from(period)).min((1 << 62) / u128::from(quota.limit()));
        let over = 1 + random.below(u64::try_from(most).expect("below 2^62"));
        let factor = *random.pick(&[1, 2, 3, 10, 1_000]);
        let warm = WarmUp::new(quota, span(over)).cold_factor(factor);
        let line = random.below(3);
        let warm = if line > 0 { warm.queue(line * 7) } else { warm };
        (warm, period / quota.limit() + 1)
    });
}

#[test]
fn packed_windows_decide_like_unpacked_ones() {
    agree(|random| {
        let (quota, period) = quota(random);
        let offset = span(random.log_uniform(62));
        (FixedWindow::new(quota).offset(offset), period)
    });
    agree(|random| {
        let (quota, period) = quota(random);
        (FixedWindow::new(quota).anchored(), period)
    });
    agree(|random| {
        let (quota, period) = quota(random);
        let offset = span(random.log_uniform(62));
        (SlidingWindow::new(quota).offset(offset), period / 4)
    });
}

/// Shows promise 318.
#[cfg(feature = "calendar")]
#[test]
fn packed_windows_of_the_calendar_decide_like_unpacked_ones() {
    agree(|random| {
        let day = Quota::per_day(1 + random.log_uniform(31));
        let window = tower_throttle::CalendarWindow::try_new(day, "Europe/Berlin").expect("a zone");
        (window, 86_400_000_000_000)
    });
    let words = |limit| {
        let window = tower_throttle::CalendarWindow::try_new(Quota::per_month(limit), "UTC");
        window.expect("UTC").facts().words
    };
    assert_eq!([(1 << 29) - 1, 1 << 29].map(words), [1, 2]);
}

#[test]
fn packed_buckets_decide_like_unpacked_ones() {
    agree(|random| {
        let (quota, period) = quota(random);
        (TokenBucket::new(quota), period / quota.limit() + 1)
    });
    agree(|random| {
        let (quota, period) = quota(random);
        let bucket = LeakyBucket::new(quota).queue(random.below(9));
        (bucket, period / quota.limit() + 1)
    });
}

/// The comparison finds each of these faulty `decide_packed` functions.
#[test]
fn planted_differences_are_found() {
    let planted: [Decide<SlidingGrid>; 4] = [
        // Does not write the new state.
        |grid, words, now, cost| SlidingGrid::decide_packed(grid, &mut words.to_vec(), now, cost),
        // Decides at a wrong moment.
        |grid, words, now, cost| {
            SlidingGrid::decide_packed(grid, words, now.plus(Duration::from_nanos(1)), cost)
        },
        // Writes a new state for a denial.
        |grid, words, now, cost| {
            let decision = SlidingGrid::decide_packed(grid, words, now, cost)?;
            words[words.len() - 1] ^= u64::from(decision.is_denied());
            Some(decision)
        },
        // Never packs.
        |_, _, _, _| None,
    ];
    for (number, decide) in planted.into_iter().enumerate() {
        let found = (0..200).any(|seed| {
            let mut random = Random::new(seed);
            let (grid, unit) = grid(&mut random);
            let mut twins = Twins::new(grid, unit, &mut random);
            twins.decide = decide;
            twins.disagreement(&mut random).is_some()
        });
        assert!(found, "bug {number}");
    }
}
