//! Checks the properties themselves: each must fail on an algorithm with a planted bug.

use std::time::Duration;

use tower_throttle::algorithm::{Algorithm, AnyAlgorithm, Cost, GiveBack, Words};
use tower_throttle::{
    ConfigError, Decision, FixedWindow, Quota, SlidingLog, TokenBucket, algorithm::Inherit,
    clock::Tick,
};

use crate::laws;
use crate::promises::broken_promise;
use crate::random::Random;
use crate::subjects::{Subject, random_subjects};

/// A bug found in other implementations.
#[derive(Clone, Copy, Debug)]
enum Bug {
    /// Admits one more than the capacity: B for B - 1.
    OneTooMany,
    /// Refills whole units and drops the remaining time.
    TruncatedRefill,
    /// Uses `now` unclamped, so an older moment opens an older window.
    NoClampOnBackStep,
    /// `>=` for `>`: entries expire one nanosecond early.
    LeavesEarly,
    /// Reports `forgettable_at` one unit early.
    EarlyForget,
    /// Rounds the wait down to too coarse a unit.
    TruncatedRetry,
    /// Charges denied requests.
    ChargedDenial,
}

/// `algorithm` with a bug.
#[derive(Clone, Debug)]
struct Broken<A> {
    algorithm: A,
    bug: Bug,
}

impl<A: Words> Words for Broken<A> {}

impl<A: Words> Algorithm for Broken<A> {
    type State = (A::State, Tick);

    fn quota(&self) -> Quota {
        self.algorithm.quota()
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

    fn decide(&self, (state, newest): &mut Self::State, now: Tick, cost: u64) -> Decision {
        let quota = self.algorithm.quota();
        let unit = u64::try_from(quota.period().as_nanos()).expect("short") / quota.limit();
        match self.bug {
            Bug::OneTooMany if cost > 0 => {
                let first = self.algorithm.decide(state, now, cost - 1);
                let whole = self.algorithm.peek(state, now, 1);
                if whole.is_admitted() {
                    self.algorithm.decide(state, now, 1)
                } else {
                    first
                }
            }
            Bug::TruncatedRefill => {
                // The refill starts again at each call.
                let passed = now.since(*newest).as_nanos();
                let whole = u64::try_from(passed).expect("short") / unit.max(1) * unit;
                let dropped = u64::try_from(passed).expect("short") - whole;
                *newest = now;
                let lost = self.algorithm.peek(state, now, 0).reset_after;
                if dropped > 0 && !lost.is_zero() {
                    *state = self.later(state, dropped);
                }
                self.algorithm.decide(state, now, cost)
            }
            Bug::NoClampOnBackStep => {
                if now < *newest {
                    *state = self.algorithm.fresh(now);
                }
                *newest = now;
                self.algorithm.decide(state, now, cost)
            }
            Bug::LeavesEarly => {
                let now = now.plus(Duration::from_nanos(1));
                self.algorithm.decide(state, now, cost)
            }
            Bug::TruncatedRetry => {
                let mut decision = self.algorithm.decide(state, now, cost);
                decision.retry_after = decision.retry_after.map(|wait| wait / 2);
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
        self.algorithm.refund(&mut state.0, now, cost, why);
    }

    fn charge(&self, state: &mut Self::State, now: Tick, cost: u64) -> Duration {
        self.algorithm.charge(&mut state.0, now, cost)
    }

    fn rescale(&self, state: &mut Self::State, from: &Self, now: Tick, inherit: Inherit) {
        self.algorithm
            .rescale(&mut state.0, &from.algorithm, now, inherit);
    }

    fn forgettable_at(&self, state: &Self::State) -> Tick {
        let due = self.algorithm.forgettable_at(&state.0);
        match self.bug {
            Bug::EarlyForget => Tick::from_nanos(due.as_nanos().saturating_sub(1)),
            _ => due,
        }
    }
}

impl<A: Words> Broken<A> {
    /// The state as if everything in it had happened `ns` later.
    fn later(&self, state: &A::State, ns: u64) -> A::State {
        match A::pack(&self.algorithm, state) {
            Some(word) => A::unpack(&self.algorithm, word + ns),
            None => state.clone(),
        }
    }
}

/// Whether `property` finds the bug in one of the subjects that `break_it` accepts.
fn finds<A: Words>(
    property: fn(&Subject<A>, u64) -> Option<String>,
    bug: Bug,
    break_it: fn(&Subject, Bug) -> Option<A>,
) -> bool {
    (0..400).any(|seed| {
        random_subjects(&mut Random::new(seed))
            .iter()
            .filter_map(|subject| Some(subject.with(break_it(subject, bug)?)))
            .any(|broken| property(&broken, seed).is_some())
    })
}

fn broken<A: Words>(algorithm: A, bug: Bug) -> Broken<A> {
    Broken { algorithm, bug }
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "the same signature as functions that skip subjects"
)]
fn any(subject: &Subject, bug: Bug) -> Option<Broken<AnyAlgorithm>> {
    Some(broken(subject.algorithm.clone(), bug))
}

fn window(subject: &Subject, bug: Bug) -> Option<Broken<FixedWindow>> {
    (subject.name == "fixed window")
        .then(|| broken(FixedWindow::new(subject.algorithm.quota()), bug))
}

fn log(subject: &Subject, bug: Bug) -> Option<Broken<SlidingLog>> {
    (subject.name == "sliding log").then(|| broken(SlidingLog::new(subject.algorithm.quota()), bug))
}

fn bucket(subject: &Subject, bug: Bug) -> Option<Broken<TokenBucket>> {
    (subject.name == "token bucket")
        .then(|| broken(TokenBucket::new(subject.algorithm.quota()), bug))
}

#[test]
fn a_bucket_of_one_too_many_breaks_its_promise() {
    // A bucket that holds one more than it reports.
    let plus_one = |subject: &Subject, _: Bug| {
        let quota = subject.algorithm.quota();
        (subject.name == "token bucket")
            .then(|| TokenBucket::new(quota.burst(quota.capacity() + 1)))
    };
    assert!(finds(broken_promise, Bug::OneTooMany, plus_one));
}

#[test]
fn an_unclamped_older_moment_breaks_the_promise() {
    assert!(finds(broken_promise, Bug::NoClampOnBackStep, window));
    assert!(finds(
        laws::admits_more_in_the_past,
        Bug::NoClampOnBackStep,
        window
    ));
}

#[test]
fn a_log_that_expires_entries_a_nanosecond_early_is_found() {
    assert!(finds(laws::inexact_retry, Bug::TruncatedRetry, log));
    let early = |subject: &Subject, _: Bug| {
        let quota = subject.algorithm.quota();
        let period = quota.period().saturating_sub(Duration::from_nanos(1));
        if subject.name != "sliding log" || period.is_zero() {
            return None;
        }
        Some(SlidingLog::new(Quota::per(quota.limit(), period)))
    };
    assert!(finds(broken_promise, Bug::LeavesEarly, early));
}

#[test]
fn an_early_forgettable_at_is_found() {
    assert!(finds(laws::early_forget, Bug::EarlyForget, any));
}

#[test]
fn a_truncated_retry_after_is_found() {
    assert!(finds(laws::inexact_retry, Bug::TruncatedRetry, any));
}

#[test]
fn a_charged_denial_is_found() {
    assert!(finds(
        laws::changed_without_admission,
        Bug::ChargedDenial,
        bucket
    ));
}

#[test]
fn a_refill_that_truncates_is_found() {
    let subject = crate::subjects::subjects(crate::subjects::quota(1, 60_000_000), 3, 10)
        .into_iter()
        .find(|subject| subject.name == "token bucket")
        .expect("a token bucket");
    let truncating = bucket(&subject, Bug::TruncatedRefill).expect("a token bucket");
    assert!(laws::cadence_matters(&subject.with(truncating), 0).is_some());
    assert_eq!(laws::cadence_matters(&subject, 0), None);
}
