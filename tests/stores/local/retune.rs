//! Quota changes while a table is in use.

use std::time::Duration;

use tower_throttle::algorithm::Algorithm;
use tower_throttle::{
    FixedWindow, LeakyBucket, Local, ManualClock, Quota, SlidingLog, SlidingWindow, TokenBucket,
    clock::Clock,
};

use crate::random::Random;
use test_support::from_env;

/// Applies random requests and quota changes to a table and to states that are rescaled
/// immediately.
fn check_changes<A: Algorithm>(algorithm: &A, quotas: &[Quota], seed: u64) {
    let mut random = Random::new(seed);
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(1_000_000));
    let local = Local::new(algorithm.clone())
        .with_clock(clock.clone())
        .capacity(200);
    let mut current = algorithm.clone();
    let mut states: Vec<Option<A::State>> = vec![None; 40];
    for _ in 0..300 {
        clock.advance(Duration::from_nanos(random.below(600_000_000)));
        let now = clock.now();
        if random.below(12) == 0 {
            let quota = quotas[usize::try_from(random.below(quotas.len() as u64)).expect("few")];
            let next = algorithm.with_quota(quota).expect("a supported quota");
            local
                .set_algorithm(next.clone())
                .expect("every quota is accepted");
            for slot in &mut states {
                // A key whose state has expired is treated as unused.
                let state = slot.take();
                *slot = state.filter(|state| current.forgettable_at(state) > now);
                if let Some(state) = slot {
                    next.rescale(state, &current, now);
                }
            }
            current = next;
        }
        let key = usize::try_from(random.below(40)).expect("few");
        // At least 1, because a cost of 0 stores no state.
        let cost = 1 + random.below(3);
        let state = states[key].get_or_insert_with(|| current.fresh(now));
        assert_eq!(
            local.check(&key, cost),
            current.decide(state, now, cost),
            "seed {seed}"
        );
    }
    assert_eq!(local.stats().evicted, 0);
}

/// Shows promise 47.
#[test]
fn a_change_applies_as_of_its_time_even_if_a_key_is_used_later() {
    let quotas = [
        Quota::per_second(5),
        Quota::per_second(20),
        Quota::per(3, Duration::from_secs(2)),
        Quota::per_minute(9),
    ];
    // Only buckets have a burst.
    let bursts = quotas.map(|quota| quota.burst(7));
    for seed in 0..from_env("TRACES", 60) {
        check_changes(&LeakyBucket::new(quotas[0]), &bursts, seed);
        check_changes(&FixedWindow::new(quotas[0]), &quotas, seed);
        check_changes(&SlidingWindow::new(quotas[0]), &quotas, seed);
        check_changes(&SlidingLog::new(quotas[0]), &quotas, seed);
        check_changes(&TokenBucket::new(quotas[0]).initial(1), &bursts, seed);
    }
}

/// Shows promise 29.
#[test]
fn concurrent_changes_admit_no_more_than_the_larger_quota() {
    let local = Local::new(FixedWindow::new(Quota::per_day(50)))
        .with_clock(ManualClock::new())
        .capacity(100);
    let admitted: usize = std::thread::scope(|scope| {
        let deciders: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    (0..4_000)
                        .filter(|n| local.check(&(n % 8), 1).is_admitted())
                        .count()
                })
            })
            .collect();
        for round in 0..400 {
            let quota = Quota::per_day(if round % 2 == 0 { 30 } else { 50 });
            local.set_quota(quota).expect("every quota is accepted");
        }
        deciders
            .into_iter()
            .map(|decider| decider.join().expect("no panic"))
            .sum()
    });
    assert!(admitted <= 8 * 50, "{admitted}");
    assert!(admitted >= 8 * 30, "{admitted}");
}
