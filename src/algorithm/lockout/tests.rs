use std::time::Duration;

use super::super::{Algorithm, Cost, GiveBack};
use super::Lockout;
use crate::clock::Tick;
use crate::decision::{Decision, Verdict};
use crate::error::ConfigError;
use crate::quota::Quota;

const MINUTE: Duration = Duration::from_secs(60);

/// Five failures in 15 minutes.
fn lockout() -> Lockout {
    Lockout::new(Quota::per(5, Duration::from_secs(900)))
}

/// Denies every cost, even zero, as a full queue may.
#[derive(Clone, Debug)]
struct DeniesAll;

impl Algorithm for DeniesAll {
    type State = ();

    fn quota(&self) -> Quota {
        Quota::per_second(1)
    }
    fn with_quota(&self, _: Quota) -> Result<Self, ConfigError> {
        Ok(Self)
    }
    fn fresh(&self, _: Tick) {}
    fn decide(&self, (): &mut (), _: Tick, _: u64) -> Decision {
        Decision::new(Verdict::Deny, 1, 0, Some(1), 1)
    }
    fn refund(&self, (): &mut (), _: Tick, _: Cost, _: GiveBack) {}
    fn charge(&self, (): &mut (), _: Tick, _: u64) -> Duration {
        Duration::ZERO
    }
    fn rescale(&self, (): &mut (), _: &Self, _: Tick) {}
    fn forgettable_at(&self, (): &()) -> Tick {
        Tick::ZERO
    }
}

#[test]
fn a_denied_cost_of_zero_is_no_failure() {
    let algorithm = Lockout::new(Quota::per_minute(1)).after_denials_of(DeniesAll);
    let mut state = algorithm.fresh(Tick::ZERO);
    for (cost, is_blocked) in [(0, false), (1, true)] {
        assert!(algorithm.decide(&mut state, Tick::ZERO, cost).is_denied());
        let retry_after = algorithm.peek(&state, Tick::ZERO, 1).retry_after;
        assert_eq!(retry_after == Some(MINUTE), is_blocked);
    }
}

#[test]
fn forgiveness_of_a_cost_of_zero_frees_nothing() {
    let clears = lockout().clear_on_success();
    let mut state = clears.fresh(Tick::ZERO);
    let _ = clears.decide(&mut state, Tick::ZERO, 3);
    let (units, at) = (0, Tick::ZERO);
    clears.refund(
        &mut state,
        Tick::ZERO,
        Cost { units, at },
        GiveBack::Forgive,
    );
    assert_eq!(clears.peek(&state, Tick::ZERO, 0).remaining(), 2);
    let (units, at) = (1, Tick::ZERO);
    clears.refund(
        &mut state,
        Tick::ZERO,
        Cost { units, at },
        GiveBack::Forgive,
    );
    assert_eq!(clears.peek(&state, Tick::ZERO, 0).remaining(), 5);

    let two = Lockout::new(Quota::per_minute(2)).clear_on_success();
    let algorithm = two.after_denials_of(DeniesAll);
    for (cost, is_blocked) in [(0, true), (1, false)] {
        let mut state = algorithm.fresh(Tick::ZERO);
        let _ = algorithm.decide(&mut state, Tick::ZERO, 1);
        let (units, at) = (cost, Tick::ZERO);
        algorithm.refund(
            &mut state,
            Tick::ZERO,
            Cost { units, at },
            GiveBack::Forgive,
        );
        let _ = algorithm.decide(&mut state, Tick::ZERO, 1);
        let retry_after = algorithm.peek(&state, Tick::ZERO, 1).retry_after;
        assert_eq!(retry_after == Some(MINUTE), is_blocked, "cost {cost}");
    }
}

#[test]
fn more_charges_than_can_be_counted_are_the_most_that_can() {
    let mut state = lockout().fresh(Tick::ZERO);
    for _ in 0..3 {
        let owed = lockout().charge(&mut state, Tick::ZERO, u64::MAX);
        assert_eq!(owed, MINUTE);
    }
    assert_eq!(state.failures.cost_from(0), Tick::MAX.as_nanos());
}
