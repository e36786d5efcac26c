//! Changes of limit and burst: what was used stays used, to the last part of a unit.

use std::time::Duration;

use tower_throttle::algorithm::{Algorithm, state_from_bytes, state_to_bytes};
use tower_throttle::clock::Tick;
use tower_throttle::{
    FixedWindow, LeakyBucket, Quota, SlidingGrid, SlidingLog, SlidingWindow, TokenBucket, WarmUp,
};

use crate::random::{Random, seeds};

fn at(ns: u64) -> Tick {
    Tick::from_nanos(ns)
}

fn quota(limit: u64, period: u64) -> Quota {
    Quota::per(limit, Duration::from_nanos(period))
}

/// Takes `used` at `newest`, changes the algorithm at `older`, and returns the usage at `newest`.
fn used_after<A: Algorithm>(from: &A, to: &A, used: u64, newest: u64, older: u64) -> u64 {
    let mut state = from.fresh(at(newest));
    assert!(from.decide(&mut state, at(newest), used).is_admitted());
    to.rescale(&mut state, from, at(older));
    let decision = to.peek(&state, at(newest), 0);
    decision.limit - decision.remaining()
}

/// Shows promise 7.
#[test]
fn a_change_at_a_moment_older_than_the_state_loses_nothing() {
    for seed in seeds(300) {
        let mut random = Random::new(seed);
        let (period, other) = (1 + random.below(1_000), 1 + random.below(1_000));
        let (from, to) = (quota(50, period), quota(80, other));
        let newest = 10_000 + random.below(10_000);
        // In an earlier window, which a state can distinguish.
        let older = newest - period - random.below(5_000);
        let used = 1 + random.below(50);
        let offset = Duration::from_nanos(random.below(2_000));
        let cells = usize::try_from(1 + random.below(9)).expect("few cells");
        let windows = [from, to].map(|quota| FixedWindow::new(quota).offset(offset));
        let anchored = [from, to].map(|quota| FixedWindow::new(quota).anchored());
        let sliding = [from, to].map(|quota| SlidingWindow::new(quota).offset(offset));
        let grids = [
            SlidingGrid::new(from).cells(1 + cells / 2).strict(),
            SlidingGrid::new(to).cells(cells).strict(),
        ];
        let kept = [
            used_after(&windows[0], &windows[1], used, newest, older),
            used_after(&windows[0], &anchored[1], used, newest, older),
            used_after(&anchored[0], &windows[1], used, newest, older),
            used_after(&sliding[0], &sliding[1], used, newest, older),
            used_after(&grids[0], &grids[1], used, newest, older),
        ];
        assert_eq!(
            kept, [used; 5],
            "seed {seed}: {from} to {to} at {newest}, {older}"
        );
    }
}

/// Shows promise 17.
#[test]
fn a_grid_keeps_its_usage_with_another_number_of_cells() {
    let grid = |cells| SlidingGrid::new(quota(10, 1_200)).cells(cells);
    for (from, to) in [(10, 4), (4, 10), (3, 60), (60, 1)] {
        let (from, to) = (grid(from), grid(to).strict());
        let mut state = from.fresh(at(0));
        for now in [5_600, 5_700, 5_900] {
            assert!(from.decide(&mut state, at(now), 2).is_admitted());
        }
        to.rescale(&mut state, &from, at(6_000));
        assert_eq!(to.peek(&state, at(6_000), 0).remaining(), 4);
        assert!(to.decide(&mut state, at(6_000), 4).is_admitted());
        // Every cost counts for at least a period.
        assert_eq!(to.peek(&state, at(7_199), 0).remaining(), 0);
        assert_eq!(to.peek(&state, at(9_000), 0).remaining(), 10);
    }
}

/// Stored permits mean something only under the settings that stored them.
///
/// Shows promise 17.
#[test]
fn a_warm_up_of_other_settings_is_cold_and_its_line_keeps_its_turns() {
    let warm_up = |limit| WarmUp::new(Quota::per_second(limit), Duration::from_secs(4));
    let slow = warm_up(2);
    let mut before = slow.fresh(at(0));
    for _ in 0..6 {
        slow.charge(&mut before, at(0), 1);
    }
    let mut state = before;
    slow.max_cost(50).rescale(&mut state, &slow, at(0));
    assert_eq!(state, before, "another setting of costs changes nothing");
    let free = slow.peek(&before, at(0), 0).reset_after;
    let now = at(u64::try_from(free.as_nanos()).expect("short"));
    let longer = WarmUp::new(slow.quota(), Duration::from_secs(9));
    for other in [warm_up(3), longer, slow.cold_factor(7)] {
        let (mut state, mut cold) = (before, other.fresh(now));
        other.rescale(&mut state, &slow, at(0));
        assert_eq!(other.peek(&state, at(0), 0).reset_after, free);
        for _ in 0..6 {
            let decision = other.decide(&mut state, now, 1);
            assert_eq!(decision, other.decide(&mut cold, now, 1), "{other:?}");
        }
    }
}

/// What a bucket is, in whole numbers: `used` counts parts of which a unit has as many as the period has
/// nanoseconds.
struct Model {
    used: u64,
    at: u64,
    period: u64,
    limit: u64,
    burst: u64,
}

impl Model {
    fn settle(&mut self, now: u64) {
        self.used = self.used.saturating_sub((now - self.at) * self.limit);
        self.at = now;
    }

    /// Returns what a lower rate forgets.
    fn change(&mut self, now: u64, limit: u64, burst: u64) -> u64 {
        self.settle(now);
        let as_long_as_before = (self.used * limit).div_ceil(self.limit);
        let after = self
            .used
            .min(as_long_as_before.max(10 * burst * self.period));
        let forgotten = self.used - after;
        (self.used, self.limit, self.burst) = (after, limit, burst);
        forgotten
    }

    fn take(&mut self, now: u64, cost: u64) -> bool {
        self.settle(now);
        let after = self.used + cost * self.period;
        let is_admitted = after <= self.burst * self.period;
        if is_admitted {
            self.used = after;
        }
        is_admitted
    }

    fn remaining(&self) -> u64 {
        (self.burst * self.period).saturating_sub(self.used) / self.period
    }
}

/// What happened and when, in parts of a unit.
#[derive(Default)]
struct Trace {
    admitted: Vec<(u64, u64)>,
    /// By a rate that became lower.
    forgotten: Vec<(u64, u64)>,
}

impl Trace {
    fn forgotten_in(&self, start: u64, end: u64) -> u64 {
        let inside = |(at, _): &&(u64, u64)| (start..=end).contains(at);
        let parts = self.forgotten.iter().filter(inside);
        parts.map(|(_, parts)| parts).sum()
    }
}

/// Decides under settings that change: of one side that is changed, or of two sides with different limits,
/// each of which finds what the other one has written. Returns the admissions, and the first difference
/// to the model.
struct Changing {
    period: u64,
    /// Limit and burst.
    settings: Vec<(u64, u64)>,
    has_debts: bool,
}

impl Changing {
    fn new(random: &mut Random, sides: u64, most_burst: u64) -> Self {
        let mut setting = || (1 + random.below(9), 1 + random.below(most_burst));
        Self {
            settings: (0..sides).map(|_| setting()).collect(),
            period: 1 + random.below(40),
            has_debts: false,
        }
    }

    fn run<A: Algorithm>(
        &self,
        random: &mut Random,
        make: impl Fn(Quota) -> A,
        convert: impl Fn(&A, &mut A::State, &A, Tick),
    ) -> (Trace, Option<String>) {
        let with = |(limit, burst)| make(quota(limit, self.period).burst(burst));
        let (limit, burst) = self.settings[0];
        let mut model = Model {
            used: 0,
            at: 0,
            period: self.period,
            limit,
            burst,
        };
        let mut algorithm = with(self.settings[0]);
        let mut state = algorithm.fresh(at(0));
        let (mut now, mut trace, mut fault) = (0, Trace::default(), None);
        for step in 0..300 {
            now += random.below(4);
            if random.below(2) == 0 {
                let setting = *random.pick(&self.settings);
                let next = with(setting);
                convert(&next, &mut state, &algorithm, at(now));
                let forgotten = model.change(now, setting.0, setting.1);
                trace.forgotten.push((now, forgotten));
                algorithm = next;
            }
            let cost = 1 + random.below(2);
            if self.has_debts && random.below(20) == 0 {
                let _ = algorithm.charge(&mut state, at(now), cost);
                model.settle(now);
                model.used += cost * self.period;
            }
            let decision = algorithm.decide(&mut state, at(now), cost);
            let expected = (model.take(now, cost), model.remaining());
            if decision.is_admitted() {
                trace.admitted.push((now, cost * self.period));
            }
            let got = (decision.is_admitted(), decision.remaining());
            if got != expected && fault.is_none() {
                fault = Some(format!("step {step} at {now}: {got:?}, not {expected:?}"));
            }
        }
        (trace, fault)
    }

    /// The first interval in which more was admitted than the larger burst and the larger limit allow, and what
    /// lower rates forgot in it.
    fn broken(&self, trace: &Trace) -> Option<(u64, u64)> {
        let largest = |of: fn(&(u64, u64)) -> u64| self.settings.iter().map(of).max();
        let limit = largest(|setting| setting.0).expect("a side");
        let burst = largest(|setting| setting.1).expect("a side");
        trace
            .admitted
            .iter()
            .enumerate()
            .find_map(|(first, (start, _))| {
                let mut sum = 0;
                trace.admitted[first..].iter().find_map(|(end, parts)| {
                    sum += parts;
                    let excess = sum.saturating_sub(burst * self.period + (end - start) * limit);
                    let is_broken = excess > 0 && excess > trace.forgotten_in(*start, *end);
                    is_broken.then_some((*start, *end))
                })
            })
    }
}

fn exactly<A: Algorithm>(to: &A, state: &mut A::State, from: &A, now: Tick) {
    to.rescale(state, from, now);
}

/// The mistake: a conversion that drops the part of a nanosecond that remains.
fn losing_the_remainder<A: Algorithm>(to: &A, state: &mut A::State, from: &A, now: Tick) {
    to.rescale(state, from, now);
    let bytes = state_to_bytes(to, state).expect("a state");
    let whole = bytes
        .iter()
        .position(|byte| byte & 0x80 == 0)
        .expect("a number");
    let bytes = [&bytes[..=whole], &[0]].concat();
    *state = state_from_bytes(to, &bytes).expect("a moment without a fraction");
}

/// Shows promises 17, 29.
#[test]
fn a_bucket_whose_limit_changes_decides_as_its_model_and_within_the_larger_limit() {
    for seed in seeds(300) {
        let mut random = Random::new(seed);
        // Of a burst of 60 more may be used than ten empty buckets have.
        let most_burst = if seed % 4 == 0 { 60 } else { 6 };
        let changing = Changing::new(&mut random, 2 + seed % 5, most_burst);
        let (trace, fault) = changing.run(&mut random, TokenBucket::new, exactly);
        assert_eq!(fault, None, "seed {seed}");
        assert_eq!(changing.broken(&trace), None, "seed {seed}");
        let forgotten = trace.forgotten_in(0, u64::MAX);
        assert!(
            forgotten == 0 || most_burst == 60,
            "seed {seed}: {forgotten} forgotten"
        );
        let (trace, fault) = changing.run(&mut random, LeakyBucket::new, exactly);
        assert_eq!(fault, None, "seed {seed}");
        assert_eq!(changing.broken(&trace), None, "seed {seed}");
        let indebted = Changing {
            has_debts: true,
            ..changing
        };
        let (_, fault) = indebted.run(&mut random, TokenBucket::new, exactly);
        assert_eq!(fault, None, "seed {seed}, with debts");
    }
}

#[test]
fn a_conversion_that_loses_a_remainder_is_caught_by_the_model_and_by_the_law() {
    let (mut differ, mut broken) = (0, 0);
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let changing = Changing::new(&mut random, 2, 6);
        let convert = losing_the_remainder;
        let (trace, fault) = changing.run(&mut random, TokenBucket::new, convert);
        differ += u32::from(fault.is_some());
        broken += u32::from(changing.broken(&trace).is_some());
    }
    assert!(differ > 50 && broken > 20, "{differ} and {broken} of 200");
}

/// The largest number that `sides`, which share a state, admit in an interval of `length`, or in a window
/// of that length.
fn most_admitted<A: Algorithm>(
    random: &mut Random,
    sides: &[A],
    length: u64,
    is_aligned: bool,
) -> u64 {
    let mut state = sides[0].fresh(at(0));
    let mut admitted: Vec<u64> = Vec::new();
    let mut now = 0;
    for _ in 0..300 {
        now += random.below(length / 4);
        let side = random.pick(sides);
        while side.decide(&mut state, at(now), 1).is_admitted() {
            admitted.push(now);
        }
    }
    let within = |start: u64| {
        let start = if is_aligned {
            start - start % length
        } else {
            start
        };
        let inside = |moment: &&u64| (start..start + length).contains(*moment);
        admitted.iter().filter(inside).count() as u64
    };
    admitted
        .iter()
        .map(|start| within(*start))
        .max()
        .unwrap_or(0)
}

/// States of windows, grids and logs need no conversion: each side reads what the other has written.
///
/// Shows promises 17, 29.
#[test]
fn two_sides_with_different_limits_that_share_a_state_admit_the_larger_limit() {
    for seed in seeds(60) {
        let mut random = Random::new(seed);
        let period = 20 + random.below(100);
        let limits = [1 + random.below(9), 1 + random.below(9)];
        let most = limits[0].max(limits[1]);
        let quotas = limits.map(|limit| quota(limit, period));
        let windows = quotas.map(FixedWindow::new);
        let logs = quotas.map(SlidingLog::new);
        let grids = quotas.map(|quota| SlidingGrid::new(quota).strict());
        let admitted = [
            most_admitted(&mut random, &windows, period, true),
            most_admitted(&mut random, &logs, period, false),
            most_admitted(&mut random, &grids, period, false),
        ];
        assert_eq!(admitted, [most; 3], "seed {seed}: {limits:?} per {period}");
    }
}
