//! What a lockout does, event by event. Times are in seconds.

use std::time::Duration;

use tower_throttle::algorithm::{Algorithm, AnyAlgorithm, Cost, GiveBack};
use tower_throttle::clock::Tick;
use tower_throttle::store::{Backend, Op};
use tower_throttle::{Local, Lockout, ManualClock, Quota, TokenBucket};

const SECOND: u64 = 1_000_000_000;
/// Five failures in 15 minutes, with the default blocks: a minute, doubled up to an hour.
fn lockout() -> Lockout {
    Lockout::new(Quota::per(5, Duration::from_secs(900)))
}

/// The attempts of one key at given seconds.
struct Key<A: Algorithm> {
    algorithm: A,
    state: A::State,
}

impl Key<Lockout> {
    fn new() -> Self {
        Self::of(lockout())
    }
}

impl<A: Algorithm> Key<A> {
    fn of(algorithm: A) -> Self {
        Self {
            state: algorithm.fresh(Tick::ZERO),
            algorithm,
        }
    }

    /// An attempt that fails, unless it is refunded later.
    fn attempt(&mut self, second: u64) -> bool {
        let now = Tick::from_nanos(second * SECOND);
        self.algorithm.decide(&mut self.state, now, 1).is_admitted()
    }

    fn succeeds(&mut self, taken_at: u64, second: u64) {
        let [taken_at, now] = [taken_at, second].map(|at| Tick::from_nanos(at * SECOND));
        let taken = Cost {
            units: 1,
            at: taken_at,
        };
        self.algorithm
            .refund(&mut self.state, now, taken, GiveBack::Refund);
    }

    fn fails(&mut self, seconds: impl IntoIterator<Item = u64>) {
        for second in seconds {
            assert!(self.attempt(second), "at {second}");
        }
    }
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
fn a_success_from_before_the_block_changes_nothing() {
    let mut key = Key::new();
    key.fails([0]);
    key.fails(901..906);
    let before = key.state.clone();
    key.succeeds(0, 906);
    assert_eq!(key.state, before);
    // The same after the block, and for an attempt of the block itself.
    key.fails([1_000]);
    let before = key.state.clone();
    for taken_at in [0, 901, 905] {
        key.succeeds(taken_at, 1_000);
        assert_eq!(key.state, before);
    }
}

/// Shows promise 190.
#[test]
fn a_report_from_before_a_pardon_is_ignored() {
    let clock = ManualClock::new();
    let local = Local::new(lockout()).with_clock(clock.clone());
    let decided = local.decide("ann", 1).into_inner().expect("a decision");
    clock.advance(Duration::from_secs(1));
    local.reset("ann");
    assert!(local.check("ann", 3).is_admitted());
    drop(local.apply("ann", Op::Refund(1, decided.receipt())));
    assert_eq!(local.peek("ann", 1).remaining(), 2);
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
