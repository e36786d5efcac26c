//! Fleets of each algorithm, and fleets with a mistake.

use std::time::Duration;

use super::{Mistake, Simulation};
use crate::algorithm::{
    Algorithm, FixedWindow, LeakyBucket, SlidingGrid, SlidingLog, SlidingWindow, TokenBucket,
};
use crate::quota::Quota;
use crate::store::fleet::simulation::{KEYS, MS, promise::Promise};

const PERIOD: Duration = Duration::from_secs(1);
/// A window that does not end.
const LONG: Duration = Duration::from_secs(1_000_000_000);
/// The limit of a long window.
const LONG_LIMIT: u64 = 200;

/// Runs a fleet, and checks that it keeps the promise of the algorithm.
fn check<A: Algorithm>(
    algorithm: &A,
    promise: Promise,
    (seed, mistake): (u64, Mistake),
) -> Simulation<A> {
    let mut simulation = Simulation::new(algorithm, seed, mistake);
    simulation.run();
    for key in 0..KEYS {
        let of_key = simulation.admitted.iter().filter(|cost| cost.key == key);
        let mut costs: Vec<_> = of_key.map(|cost| (cost.at, cost.cost)).collect();
        costs.sort_unstable();
        let excess = promise.excess(&costs);
        assert_eq!(excess, 0, "seed {seed}: in excess of the promise");
    }
    for machine in &simulation.machines {
        assert_eq!(machine.node.keys.len(), 0, "all is returned and reported");
        assert_eq!(machine.node.lost(), 0);
    }
    simulation
}

/// A window that does not end counts all that was admitted, once.
fn check_total(seed: u64, mistake: Mistake) {
    let window = FixedWindow::new(Quota::per(LONG_LIMIT, LONG));
    let promise = Promise::Window(LONG_LIMIT, u64::MAX);
    let simulation = check(&window, promise, (seed, mistake));
    for key in 0..KEYS {
        let of_key = simulation.admitted.iter().filter(|cost| cost.key == key);
        let admitted: u64 = of_key.map(|cost| cost.cost).sum();
        let (left, expected) = (simulation.remaining(key), LONG_LIMIT - admitted);
        if simulation.is_reliable {
            assert_eq!(left, expected, "seed {seed}: each cost is counted once");
        } else {
            assert!(left <= expected, "seed {seed}: a cost is not counted");
        }
    }
}

/// How many fleets are simulated per algorithm.
fn seeds() -> u64 {
    let seeds = std::env::var("LEASE_SEEDS").ok();
    seeds.and_then(|seeds| seeds.parse().ok()).unwrap_or(40)
}

/// Runs a fleet of one of the algorithms.
fn check_one(seed: u64, mistake: Mistake) {
    let quota = Quota::per(20, PERIOD);
    let (second, unit) = (1_000 * MS, 50 * MS);
    let run = (seed, mistake);
    match seed % 8 {
        0 => drop(check(
            &TokenBucket::new(quota),
            Promise::Bucket(20, unit),
            run,
        )),
        1 => drop(check(
            &FixedWindow::new(quota),
            Promise::Window(20, second),
            run,
        )),
        2 => drop(check(
            &SlidingLog::new(quota),
            Promise::Interval(20, second),
            run,
        )),
        3 => drop(check(
            &SlidingWindow::new(quota),
            Promise::Interval(40, second),
            run,
        )),
        4 => drop(check(
            &SlidingGrid::new(quota).cells(10),
            Promise::Interval(20, second / 10 * 9),
            run,
        )),
        5 => drop(check(
            &LeakyBucket::new(quota),
            Promise::Bucket(20, unit),
            run,
        )),
        6 => drop(check(
            &(
                TokenBucket::new(quota),
                FixedWindow::new(Quota::per(50, PERIOD)),
            ),
            Promise::Bucket(20, unit),
            run,
        )),
        _ => check_total(seed, mistake),
    }
}

#[test]
fn a_fleet_keeps_the_promise_of_its_algorithm() {
    for seed in 0..seeds() * 8 {
        check_one(seed, Mistake::None);
    }
}

/// Each mistake is found by one of a few fleets.
#[test]
fn the_checks_find_mistakes() {
    for mistake in [
        Mistake::ReturnTwice,
        Mistake::OutliveEnd,
        Mistake::UseLateReply,
        Mistake::ClockStops,
        Mistake::FreeExpired,
        Mistake::GrantOnRefill,
        Mistake::ForgetOthers,
    ] {
        let is_found = (0..400).any(|seed| {
            let run = || check_one(seed, mistake);
            std::panic::catch_unwind(run).is_err()
        });
        assert!(is_found, "{mistake:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_decisions() {
    let admitted = || {
        let bucket = TokenBucket::new(Quota::per(20, PERIOD));
        let run = (5, Mistake::None);
        check(&bucket, Promise::Bucket(20, 50 * MS), run).admitted
    };
    let first = admitted();
    assert!(first.len() > 20);
    assert_eq!(first, admitted());
}

/// Otherwise the checks would say little.
#[test]
fn a_fleet_under_load_admits_most_of_its_limit() {
    for seed in 0..8 {
        let bucket = TokenBucket::new(Quota::per(20, PERIOD));
        let mut simulation = Simulation::new(&bucket, seed, Mistake::None);
        (simulation.load, simulation.is_reliable) = (30, true);
        simulation.run();
        let admitted: u64 = simulation.admitted.iter().map(|cost| cost.cost).sum();
        // 4 seconds with 20 per second, and the burst. The last requests wait for a reply.
        assert!(admitted >= KEYS * 100 * 8 / 10, "seed {seed}: {admitted}");
        assert!(admitted <= KEYS * 103, "seed {seed}: {admitted}");
    }
}
