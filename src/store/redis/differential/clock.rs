//! The scripts after the server's clock was set.

use std::time::Duration;

use super::{RedisServer, Step, run_script};
use crate::algorithm::{
    Algorithm, FixedWindow, IntoAlgorithm, LeakyBucket, SlidingGrid, SlidingLog, SlidingWindow,
    TokenBucket,
};
use crate::backend::Op;
use crate::decision::Decision;
use crate::quota::Quota;

/// A whole second. It is a morning in Tokyo.
const THEN: u64 = 1_700_000_000_000_000;
const SECOND: Duration = Duration::from_secs(1);

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).expect("small figures")
}

/// Exhausts a key and sets the clock back. The key is denied for at most `longest`.
fn check<A: Algorithm>(connection: &mut redis::Connection, algorithm: &A, longest: Duration) {
    for step in [SECOND / 3, SECOND, 1_000 * SECOND] {
        check_step(connection, algorithm, step, longest);
    }
}

fn check_step<A: Algorithm>(
    connection: &mut redis::Connection,
    algorithm: &A,
    step: Duration,
    longest: Duration,
) {
    let quota = algorithm.quota();
    let limit = quota.limit();
    let back = THEN - micros(step);
    // Forward again, much further than it was.
    let later = THEN + micros(10_000 * quota.period());
    let half_a_unit = micros(quota.period()) / limit / 2;
    let mut calls: Vec<(u64, Op)> = Vec::new();
    calls.extend((0..limit).map(|_| (THEN, Op::Take(1))));
    calls.extend([
        (THEN, Op::Take(1)),
        (back, Op::Take(1)),
        (back + half_a_unit, Op::Take(1)),
        (back + micros(longest), Op::Take(1)),
        (later, Op::Take(limit)),
        (later, Op::Take(1)),
    ]);
    let steps = calls.into_iter().map(|(now, op)| Step {
        now,
        variant: 0,
        op,
    });
    let variants = std::slice::from_ref(algorithm);
    let steps: Vec<_> = steps.collect();
    let decisions = run_script(connection, variants, &steps, |body| body);
    let end = &decisions[decisions.len() - 6..];
    let retry_after = end[1].retry_after;
    assert!(
        retry_after.is_some_and(|after| after <= longest),
        "{algorithm:?}, {step:?}: {retry_after:?}"
    );
    let admitted: Vec<_> = end.iter().map(Decision::is_admitted).collect();
    let expected = [false, false, false, true, true, false];
    assert_eq!(admitted, expected, "{algorithm:?}, {step:?}\n{end:#?}");
}

/// A key is denied for as long as an exhausted one, and no longer.
///
/// Shows promise 91.
#[test]
fn a_clock_set_back_admits_no_more_and_denies_no_longer_than_promised() {
    let server = RedisServer::start();
    let server = &mut server.connection();
    let quota = Quota::per_second(4);
    check(server, &TokenBucket::new(quota), SECOND / 4);
    check(server, &LeakyBucket::new(quota), SECOND / 4);
    #[cfg(feature = "governor")]
    check(server, &crate::algorithm::Gcra::new(quota), SECOND / 4);
    check(server, &FixedWindow::new(quota), SECOND);
    check(server, &FixedWindow::new(quota).anchored(), SECOND);
    check(server, &SlidingLog::new(quota), SECOND);
    check(server, &SlidingGrid::new(quota), SECOND);
    check(server, &SlidingGrid::new(quota).strict(), SECOND * 11 / 10);
    let set = (LeakyBucket::new(quota), SlidingLog::new(quota));
    check(server, &set.into_algorithm(), SECOND);
    // A part of a unit has to leave the previous window.
    let longest = SECOND + Duration::from_micros(1);
    check(server, &SlidingWindow::new(quota), longest);
}

/// Shows promise 91.
#[cfg(feature = "calendar")]
#[test]
fn a_calendar_window_after_the_clock_was_set_back_is_no_longer() {
    let server = RedisServer::start();
    let window = crate::algorithm::CalendarWindow::new(Quota::per_day(4), "Asia/Tokyo");
    let window = window.expect("a zone");
    let day = Duration::from_secs(86_400);
    for step in [day, 1_000 * day] {
        check_step(&mut server.connection(), &window, step, day);
    }
}
