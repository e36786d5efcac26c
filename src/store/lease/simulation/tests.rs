//! Fleets of each algorithm, and fleets with a mistake.

use std::time::Duration;

use super::{Admitted, Clocks, Conditions, Mistake, Simulation};
use crate::algorithm::{
    FixedWindow, LeakyBucket, Portable, SlidingGrid, SlidingLog, SlidingWindow, TokenBucket,
};
use crate::clock::nanos;
use crate::quota::Quota;
use crate::store::fleet::simulation::{
    KEYS, MS, Quotas, Timeline,
    promise::Promise,
    seeds::{any_panics, run_all},
};

const PERIOD: Duration = Duration::from_secs(1);
const SECOND: u64 = 1_000 * MS;
/// A window that does not end.
const LONG: Duration = Duration::from_secs(1_000_000_000);
/// The limits of long windows.
const LONG_LIMITS: [u64; 2] = [200, 100];
/// The limits of the others. A second one is that of a rolling deploy, or of a change.
const LIMITS: [u64; 2] = [20, 10];

/// The same algorithm with both limits.
fn with_limits<A>(limits: [u64; 2], algorithm: impl Fn(Quota) -> A) -> [A; 2] {
    limits.map(|limit| algorithm(Quota::per(limit, PERIOD)))
}

impl<A: Portable> Simulation<A> {
    /// What was admitted of a key, by the `configuration` if one is given, in the times before, between and
    /// after its resets.
    fn parts(&self, key: u64, configuration: Option<usize>) -> Vec<Vec<(u64, u64)>> {
        let is_counted = |cost: &&Admitted| {
            cost.key == key && configuration.is_none_or(|number| cost.configuration == number)
        };
        let admitted = self.admitted.iter().filter(is_counted);
        let mut costs: Vec<_> = admitted.map(|cost| (cost.at, cost.cost)).collect();
        costs.sort_unstable();
        let mut parts = Vec::new();
        for (_, at) in self.resets.iter().filter(|(reset, _)| *reset == key) {
            let later = costs.split_off(costs.partition_point(|cost| cost.0 < *at));
            parts.push(std::mem::replace(&mut costs, later));
        }
        parts.push(costs);
        parts
    }

    /// Checks that the fleet has kept the promises of its configurations.
    fn check(&self, promises: [Promise; 2], seed: u64) {
        let error = nanos(self.settings.clock_error);
        let promises = promises.map(|promise| promise.with_clock_error(error));
        for key in 0..KEYS {
            for part in self.parts(key, None) {
                if self.conditions.quotas == Quotas::Changed {
                    // Units that are held can be used after the change.
                    let excess = promises[0].with(promises[1]).excess(&part);
                    let most = self.deciders[0].algorithm.quota().capacity();
                    assert!(excess <= most, "seed {seed}: {excess} in excess");
                }
            }
            for (number, promise) in promises.into_iter().enumerate() {
                for part in self.parts(key, Some(number)) {
                    let excess = promise.excess(&part);
                    let is_kept = excess == 0 || self.conditions.quotas == Quotas::Changed;
                    assert!(is_kept, "seed {seed}: in excess of the promise");
                }
            }
        }
        for machine in &self.machines {
            assert_eq!(machine.node.keys.len(), 0, "all is returned and reported");
            assert_eq!(machine.node.lost(), 0);
        }
    }

    /// Checks that a window that does not end has counted all that was admitted, once.
    fn check_total(&self, seed: u64) {
        if self.conditions.quotas == Quotas::Changed {
            return;
        }
        for (key, (number, limit)) in (0..KEYS).flat_map(|key| {
            let limits = LONG_LIMITS.into_iter().enumerate();
            limits.map(move |limit| (key, limit))
        }) {
            let parts = self.parts(key, Some(number));
            let last = parts.last().into_iter().flatten();
            let admitted: u64 = last.map(|cost| cost.1).sum();
            let (left, expected) = (self.remaining(key, number), limit - admitted);
            assert!(left <= expected, "seed {seed}: a cost is not counted");
            if number == 0 && self.conditions.is_simple() && parts.len() == 1 {
                let penalties = self.penalties.iter().filter(|(of, _)| *of == key);
                let expected = expected.saturating_sub(penalties.map(|(_, cost)| cost).sum());
                assert_eq!(left, expected, "seed {seed}: each cost is counted once");
            }
        }
    }
}

/// Runs a fleet, and checks that it keeps the promises of its algorithms.
fn check<A: Portable>(
    algorithms: &[A; 2],
    promises: [Promise; 2],
    (seed, mistake): (u64, Mistake),
) -> Simulation<A> {
    let mut simulation = Simulation::new(algorithms, seed, mistake);
    simulation.run();
    simulation.check(promises, seed);
    simulation
}

/// How many fleets are simulated per algorithm.
fn seeds() -> u64 {
    let seeds = std::env::var("LEASE_SEEDS").ok();
    seeds.and_then(|seeds| seeds.parse().ok()).unwrap_or(60)
}

/// Runs a fleet of one of the algorithms.
fn check_one(seed: u64, mistake: Mistake) {
    let buckets = LIMITS.map(|limit| Promise::Bucket(limit, SECOND / limit));
    let intervals = |length| LIMITS.map(|limit| Promise::Interval(limit, length));
    let run = (seed, mistake);
    match seed % 8 {
        0 => drop(check(&with_limits(LIMITS, TokenBucket::new), buckets, run)),
        1 => {
            let promises = LIMITS.map(|limit| Promise::Window(limit, SECOND));
            drop(check(&with_limits(LIMITS, FixedWindow::new), promises, run));
        }
        2 => drop(check(
            &with_limits(LIMITS, SlidingLog::new),
            intervals(SECOND),
            run,
        )),
        3 => {
            let promises = LIMITS.map(|limit| Promise::Interval(2 * limit, SECOND));
            drop(check(
                &with_limits(LIMITS, SlidingWindow::new),
                promises,
                run,
            ));
        }
        4 => drop(check(
            &with_limits(LIMITS, |quota| SlidingGrid::new(quota).cells(10)),
            intervals(SECOND / 10 * 9),
            run,
        )),
        5 => drop(check(&with_limits(LIMITS, LeakyBucket::new), buckets, run)),
        6 => {
            // Several limits cannot be changed to one quota.
            let window = FixedWindow::new(Quota::per(50, PERIOD));
            let algorithms = with_limits([LIMITS[0]; 2], |quota| (TokenBucket::new(quota), window));
            drop(check(&algorithms, [buckets[0]; 2], run));
        }
        _ => {
            let windows = LONG_LIMITS.map(|limit| FixedWindow::new(Quota::per(limit, LONG)));
            let promises = LONG_LIMITS.map(|limit| Promise::Window(limit, u64::MAX));
            check(&windows, promises, run).check_total(seed);
        }
    }
}

#[test]
fn a_fleet_keeps_the_promise_of_its_algorithm() {
    run_all(seeds() * 8, |seed| check_one(seed, Mistake::None));
}

/// Checks that one of these fleets shows each mistake.
fn assert_found(mistakes: &[Mistake], fleets: u64) {
    for mistake in mistakes {
        let is_found = any_panics(fleets, |seed| {
            let conditions = Conditions::random(&mut Timeline::new(seed));
            if mistake.can_show(conditions, seed % 8 == 7) {
                check_one(seed, *mistake);
            }
        });
        assert!(is_found, "{mistake:?}");
    }
}

/// Each mistake is found by one of a few fleets.
#[test]
fn the_checks_find_mistakes() {
    assert_found(&Mistake::COMMON, 1_600);
}

#[test]
fn the_checks_find_rare_mistakes() {
    assert_found(&Mistake::RARE, 100_000);
}

#[test]
fn the_same_seed_gives_the_same_decisions() {
    let admitted = || {
        let buckets = with_limits(LIMITS, TokenBucket::new);
        let promises = LIMITS.map(|limit| Promise::Bucket(limit, SECOND / limit));
        check(&buckets, promises, (5, Mistake::None)).admitted
    };
    let first = admitted();
    assert!(first.len() > 20);
    assert_eq!(first, admitted());
}

/// Otherwise the checks would say little.
#[test]
fn a_fleet_under_load_admits_most_of_its_limit() {
    for seed in 0..8 {
        let conditions = Conditions {
            is_reliable: true,
            clocks: Clocks::Store,
            quotas: Quotas::One,
            is_changed: false,
        };
        let buckets = with_limits(LIMITS, TokenBucket::new);
        let time = Timeline::new(seed);
        let mut simulation =
            Simulation::with_conditions(&buckets, seed, Mistake::None, time, conditions);
        (simulation.load, simulation.most) = (30, usize::MAX);
        simulation.run();
        let admitted: u64 = simulation.admitted.iter().map(|cost| cost.cost).sum();
        // 4 seconds with 20 per second, and the burst. The last requests wait for a reply.
        assert!(admitted >= KEYS * 100 * 8 / 10, "seed {seed}: {admitted}");
        assert!(admitted <= KEYS * 103, "seed {seed}: {admitted}");
    }
}

/// Otherwise the checks would say nothing about them.
#[test]
fn fleets_meet_all_conditions() {
    let conditions = |seed| Conditions::random(&mut Timeline::new(seed));
    let seen: Vec<_> = (0..seeds() * 8).map(conditions).collect();
    for clocks in [Clocks::Store, Clocks::Servers, Clocks::Machines] {
        let of: Vec<_> = seen.iter().filter(|seen| seen.clocks == clocks).collect();
        assert!(
            of.iter()
                .any(|seen| seen.quotas == Quotas::Deploying && seen.is_changed)
        );
        assert!(
            of.iter()
                .any(|seen| seen.quotas == Quotas::Changed && !seen.is_reliable)
        );
    }
}
