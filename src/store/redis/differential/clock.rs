//! The scripts after the server's clock was set.

use std::time::Duration;

use super::{RedisServer, Step, run_scripts};
use crate::algorithm::{
    FixedWindow, LeakyBucket, Lockout, SlidingGrid, SlidingLog, SlidingWindow, TokenBucket, WarmUp,
};
use crate::decision::Decision;
use crate::quota::Quota;
use crate::store::redis::{
    call::Call,
    script::{Scripted, sealed::Script as _},
};

/// A whole second. It is a morning in Tokyo.
const THEN: u64 = 1_700_000_000_000_000;
const SECOND: Duration = Duration::from_secs(1);

/// A quota, and what it changes to.
fn quotas() -> [Quota; 2] {
    [Quota::per_second(4), Quota::per(4, 2 * SECOND)]
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).expect("small figures")
}

/// Runs calls, each at a time and under one of the variants.
fn decide<A: Scripted>(
    connection: &mut redis::Connection,
    variants: &[A],
    calls: &[(u64, usize, Call)],
) -> Vec<Decision> {
    let steps = calls
        .iter()
        .map(|&(now, variant, call)| Step { now, variant, call });
    let steps: Vec<_> = steps.collect();
    run_scripts(connection, variants, &steps, |body| body)
        .into_iter()
        .map(|(_, decided)| decided.expect("a decision"))
        .collect()
}

/// Exhausts a key under the first variant and sets the clock back. Under the last variant, the key
/// is denied for at most `longest`.
fn check_step<A: Scripted>(
    connection: &mut redis::Connection,
    variants: &[A],
    step: Duration,
    longest: Duration,
) {
    let quota = variants[0].quota();
    let (limit, last) = (quota.limit(), variants.len() - 1);
    let back = THEN - micros(step);
    // Forward again, much further than it was.
    let later = THEN + micros(10_000 * quota.period());
    let half_a_unit = micros(quota.period()) / limit / 2;
    let mut calls: Vec<(u64, usize, Call)> = Vec::new();
    calls.extend((0..limit).map(|_| (THEN, 0, Call::Take(1))));
    calls.extend([
        (THEN, 0, Call::Take(1)),
        (back, last, Call::Take(1)),
        (back + half_a_unit, last, Call::Take(1)),
        (back + micros(longest), last, Call::Take(1)),
        (later, last, Call::Take(limit)),
        (later, last, Call::Take(1)),
    ]);
    let decisions = decide(connection, variants, &calls);
    let end = &decisions[decisions.len() - 6..];
    let retry_after = end[1].retry_after;
    assert!(
        retry_after.is_some_and(|after| after <= longest),
        "{variants:?}, {step:?}: {retry_after:?}"
    );
    let admitted: Vec<_> = end.iter().map(Decision::is_admitted).collect();
    let expected = [false, false, false, true, true, false];
    assert_eq!(admitted, expected, "{variants:?}, {step:?}\n{end:#?}");
}

/// Sets the clock back by one period and by a thousand, also with a change of quota. `longest` is
/// the longest denial under a quota.
fn check<A: Scripted>(
    connection: &mut redis::Connection,
    new: impl Fn(Quota) -> A,
    longest: impl Fn(Quota) -> Duration,
) {
    let both = quotas().map(|quota| new(quota).prepared().expect("figures that fit"));
    let longest = quotas().map(longest);
    for step in [SECOND, 1_000 * SECOND] {
        check_step(connection, &both[..1], step, longest[0]);
        check_step(connection, &both, step, longest[1]);
    }
}

/// Shows promise 91.
#[test]
fn a_clock_set_back_admits_no_more_and_denies_no_longer_than_promised() {
    let server = RedisServer::start();
    let server = &mut server.connection();
    let unit = |quota: Quota| quota.period() / 4;
    check(server, TokenBucket::new, unit);
    check(server, LeakyBucket::new, unit);
    #[cfg(feature = "governor")]
    check(server, crate::algorithm::Gcra::new, unit);

    let two_periods = |quota: Quota| 2 * quota.period();
    check(server, FixedWindow::new, two_periods);
    let anchored = |quota| FixedWindow::new(quota).anchored();
    check(server, anchored, two_periods);
    check(server, SlidingLog::new, two_periods);
    let both = |quota| (LeakyBucket::new(quota), SlidingLog::new(quota));
    check(server, both, two_periods);
    // A part of a unit has to leave the previous window.
    let two_windows = |quota: Quota| 2 * quota.period() + Duration::from_micros(1);
    check(server, SlidingWindow::new, two_windows);
    check(server, SlidingGrid::new, two_periods);
    // One cell more than the ten of a period.
    let with_cells = |quota: Quota| 2 * (quota.period() + quota.period() / 10);
    let strict = |quota| SlidingGrid::new(quota).strict();
    check(server, strict, with_cells);

    let lockout = |quota| Lockout::new(quota).block(SECOND).forget(SECOND);
    check(server, lockout, |quota| SECOND + quota.period());
    let warm_up = |quota| WarmUp::new(quota, 2 * SECOND);
    check(server, warm_up, |_| Duration::from_millis(2_001));
}

/// Shows promise 91.
#[cfg(feature = "calendar")]
#[test]
fn a_calendar_window_after_the_clock_was_set_back_is_at_most_a_window_longer() {
    let server = RedisServer::start();
    let window = crate::algorithm::CalendarWindow::try_new(Quota::per_day(4), "Asia/Tokyo");
    let window = window.expect("a zone");
    let window = [window.prepared().expect("figures that fit")];
    let day = Duration::from_secs(86_400);
    for step in [day, 1_000 * day] {
        check_step(&mut server.connection(), &window, step, 2 * day);
    }
}

/// The key was never used before its ban.
///
/// Shows promise 91.
#[test]
fn a_ban_is_no_longer_after_the_clock_was_set_back() {
    let server = RedisServer::start();
    let hour = Duration::from_secs(3_600);
    let variants = quotas().map(Lockout::new);
    let variants = variants.map(|lockout| lockout.prepared().expect("figures that fit"));
    let back = THEN - micros(24 * hour);
    for last in 0..variants.len() {
        let calls = [
            (THEN, 0, Call::Ban(micros(hour))),
            (back, last, Call::Take(1)),
            (back + micros(hour) - 1, last, Call::Take(1)),
            (back + micros(hour), last, Call::Take(1)),
        ];
        let decisions = decide(&mut server.connection(), &variants, &calls);
        assert_eq!(decisions[1].retry_after, Some(hour), "{decisions:#?}");
        assert!(decisions[2].is_denied(), "{decisions:#?}");
        assert!(decisions[3].is_admitted(), "{decisions:#?}");
    }
}

/// Shows promise 91.
#[test]
fn the_queue_of_a_warm_up_moves_on_after_the_clock_was_set_back() {
    let server = RedisServer::start();
    let algorithm = WarmUp::new(Quota::per_second(4), Duration::from_secs(2)).queue(3);
    let algorithm = algorithm.prepared().expect("figures that fit");
    let then = 1_700_000_000_000_000;
    let back = then - 86_400_000_000;
    let steps = [then, then, back, back + 10_000_000].map(|now| Step {
        now,
        variant: 0,
        call: Call::Take(1),
    });
    let answers = run_scripts(&mut server.connection(), &[algorithm], &steps, |body| body);
    let waits: Vec<_> = answers
        .iter()
        .map(|(_, answer)| answer.as_ref().unwrap().wait())
        .collect();
    assert_eq!(waits[0], Some(Duration::ZERO));
    assert!(waits[1] > Some(Duration::ZERO), "{waits:?}");
    assert_ne!(waits[2], Some(Duration::ZERO), "not admitted sooner");
    assert!(waits[3].is_some(), "not a day later");
}
