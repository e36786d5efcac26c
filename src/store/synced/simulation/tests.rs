//! Fleets of each algorithm, and fleets with a mistake.

use std::time::Duration;

use super::{Admitted, INTERVAL, Mistake, Simulation};
use crate::algorithm::{
    FixedWindow, LeakyBucket, Portable, SlidingGrid, SlidingLog, SlidingWindow, TokenBucket, WarmUp,
};
use crate::clock::Tick;
use crate::quota::Quota;
use crate::store::{
    cas::report::Report,
    fleet::simulation::{
        KEYS, MAX_DELAY, MS, Quotas, WRONG,
        promise::Promise,
        seeds::{any_panics, run_all},
    },
};

impl<A: Portable> Simulation<A> {
    /// How many units more than the promise may be admitted of a key, if that is bounded.
    fn bound(&self, key: u64, promise: Promise) -> Option<u64> {
        let others = self.machines.len() as u64 - 1 + self.crashes;
        let conditions = self.conditions;
        match (self.strict, promise) {
            (Some(strict), _) => {
                let arrived = self.resets.iter().map(|(reset, _)| reset);
                let resets = arrived
                    .chain(&self.lost_resets)
                    .filter(|reset| **reset == key);
                // Others do not know what a machine admits after its reset until it is sent.
                let mut unknown = others + 2 * resets.count() as u64;
                if conditions.quotas == Quotas::Changed {
                    // What was admitted by the old quota is reported to the new one.
                    unknown += others + 1;
                }
                let strict = u64::from(strict);
                if matches!(promise, Promise::Bucket(burst, _) if burst < strict) {
                    // A machine corrects its clock at its first exchange. What it has used of a key that it has
                    // not exchanged yet then seems refilled.
                    unknown += 1;
                }
                Some(unknown * strict)
            }
            // With the longest time between two exchanges, the share of a quiet machine, and what a
            // wrong clock refills.
            (None, Promise::Bucket(capacity, unit))
                if conditions.is_reliable && conditions.is_simple() =>
            {
                let refilled = (INTERVAL + 2 * MAX_DELAY + WRONG).div_ceil(unit);
                Some(others * (2 * capacity + refilled))
            }
            _ => None,
        }
    }

    /// What was admitted of a key, by the `configuration` if one is given, in the times before, between and
    /// after its resets.
    fn parts(&self, key: u64, configuration: Option<usize>) -> Vec<Vec<(u64, u64)>> {
        let mut parts = Vec::new();
        let mut begin = 0;
        let resets = self.resets.iter().filter(|(reset, _)| *reset == key);
        for end in resets.map(|(_, at)| *at).chain([u64::MAX]) {
            let is_in = |cost: &&Admitted| {
                cost.key == key
                    && configuration.is_none_or(|number| cost.configuration == number)
                    && (begin..end).contains(&cost.really_at)
            };
            let part = self.admitted.iter().filter(is_in);
            let mut part: Vec<_> = part.map(|cost| (cost.at, cost.cost)).collect();
            part.sort_unstable();
            parts.push(part);
            begin = end;
        }
        parts
    }

    /// Checks what was admitted by one configuration or by all.
    fn check_excess(&self, promise: Promise, configuration: Option<usize>, seed: u64) {
        let error = self.conditions.clock_error;
        // If clocks differ, an interval has parts of two windows, each of which may be exceeded.
        let windows = match promise {
            Promise::Window(..) if error > 0 => 2,
            _ => 1,
        };
        let promise = promise.with_clock_error(error);
        for key in 0..KEYS {
            let Some(bound) = self.bound(key, promise).map(|bound| windows * bound) else {
                continue;
            };
            for part in self.parts(key, configuration) {
                let excess = promise.excess(&part);
                assert!(
                    excess <= bound,
                    "seed {seed}: {excess} of {bound} in excess"
                );
            }
        }
    }
}

/// Runs a fleet, and checks what it has admitted.
fn check<A: Portable>(
    algorithms: &[A; 2],
    promises: [Promise; 2],
    is_exact: bool,
    (seed, strict, mistake): (u64, Option<u32>, Mistake),
) -> Simulation<A> {
    let mut simulation = Simulation::new(algorithms, seed, strict, mistake);
    simulation.run();
    let conditions = simulation.conditions;
    if conditions.quotas == Quotas::Changed {
        simulation.check_excess(promises[0].with(promises[1]), None, seed);
    } else {
        for (number, promise) in promises.into_iter().enumerate() {
            simulation.check_excess(promise, Some(number), seed);
        }
    }
    for machine in &simulation.machines {
        assert_eq!(machine.node.pending.len(), 0, "nothing is left to be sent");
        let dropped = i128::from(machine.node.dropped());
        if !conditions.is_changed {
            assert_eq!(machine.unreported, dropped, "each cost is counted once");
        }
        assert_eq!(machine.node.lost(), 0);
    }
    if simulation.crashes == 0 && is_exact && conditions.is_simple() {
        let now = Tick::from_nanos(simulation.time.now);
        let decider = &simulation.deciders[0];
        for (key, oracle) in &simulation.oracles {
            let (record, _) = &simulation.records[&key.to_string()];
            let nothing = Report {
                node: 0,
                sequence: 0,
                changes: &[],
                present_since: now,
                clocks_differ: false,
            };
            let algorithm = &decider.algorithm;
            let stored = decider.report(record, now, &nothing);
            let stored = algorithm.peek(&stored.expect("readable").state, now, 0);
            assert_eq!(stored, algorithm.peek(oracle, now, 0), "an exact total");
        }
    }
    simulation
}

/// How many fleets are simulated per algorithm.
fn seeds() -> u64 {
    let seeds = std::env::var("SYNCED_SEEDS").ok();
    seeds.and_then(|seeds| seeds.parse().ok()).unwrap_or(32)
}

const PERIOD: Duration = Duration::from_secs(1);
const SECOND: u64 = 1_000 * MS;
/// The limits. The second one is that of a rolling deploy, or of a change.
const LIMITS: [u64; 2] = [20, 10];

/// The same algorithm with both limits.
fn with_limits<A>(algorithm: impl Fn(Quota) -> A) -> [A; 2] {
    LIMITS.map(|limit| algorithm(Quota::per(limit, PERIOD)))
}

/// How many cases of algorithms there are.
const CASES: u64 = 10;
/// The largest cost of a request.
const MAX_COST: u64 = 2;

/// Runs fleets of each algorithm.
fn check_all(seed: u64, strict: Option<u32>, mistake: Mistake) {
    let buckets = LIMITS.map(|limit| Promise::Bucket(limit, SECOND / limit));
    // A clock that is behind by the delay of a reply refills less than one unit.
    let small_buckets = LIMITS.map(|limit| Promise::Bucket(MAX_COST + 1, SECOND / limit));
    let intervals = |length| LIMITS.map(|limit| Promise::Interval(limit, length));
    let run = (seed, strict, mistake);
    match seed % CASES {
        0 => drop(check(&with_limits(TokenBucket::new), buckets, false, run)),
        1 => {
            let promises = LIMITS.map(|limit| Promise::Window(limit, SECOND));
            drop(check(&with_limits(FixedWindow::new), promises, true, run));
        }
        2 => drop(check(
            &with_limits(SlidingLog::new),
            intervals(SECOND),
            false,
            run,
        )),
        3 => {
            let promises = LIMITS.map(|limit| Promise::Weighted(limit, SECOND));
            drop(check(&with_limits(SlidingWindow::new), promises, true, run));
        }
        4 => drop(check(
            &with_limits(|quota| SlidingGrid::new(quota).cells(10)),
            intervals(SECOND / 10 * 9),
            true,
            run,
        )),
        5 => drop(check(&with_limits(LeakyBucket::new), buckets, false, run)),
        6 => {
            // Several limits cannot be changed to one quota.
            let bucket = TokenBucket::new(Quota::per(LIMITS[0], PERIOD));
            let window = FixedWindow::new(Quota::per(50, PERIOD));
            drop(check(&[(bucket, window); 2], [buckets[0]; 2], false, run));
        }
        7 => {
            let algorithms = with_limits(|quota| WarmUp::new(quota, PERIOD));
            drop(check(&algorithms, small_buckets, false, run));
        }
        8 => {
            let algorithms = with_limits(|quota| TokenBucket::new(quota.burst(MAX_COST)));
            drop(check(&algorithms, small_buckets, false, run));
        }
        _ => {
            let fast = TokenBucket::new(Quota::per(2 * LIMITS[0], PERIOD).burst(MAX_COST));
            let slow = TokenBucket::new(Quota::per(LIMITS[0], PERIOD));
            drop(check(&[(fast, slow); 2], [buckets[0]; 2], false, run));
        }
    }
}

#[test]
fn machines_with_a_strict_budget_exceed_the_limit_by_at_most_the_budgets_of_the_others() {
    run_all(seeds() * CASES, |seed| {
        let strict = u32::try_from(2 + seed / CASES % 4).expect("small");
        check_all(seed, Some(strict), Mistake::None);
    });
}

#[test]
fn machines_exceed_the_limit_by_at_most_what_they_admit_between_two_exchanges() {
    run_all(seeds() * CASES, |seed| check_all(seed, None, Mistake::None));
}

/// Checks that one of these fleets shows each mistake.
fn assert_found(mistakes: &[Mistake], fleets: u64) {
    for mistake in mistakes {
        let is_found = any_panics(fleets, |seed| check_all(seed, Some(2), *mistake));
        assert!(is_found, "{mistake:?}");
    }
}

/// Each mistake is found by one of a few fleets.
#[test]
fn the_checks_find_mistakes() {
    let mistakes = [
        Mistake::ResendWithoutSequence,
        Mistake::DropAtTurn,
        Mistake::ClampDebt,
        Mistake::AdoptTwice,
        Mistake::ForgetLostReports,
        Mistake::NoBudget,
        Mistake::CountTooEarly,
    ];
    assert_found(&mistakes, 800);
}

/// These need more of them.
#[test]
fn the_checks_find_rare_mistakes() {
    assert_found(&[Mistake::ResetTwice, Mistake::ReportToOther], 100_000);
}

#[test]
fn the_same_seed_gives_the_same_decisions() {
    let admitted = || {
        let buckets = with_limits(TokenBucket::new);
        let promises = LIMITS.map(|limit| Promise::Bucket(limit, SECOND / limit));
        check(&buckets, promises, false, (5, None, Mistake::None)).admitted
    };
    assert_eq!(admitted(), admitted());
}
