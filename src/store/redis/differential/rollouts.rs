//! Processes with other limits of one layout, or with other layouts, at one key.

use std::time::Duration;

use super::random::{Random, seeds};
use super::{RedisServer, Step, run_script};
use crate::algorithm::{
    AnyAlgorithm, FixedWindow, LeakyBucket, SlidingGrid, SlidingLog, SlidingWindow, TokenBucket,
};
use crate::backend::Op;
use crate::quota::Quota;

const SECOND: u64 = 1_000_000;
const STEPS: u64 = 400;

fn kinds(quota: Quota) -> [AnyAlgorithm; 7] {
    [
        AnyAlgorithm::new(FixedWindow::new(quota)),
        AnyAlgorithm::new(FixedWindow::new(quota).anchored()),
        AnyAlgorithm::new(SlidingWindow::new(quota)),
        AnyAlgorithm::new(SlidingGrid::new(quota)),
        AnyAlgorithm::new(SlidingLog::new(quota)),
        AnyAlgorithm::new(TokenBucket::new(quota)),
        AnyAlgorithm::new(LeakyBucket::new(quota)),
    ]
}

/// The moments, in microseconds, at which one of the variants admitted a unit, and the longest wait that was told.
fn admitted(
    connection: &mut redis::Connection,
    variants: &[AnyAlgorithm],
    random: &mut Random,
    sabotage: impl Fn(String) -> String,
) -> (Vec<u64>, u64) {
    let mut now = 1_700_000_000 * SECOND;
    let steps = (0..STEPS).map(|_| {
        now += random.below(SECOND);
        Step {
            now,
            variant: usize::try_from(random.below(variants.len() as u64)).expect("few"),
            op: Op::Take(1),
        }
    });
    let steps: Vec<_> = steps.collect();
    let decisions = run_script(connection, variants, &steps, sabotage);
    let waits = decisions.iter().filter_map(|decision| decision.retry_after);
    let longest = waits.max().unwrap_or_default().as_micros();
    let both = steps.iter().zip(&decisions);
    let passed = both.filter(|(_, decision)| decision.is_admitted());
    let moments = passed.map(|(step, _)| step.now).collect();
    (moments, u64::try_from(longest).expect("a short wait"))
}

/// The most within any span.
fn most_within(moments: &[u64], span: u64) -> u64 {
    let within = |(at, from): (usize, &u64)| {
        let rest = moments[at..].iter();
        rest.take_while(|moment| **moment < from + span).count() as u64
    };
    moments.iter().enumerate().map(within).max().unwrap_or(0)
}

/// Where two limits of one layout admit more than the larger one by itself may, or a bucket more than
/// max B + max L/W * T.
fn first_excess(sabotage: impl Fn(String) -> String) -> Option<String> {
    let server = RedisServer::start();
    let connection = &mut server.connection();
    let period = 20 * SECOND;
    for seed in seeds(20) {
        let random = &mut Random::new(71 << 40 | seed);
        let limits = [(); 2].map(|()| 1 + random.below(12));
        let quotas = limits.map(|limit| Quota::per(limit, Duration::from_micros(period)));
        let most = limits[0].max(limits[1]);
        for (one, other) in kinds(quotas[0]).into_iter().zip(kinds(quotas[1])) {
            let both = [one, other];
            let (moments, longest) = admitted(connection, &both, random, &sabotage);
            let is_log = both[0].get::<SlidingLog>().is_some();
            let bound = if is_log { most } else { 2 * most };
            let found = most_within(&moments, period);
            // What was used of a larger bucket drains at the lower rate.
            let is_bucket =
                both[0].get::<TokenBucket>().is_some() || both[0].get::<LeakyBucket>().is_some();
            if found > bound || longest > 2 * period && !is_bucket {
                return Some(format!("{found} of {bound}, {longest} us: {both:?}"));
            }
            assert!(moments.len() as u64 >= limits[0].min(limits[1]), "{both:?}");
        }
    }
    None
}

/// Shows promises 90, 391.
#[test]
fn two_limits_of_one_layout_admit_no_more_than_the_larger_one() {
    assert_eq!(first_excess(|body| body), None);
    let found = first_excess(|body| {
        let planted = body.replace("pcall('GET', key)", "nil");
        assert_ne!(planted, body, "the mistake is in the script");
        planted
    });
    assert!(found.is_some(), "a value that is not read");
}

/// Shows promise 90.
#[test]
fn a_lowered_limit_denies_for_no_longer_than_the_old_one_did() {
    let server = RedisServer::start();
    let connection = &mut server.connection();
    let minute = Quota::per_minute;
    for (before, after) in kinds(minute(10)).into_iter().zip(kinds(minute(1))) {
        let then = 1_700_000_000 * SECOND;
        let step = |now, variant, cost| Step {
            now,
            variant,
            op: Op::Take(cost),
        };
        // The last moment at which the old limit may count, and the time to live of the key.
        let end = then + 2 * 60 * SECOND + 1_100_000;
        let steps = [step(then, 0, 10), step(then, 1, 1), step(end, 1, 1)];
        let decisions = run_script(connection, &[before, after], &steps, |body| body);
        let admitted = decisions.iter().map(crate::decision::Decision::is_admitted);
        assert_eq!(admitted.collect::<Vec<_>>(), [true, false, true]);
    }
}

/// Shows promise 90.
#[test]
fn two_layouts_admit_at_most_the_sum_and_lock_nobody_out() {
    let server = RedisServer::start();
    let connection = &mut server.connection();
    let (hour, minute) = (Quota::per_hour(7), Quota::per_minute(3));
    for one in kinds(hour) {
        for other in kinds(minute) {
            let random = &mut Random::new(9);
            let both = [one.clone(), other.clone()];
            let (moments, longest) = admitted(connection, &both, random, |body| body);
            // Some 200 seconds.
            let bound = 2 * 7 + (2 + STEPS / 2 / 60) * 2 * 3;
            let found = moments.len() as u64;
            assert!(
                (7 + 3..=bound).contains(&found),
                "{found} of {bound}: {both:?}"
            );
            assert!(longest <= 2 * 3_600 * SECOND, "{longest}: {both:?}");
        }
    }
}
