//! Checks the properties themselves: each must fail on an algorithm with a planted bug.

use std::time::Duration;

use tower_throttle::algorithm::{Algorithm, Cost, GiveBack};
use tower_throttle::{ConfigError, Decision, FixedWindow, Quota, TokenBucket, clock::Tick};

use crate::subjects::Subject;

/// A bug found in other implementations.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bug {
    /// Uses `now` unclamped, so an older moment opens an older window.
    NoClampOnBackStep,
    /// Reports `forgettable_at` one unit early.
    EarlyForget,
    /// Rounds the wait down to too coarse a unit.
    TruncatedRetry,
    /// Does not say how long a denial lasts.
    NoRetry,
    /// Charges denied requests.
    ChargedDenial,
    /// Gives back twice what was taken.
    DoubleRefund,
    /// Gives back nothing.
    NoRefund,
    /// Counts no charge.
    NoCharge,
    /// Admits one more than its quota says.
    OneTooMany,
}

/// `algorithm` with a bug.
#[derive(Clone, Debug)]
pub(crate) struct Broken<A> {
    algorithm: A,
    bug: Bug,
}

impl<A: Algorithm> Algorithm for Broken<A> {
    /// With the newest moment.
    type State = (A::State, Tick);

    fn quota(&self) -> Quota {
        let quota = self.algorithm.quota();
        match self.bug {
            Bug::OneTooMany if quota.capacity() > 1 => {
                let limit = quota.limit().saturating_sub(1).max(1);
                Quota::per(limit, quota.period()).burst(quota.capacity() - 1)
            }
            _ => quota,
        }
    }

    fn with_quota(&self, quota: Quota) -> Result<Self, ConfigError> {
        Ok(Self {
            algorithm: self.algorithm.with_quota(quota)?,
            bug: self.bug,
        })
    }

    fn fresh(&self, now: Tick) -> Self::State {
        (self.algorithm.fresh(now), now)
    }

    fn decide(&self, state: &mut Self::State, now: Tick, cost: u64) -> Decision {
        self.step_back(state, now);
        let state = &mut state.0;
        match self.bug {
            Bug::TruncatedRetry => {
                let mut decision = self.algorithm.decide(state, now, cost);
                decision.retry_after = decision.retry_after.map(|wait| wait / 2);
                decision
            }
            Bug::NoRetry => {
                let mut decision = self.algorithm.decide(state, now, cost);
                decision.retry_after = None;
                decision
            }
            Bug::ChargedDenial => {
                let decision = self.algorithm.decide(state, now, cost);
                if decision.is_denied() {
                    self.algorithm.charge(state, now, 1);
                }
                decision
            }
            _ => self.algorithm.decide(state, now, cost),
        }
    }

    fn refund(&self, state: &mut Self::State, now: Tick, cost: Cost, why: GiveBack) {
        self.step_back(state, now);
        let times = match self.bug {
            Bug::NoRefund => 0,
            Bug::DoubleRefund => 2,
            _ => 1,
        };
        for _ in 0..times {
            self.algorithm.refund(&mut state.0, now, cost, why);
        }
    }

    fn charge(&self, state: &mut Self::State, now: Tick, cost: u64) -> Duration {
        self.step_back(state, now);
        match self.bug {
            Bug::NoCharge => Duration::ZERO,
            _ => self.algorithm.charge(&mut state.0, now, cost),
        }
    }

    fn rescale(&self, state: &mut Self::State, from: &Self, now: Tick) {
        self.algorithm.rescale(&mut state.0, &from.algorithm, now);
    }

    fn forgettable_at(&self, state: &Self::State) -> Tick {
        let due = self.algorithm.forgettable_at(&state.0);
        match self.bug {
            Bug::EarlyForget => Tick::from_nanos(due.as_nanos().saturating_sub(1)),
            _ => due,
        }
    }
}

impl<A: Algorithm> Broken<A> {
    /// Opens the older window, if that is the bug.
    fn step_back(&self, (state, newest): &mut (A::State, Tick), now: Tick) {
        if matches!(self.bug, Bug::NoClampOnBackStep) {
            if now < *newest {
                *state = self.algorithm.fresh(now);
            }
            *newest = now;
        }
    }
}

pub(crate) fn broken<A: Algorithm>(algorithm: A, bug: Bug) -> Broken<A> {
    Broken { algorithm, bug }
}

/// Each mistake is found in each algorithm, by the law that forbids it, with the operations that led there.
///
/// Shows promises 1, 2, 370.
#[test]
fn the_check_of_an_algorithm_finds_every_planted_mistake() {
    let quota = Quota::per(3, Duration::from_nanos(7_000_013));
    let limit = move |from: u64, to: u64| 3 * (to / 7_000_013 - from / 7_000_013 + 1);
    let bound = || crate::subjects::bucket(quota.burst(5));
    for (bug, law) in [
        (Bug::NoClampOnBackStep, "Promise"),
        (Bug::EarlyForget, "Forgettable"),
        (Bug::TruncatedRetry, "RetryAfter"),
        (Bug::NoRetry, "RetryAfter"),
        (Bug::ChargedDenial, "Denial"),
        (Bug::DoubleRefund, "Undo"),
        (Bug::NoRefund, "Undo"),
        (Bug::NoCharge, "Charge"),
        (Bug::OneTooMany, "Promise"),
    ] {
        let window = broken(FixedWindow::new(quota), bug);
        let bucket = broken(TokenBucket::new(quota.burst(5)), bug);
        let (window, bucket) = match bug {
            // It reports one less than it admits.
            Bug::OneTooMany => (
                Subject::new("window", window, move |from, to| limit(from, to) * 2 / 3),
                Subject::new("bucket", bucket, crate::subjects::bucket(quota.burst(4))),
            ),
            _ => (
                Subject::new("window", window, limit),
                Subject::new("bucket", bucket, bound()),
            ),
        };
        assert!(window.breaks(law), "{bug:?} in a window");
        assert!(bucket.breaks(law), "{bug:?} in a bucket");
    }
    let right = Subject::new("window", FixedWindow::new(quota), limit);
    assert!((0..200).all(|seed| right.check(seed).is_ok()));
    let sharper = Subject::new("window", FixedWindow::new(quota), move |from, to| {
        limit(from, to) - 1
    });
    let fault = (0..200).find_map(|seed| sharper.check(seed).err());
    let fault = fault.expect("a trace that admits the whole limit");
    assert!(fault.contains(" ns: take "), "{fault}");
}
