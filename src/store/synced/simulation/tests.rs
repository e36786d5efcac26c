//! Fleets of each algorithm, and fleets with a mistake.

use std::time::Duration;

use super::{INTERVAL, Mistake, Simulation};
use crate::algorithm::{
    Algorithm, FixedWindow, LeakyBucket, SlidingGrid, SlidingLog, SlidingWindow, TokenBucket,
    WarmUp,
};
use crate::clock::Tick;
use crate::quota::Quota;
use crate::store::{
    cas::report::Report,
    fleet::simulation::{KEYS, MAX_DELAY, MS, WRONG, promise::Promise},
};

/// Runs a fleet, and checks what it has admitted.
fn check<A: Algorithm>(
    algorithm: &A,
    promise: Promise,
    is_exact: bool,
    (seed, strict, mistake): (u64, Option<u32>, Mistake),
) -> Simulation<A> {
    let mut simulation = Simulation::new(algorithm, seed, strict, mistake);
    simulation.run();
    let others = simulation.machines.len() as u64 - 1 + simulation.crashes;
    // What a machine may admit that others do not know of yet.
    let unknown = match (strict, promise) {
        (Some(strict), _) => Some(u64::from(strict)),
        // With the longest time between two exchanges, the share of a quiet machine, and what a wrong
        // clock refills.
        (None, Promise::Bucket(capacity, unit)) if simulation.is_reliable => {
            Some(2 * capacity + (INTERVAL + 2 * MAX_DELAY + WRONG).div_ceil(unit))
        }
        _ => None,
    };
    for key in 0..KEYS {
        let of_key = simulation.admitted.iter().filter(|cost| cost.0 == key);
        let mut costs: Vec<_> = of_key.map(|cost| (cost.1, cost.2)).collect();
        costs.sort_unstable();
        if let Some(unknown) = unknown {
            let excess = promise.excess(&costs);
            assert!(
                excess <= others * unknown,
                "seed {seed}: {excess} in excess, {others} other machines with {unknown} each"
            );
        }
    }
    for machine in &simulation.machines {
        assert_eq!(machine.node.pending.len(), 0, "nothing is left to be sent");
        let dropped = i128::from(machine.node.dropped());
        assert_eq!(machine.unreported, dropped, "each cost is counted once");
        assert_eq!(machine.node.lost(), 0);
    }
    if simulation.crashes == 0 && is_exact {
        let now = Tick::from_nanos(simulation.time.now);
        for (key, oracle) in &simulation.oracles {
            let record = &simulation.records[&key.to_string()];
            let nothing = Report {
                node: 0,
                sequence: 0,
                changes: &[],
                present_since: now,
            };
            let stored = simulation.decider.report(record, now, &nothing);
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

/// Runs fleets of each algorithm.
fn check_all(seed: u64, strict: Option<u32>, mistake: Mistake) {
    let quota = Quota::per(20, PERIOD);
    let (second, unit) = (1_000 * MS, 50 * MS);
    let run = (seed, strict, mistake);
    match seed % 8 {
        0 => drop(check(
            &TokenBucket::new(quota),
            Promise::Bucket(20, unit),
            false,
            run,
        )),
        1 => drop(check(
            &FixedWindow::new(quota),
            Promise::Window(20, second),
            true,
            run,
        )),
        2 => drop(check(
            &SlidingLog::new(quota),
            Promise::Interval(20, second),
            false,
            run,
        )),
        3 => drop(check(
            &SlidingWindow::new(quota),
            Promise::Weighted(20, second),
            true,
            run,
        )),
        4 => drop(check(
            &SlidingGrid::new(quota).cells(10),
            Promise::Interval(20, second / 10 * 9),
            true,
            run,
        )),
        5 => drop(check(
            &LeakyBucket::new(quota),
            Promise::Bucket(20, unit),
            false,
            run,
        )),
        6 => drop(check(
            &(
                TokenBucket::new(quota),
                FixedWindow::new(Quota::per(50, PERIOD)),
            ),
            Promise::Bucket(20, unit),
            false,
            run,
        )),
        _ => drop(check(
            &WarmUp::new(quota, PERIOD),
            Promise::None,
            false,
            run,
        )),
    }
}

#[test]
fn machines_with_a_strict_budget_exceed_the_limit_by_at_most_the_budgets_of_the_others() {
    for seed in 0..seeds() * 8 {
        let strict = u32::try_from(2 + seed / 8 % 4).expect("small");
        check_all(seed, Some(strict), Mistake::None);
    }
}

#[test]
fn machines_exceed_the_limit_by_at_most_what_they_admit_between_two_exchanges() {
    for seed in 0..seeds() * 8 {
        check_all(seed, None, Mistake::None);
    }
}

/// Each mistake is found by one of a few fleets.
#[test]
fn the_checks_find_mistakes() {
    for mistake in [
        Mistake::ResendWithoutSequence,
        Mistake::DropAtTurn,
        Mistake::ClampDebt,
        Mistake::AdoptTwice,
        Mistake::ForgetLostReports,
        Mistake::NoBudget,
    ] {
        let is_found = (0..160).any(|seed| {
            let run = || check_all(seed, Some(2), mistake);
            std::panic::catch_unwind(run).is_err()
        });
        assert!(is_found, "{mistake:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_decisions() {
    let admitted = || {
        let bucket = TokenBucket::new(Quota::per(20, PERIOD));
        let run = (5, None, Mistake::None);
        check(&bucket, Promise::Bucket(20, 50 * MS), false, run).admitted
    };
    assert_eq!(admitted(), admitted());
}
