//! Forgiveness of a lockout, which the oracle does not know.

use std::time::Duration;

use tower_throttle::algorithm::AnyAlgorithm;
use tower_throttle::store::{Backend, Op};
use tower_throttle::{Local, Lockout, ManualClock, Quota, TokenBucket};

/// Five failures in 15 minutes, with the default blocks: a minute, doubled up to an hour.
fn lockout() -> Lockout {
    Lockout::new(Quota::per(5, Duration::from_secs(900)))
}

/// Shows promise 190.
#[test]
fn a_success_frees_the_earlier_failures_only_if_that_is_set() {
    for (lockout, is_blocked) in [(lockout(), true), (lockout().clear_on_success(), false)] {
        let clock = ManualClock::new();
        let local = Local::new(lockout).with_clock(clock.clone());
        let attempt = || local.check("ann", 1).is_admitted();
        assert!((0..4).all(|_| attempt()));
        let decided = local.decide("ann", 1).into_inner().expect("a decision");
        drop(local.apply("ann", Op::Forgive(1, decided.receipt())));
        assert!(attempt());
        assert_eq!(local.peek("ann", 1).is_denied(), is_blocked);
    }
}

/// Shows promise 190.
#[test]
fn a_lockout_of_any_kind_forgives() {
    let any = AnyAlgorithm::new(lockout().clear_on_success());
    let clock = ManualClock::new();
    let local = Local::new((any, TokenBucket::new(Quota::per_second(9)))).with_clock(clock);
    for _ in 0..4 {
        assert!(local.check("ann", 1).is_admitted());
    }
    let decided = local.decide("ann", 1).into_inner().expect("a decision");
    drop(local.apply("ann", Op::Forgive(1, decided.receipt())));
    assert_eq!(local.peek("ann", 1).remaining(), 5, "of both");
}
