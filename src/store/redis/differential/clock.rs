//! The scripts after the server's clock was set.

use std::time::Duration;

use super::{RedisServer, Step, run_scripts};
use crate::algorithm::{
    FixedWindow, LeakyBucket, SlidingGrid, SlidingLog, SlidingWindow, TokenBucket, WarmUp,
};
use crate::decision::Decision;
use crate::quota::Quota;
use crate::store::{
    redis::call::Call,
    redis::script::{Scripted, sealed::Script as _},
};

/// Checks an exhausted key after the clock was set back by a thousand periods, and three periods
/// (and `more` microseconds) later.
fn check_clock_set_back<A: Scripted>(connection: &mut redis::Connection, algorithm: A, more: u64) {
    let algorithm = algorithm.prepared().expect("figures that fit");
    let period = u64::try_from(algorithm.quota().period().as_micros()).unwrap();
    let limit = algorithm.quota().limit();
    let then = 1_700_000_000_000_000;
    let back = then - 1_000 * period;
    let mut steps: Vec<_> = (0..limit).map(|_| (then, Call::Take(1))).collect();
    steps.extend([
        (then, Call::Take(1)),
        (back, Call::Take(1)),
        (back + period / limit / 2, Call::Take(1)),
        (back + 3 * period + more, Call::Take(1)),
        // And forward again, much further than it was.
        (then + 1_000_000 * period, Call::Take(limit)),
        (then + 1_000_000 * period, Call::Take(1)),
    ]);
    let steps: Vec<_> = steps
        .into_iter()
        .map(|(now, call)| Step {
            now,
            variant: 0,
            call,
        })
        .collect();
    let answers = run_scripts(
        connection,
        std::slice::from_ref(&algorithm),
        &steps,
        |body| body,
    );
    let admitted = |answer: &Result<Decision, _>| answer.as_ref().is_ok_and(Decision::is_admitted);
    let answers: Vec<_> = answers.into_iter().map(|(_, decided)| decided).collect();
    let last = &answers[answers.len() - 6..];
    let admitted: Vec<_> = last.iter().map(admitted).collect();
    let expected = [false, false, false, true, true, false];
    assert_eq!(admitted, expected, "{algorithm:?}\n{answers:#?}");
}

/// Shows promise 91.
#[test]
fn a_clock_set_back_admits_no_more_and_denies_no_longer_than_an_exhausted_key() {
    let server = RedisServer::start();
    let server = &mut server.connection();
    let quota = Quota::per_second(4);
    check_clock_set_back(server, FixedWindow::new(quota), 0);
    check_clock_set_back(server, FixedWindow::new(quota).anchored(), 0);
    check_clock_set_back(server, SlidingLog::new(quota), 0);
    check_clock_set_back(server, SlidingWindow::new(quota), 0);
    check_clock_set_back(server, SlidingGrid::new(quota), 0);
    check_clock_set_back(server, SlidingGrid::new(quota).strict(), 0);
    check_clock_set_back(server, TokenBucket::new(quota), 0);
    check_clock_set_back(server, LeakyBucket::new(quota), 0);
    check_clock_set_back(server, (LeakyBucket::new(quota), SlidingLog::new(quota)), 0);
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
