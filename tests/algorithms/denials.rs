//! A lockout that counts the denials of another limit.

use std::time::Duration;

use tower_throttle::algorithm::{
    Algorithm, AnyAlgorithm, Cost, DenialLockout, GiveBack, IntoAlgorithm, reserve,
};
use tower_throttle::store::{Backend, Op, Receipt};
use tower_throttle::{Decision, FixedWindow, Local, Lockout, ManualClock, Quota, TokenBucket};

use crate::failures::{Blocks, Failures};
use crate::laws::resets_while_unused;
use crate::random::{Random, seeds};
use crate::subjects::random_subjects;
use crate::{at, nanos};

/// Some settings of a lockout, for the moments at which `quota` denies.
fn blocks(quota: Quota, random: &mut Random) -> Blocks {
    let period = 1 + random.below(3 * nanos(quota.period()));
    let (limit, block) = (1 + random.below(4), 1 + random.below(2 * period));
    Blocks {
        limit,
        period,
        block,
        max_block: block + random.below(4 * block),
        forget: 1 + random.below(8 * period),
    }
}

fn lockout(blocks: Blocks) -> Lockout {
    let span = Duration::from_nanos;
    Lockout::new(Quota::per(blocks.limit, span(blocks.period)))
        .block(span(blocks.block))
        .max_block(span(blocks.max_block))
        .forget(span(blocks.forget))
}

/// What the documentation says, with the failures counted event by event.
struct Model {
    limit: AnyAlgorithm,
    state: <AnyAlgorithm as Algorithm>::State,
    failures: Failures,
    /// The newest moment of a denial that counted.
    seen: u64,
}

impl Model {
    fn failures_at(&self, now: u64) -> Failures {
        self.failures.clone().at(now.max(self.seen))
    }

    fn is_blocked(&self, now: u64) -> bool {
        !self.failures_at(now).fits(now.max(self.seen), 0)
    }

    /// Whether the request is denied, and how many remain then.
    fn request(
        &mut self,
        now: u64,
        cost: u64,
        decide: impl FnOnce(&AnyAlgorithm, &mut <AnyAlgorithm as Algorithm>::State) -> Decision,
    ) -> (bool, u64) {
        if self.is_blocked(now) {
            let looked = decide(&self.limit, &mut self.state.clone());
            return (cost > 0 || looked.is_denied(), 0);
        }
        let decision = decide(&self.limit, &mut self.state);
        if decision.is_denied() && cost > 0 {
            self.seen = self.seen.max(now);
            self.failures = self.failures_at(now).take(self.seen, 1);
        }
        let is_blocked = self.is_blocked(now);
        let remaining = if is_blocked { 0 } else { decision.remaining() };
        (decision.is_denied(), remaining)
    }

    fn is_denied_later(&self, later: u64, cost: u64) -> bool {
        self.is_blocked(later) || self.limit.peek(&self.state, at(later), cost).is_denied()
    }
}

/// Shows promise 224.
#[test]
fn a_lockout_of_denials_agrees_with_the_oracle() {
    let (mut counted, mut blocked) = (0, 0);
    for seed in seeds(60) {
        let mut random = Random::new(seed);
        for subject in random_subjects(&mut random) {
            let blocks = blocks(subject.algorithm.quota(), &mut random);
            let algorithm = lockout(blocks).after_denials_of(subject.algorithm.clone());
            let mut now = random.log_uniform(41);
            let mut state = algorithm.fresh(at(now));
            let mut model = Model {
                limit: subject.algorithm.clone(),
                state: subject.algorithm.fresh(at(now)),
                failures: Failures::default().under(blocks),
                seen: 0,
            };
            for _ in 0..80 {
                let cost = match random.below(4) {
                    0 => random.below(subject.algorithm.quota().capacity().max(subject.limit) + 2),
                    _ => random.below(3),
                };
                let older = random.below(8) == 0;
                let then = now.saturating_sub(if older {
                    random.below(subject.period)
                } else {
                    0
                });
                let is_open = !model.is_blocked(then);
                let what = format!("seed {seed}: {} {cost} at {then}", subject.name);
                match random.below(8) {
                    0 => {
                        let taken_at = at(then.saturating_sub(random.below(subject.period)));
                        let taken = || Cost {
                            units: cost,
                            at: taken_at,
                        };
                        let given = GiveBack::Refund;
                        algorithm.refund(&mut state, at(then), taken(), given);
                        let limit = &model.limit;
                        limit.refund(&mut model.state, at(then), taken(), given);
                    }
                    1 => {
                        let owed = algorithm.charge(&mut state, at(then), cost);
                        let expected = model.limit.charge(&mut model.state, at(then), cost);
                        assert_eq!(owed, expected, "{what}");
                    }
                    kind => {
                        let most = Duration::from_nanos(random.below(2 * subject.period));
                        let reserves = kind == 2;
                        let looked = algorithm.peek(&state, at(then), cost);
                        let decision = if reserves {
                            reserve(&algorithm, &mut state, at(then), cost, most)
                        } else {
                            algorithm.decide(&mut state, at(then), cost)
                        };
                        let found = model.request(then, cost, |limit, state| {
                            if reserves {
                                reserve(limit, state, at(then), cost, most)
                            } else {
                                limit.decide(state, at(then), cost)
                            }
                        });
                        assert_eq!(
                            (decision.is_denied(), decision.remaining()),
                            found,
                            "{what}"
                        );
                        if !reserves {
                            assert_eq!(looked.is_denied(), decision.is_denied(), "{what}");
                        }
                        counted += usize::from(is_open && decision.is_denied());
                        // The same request passes then, and no nanosecond earlier.
                        let retry = decision.retry_after.filter(|_| !reserves && !older);
                        if let Some(retry) = retry.map(nanos) {
                            let is_denied = |after| model.is_denied_later(then + after, cost);
                            assert!(!is_denied(retry), "{what}: {decision:?}");
                            assert!(is_denied(retry - 1), "{what}: {decision:?}");
                        }
                    }
                }
                blocked += usize::from(model.is_blocked(now));
                now += match random.below(5) {
                    0 | 1 => 0,
                    2 => random.below(subject.period / subject.limit + 2),
                    3 => random.below(subject.period),
                    _ => random.below(blocks.block + 2),
                };
            }
        }
    }
    assert!(counted > 5_000 && blocked > 10_000, "{counted} {blocked}");
}

/// Each algorithm under a lockout of its denials keeps the laws, but for the one about denials.
///
/// Shows promise 224.
#[test]
fn the_laws_hold_for_a_limit_under_a_lockout() {
    for seed in seeds(10) {
        let mut random = Random::new(seed);
        for subject in random_subjects(&mut random) {
            let lockout = lockout(blocks(subject.algorithm.quota(), &mut random));
            let limited = lockout.after_denials_of(subject.algorithm.clone());
            let subject = subject.with(AnyAlgorithm::new(limited));
            let fault = subject.check(seed).err();
            // A denial changes the state, which a table stores then.
            let exceptions = ["Denial: ", "in a table: "];
            let is_expected = |fault: &str| exceptions.iter().any(|one| fault.starts_with(one));
            let fault = fault.filter(|fault| !is_expected(fault));
            assert_eq!(fault, None);
            assert_eq!(resets_while_unused(&subject, seed), None, "seed {seed}");
        }
    }
}

/// Two per second, and a block of a minute after three denials in ten seconds.
fn bucket() -> DenialLockout<TokenBucket> {
    let lockout = Lockout::new(Quota::per(3, Duration::from_secs(10)));
    lockout.after_denials_of(TokenBucket::new(Quota::per_second(2)))
}

#[test]
fn only_its_own_denials_count_in_a_tuple() {
    let both = (bucket(), FixedWindow::new(Quota::per_minute(1))).into_algorithm();
    let mut state = both.fresh(at(0));
    assert!(both.decide(&mut state, at(0), 1).is_admitted());
    for _ in 0..10 {
        assert!(both.decide(&mut state, at(0), 1).is_denied());
    }
    let alone = bucket().peek(&state.0, at(0), 1);
    assert!(alone.is_admitted(), "the window denies: {alone:?}");
}

#[test]
fn forgiveness_frees_the_denials_only_if_that_is_set_and_ends_no_block() {
    for clears in [false, true] {
        let lockout = Lockout::new(Quota::per(3, Duration::from_secs(10)));
        let lockout = if clears {
            lockout.clear_on_success()
        } else {
            lockout
        };
        let limit = lockout.after_denials_of(TokenBucket::new(Quota::per_second(2)));
        let clock = ManualClock::new();
        let local = Local::new(limit).with_clock(clock.clone());
        let forgive = |receipt: Receipt| {
            drop(local.apply("ann", Op::Forgive(1, receipt)));
        };
        let is_blocked = || local.peek("ann", 1).retry_after > Some(Duration::from_secs(1));
        let denied = |count: usize| {
            for _ in 0..count {
                assert!(local.check("ann", 1).is_denied());
            }
        };
        assert!(local.check("ann", 2).is_admitted());
        denied(2);
        clock.advance(Duration::from_secs(1));
        let admitted = local.decide("ann", 1).into_inner().expect("a decision");
        assert!(admitted.is_admitted());
        forgive(admitted.receipt());
        assert_eq!(local.peek("ann", 1).remaining(), 2, "its cost is refunded");
        assert!(local.check("ann", 2).is_admitted());
        denied(1);
        assert_eq!(is_blocked(), !clears);
        denied(2);
        assert!(is_blocked());
        forgive(admitted.receipt());
        assert!(is_blocked());
    }
}

#[test]
fn a_reset_acts_on_the_block() {
    let clock = ManualClock::new();
    let local = Local::new(AnyAlgorithm::new(bucket())).with_clock(clock.clone());
    assert!(local.check("ann", 1).is_admitted());
    assert_eq!(
        local.check("ann", 2).retry_after,
        Some(Duration::from_millis(500))
    );
    local.reset("ann");
    for n in 0..2 {
        assert!(local.check("ann", 3).is_denied(), "{n}");
    }
    assert!(
        local.check("ann", 1).is_admitted(),
        "the denial before the reset is gone"
    );
}
