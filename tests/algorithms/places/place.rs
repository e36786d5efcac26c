//! Where the state of a key lives.

use std::time::Duration;

use test_support::wait::at_once;
use tower_throttle::algorithm::{Algorithm, Cost, GiveBack, reserve, take_up_to};
use tower_throttle::clock::Tick;
use tower_throttle::store::Receipt;
use tower_throttle::{Decision, Limiter, Local, ManualClock, Verdict};

/// An operation on the state of one key.
#[derive(Clone, Debug)]
pub(crate) enum Step<A> {
    Take(u64),
    /// A cost, and the longest wait.
    Reserve(u64, Duration),
    Peek(u64),
    /// Without waiting.
    Acquire(u64),
    TakeUpTo(u64),
    /// A cost, and when it was taken.
    Refund(u64, Receipt),
    Charge(u64),
    Change(A),
    Reset,
}

/// What an operation returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Decided(Decision),
    Passed(bool),
    Took(u64),
    Done,
}

/// The state of one key, somewhere.
pub(crate) trait Place<A> {
    /// Applies `step` at `now`, or at the present moment of a place with a clock of its own. `None` if
    /// the place has no such operation.
    fn apply(&mut self, now: Tick, step: &Step<A>) -> Option<Outcome>;

    /// When the last operation took place, in nanoseconds.
    fn moment(&self) -> u64;

    /// Whether the state may be dropped. A change of quota then finds an unused key.
    fn is_forgettable(&self, now: Tick) -> bool {
        let _ = now;
        false
    }
}

/// A state and its algorithm.
pub(crate) struct Plain<A: Algorithm> {
    pub(crate) algorithm: A,
    pub(crate) state: A::State,
    now: Tick,
}

impl<A: Algorithm> Plain<A> {
    pub(crate) fn new(algorithm: A, now: Tick) -> Self {
        let state = algorithm.fresh(now);
        Self {
            algorithm,
            state,
            now,
        }
    }
}

impl<A: Algorithm> Place<A> for Plain<A> {
    fn apply(&mut self, now: Tick, step: &Step<A>) -> Option<Outcome> {
        self.now = now;
        let Self {
            algorithm, state, ..
        } = self;
        Some(match step {
            Step::Take(cost) => Outcome::Decided(algorithm.decide(state, now, *cost)),
            Step::Reserve(cost, most) => {
                Outcome::Decided(reserve(algorithm, state, now, *cost, *most))
            }
            Step::Peek(cost) => Outcome::Decided(algorithm.peek(state, now, *cost)),
            Step::Acquire(cost) => {
                let decision = reserve(algorithm, state, now, *cost, Duration::ZERO);
                Outcome::Passed(decision.is_admitted())
            }
            Step::TakeUpTo(most) => Outcome::Took(take_up_to(algorithm, state, now, *most).0),
            Step::Refund(cost, receipt) => {
                algorithm.refund(
                    state,
                    now,
                    Cost::new(*cost, Tick::from_nanos(receipt.moment())),
                    GiveBack::Refund,
                );
                Outcome::Done
            }
            Step::Charge(cost) => {
                let _ = algorithm.charge(state, now, *cost);
                Outcome::Done
            }
            Step::Change(to) => {
                to.rescale(state, algorithm, now);
                *algorithm = to.clone();
                Outcome::Done
            }
            Step::Reset => {
                *state = algorithm.fresh(now);
                Outcome::Done
            }
        })
    }

    fn moment(&self) -> u64 {
        self.now.as_nanos()
    }

    fn is_forgettable(&self, now: Tick) -> bool {
        self.algorithm.forgettable_at(&self.state) <= now
    }
}

fn passed(decision: Option<Decision>) -> Outcome {
    Outcome::Passed(decision.is_some_and(|decision| decision.is_admitted()))
}

/// A limiter. Its clock does not step back.
pub(crate) struct Limited<A: Algorithm> {
    limiter: Limiter<A, ManualClock>,
    clock: ManualClock,
    now: Tick,
}

impl<A: Algorithm> Limited<A> {
    pub(crate) fn new(algorithm: A, now: Tick) -> Self {
        let clock = ManualClock::new();
        clock.set(now);
        Self {
            limiter: Limiter::new(algorithm).with_clock(clock.clone()),
            clock,
            now,
        }
    }
}

impl<A: Algorithm> Place<A> for Limited<A> {
    fn apply(&mut self, now: Tick, step: &Step<A>) -> Option<Outcome> {
        self.clock.set(now);
        self.now = self.now.max(now);
        let limiter = &self.limiter;
        Some(match step {
            Step::Take(cost) => Outcome::Decided(limiter.check(*cost)),
            Step::Reserve(cost, most) => Outcome::Decided(limiter.reserve(*cost, *most)),
            Step::Peek(cost) => Outcome::Decided(limiter.peek(*cost)),
            Step::Acquire(cost) => passed(at_once(limiter.acquire(*cost, Duration::ZERO))),
            Step::TakeUpTo(most) => Outcome::Took(limiter.take_up_to(*most)),
            Step::Refund(cost, receipt) => {
                limiter.refund_from(Tick::from_nanos(receipt.moment()), *cost);
                Outcome::Done
            }
            Step::Charge(cost) => {
                let _ = limiter.charge(*cost);
                Outcome::Done
            }
            Step::Change(to) => {
                let changed = limiter.set_algorithm(to.clone());
                changed.expect("a valid algorithm");
                Outcome::Done
            }
            Step::Reset => {
                limiter.reset();
                Outcome::Done
            }
        })
    }

    fn moment(&self) -> u64 {
        self.now.as_nanos()
    }
}

/// A key in a table, by the methods of the table.
pub(crate) struct InTable<A: Algorithm> {
    local: Local<A, ManualClock>,
    clock: ManualClock,
    now: Tick,
}

const KEY: &str = "key";

impl<A: Algorithm> InTable<A> {
    pub(crate) fn new(algorithm: A, now: Tick) -> Self {
        let clock = ManualClock::new();
        clock.set(now);
        let local = Local::new(algorithm).with_clock(clock.clone());
        Self { local, clock, now }
    }
}

impl<A: Algorithm> Place<A> for InTable<A> {
    fn apply(&mut self, now: Tick, step: &Step<A>) -> Option<Outcome> {
        self.clock.set(now);
        self.now = self.now.max(now);
        let local = &self.local;
        Some(match step {
            Step::Take(cost) => Outcome::Decided(local.check(KEY, *cost)),
            Step::Reserve(cost, most) => Outcome::Decided(local.reserve(KEY, *cost, *most)),
            Step::Peek(cost) => Outcome::Decided(local.peek(KEY, *cost)),
            Step::Acquire(cost) => passed(at_once(local.acquire(KEY, *cost, Duration::ZERO))),
            Step::TakeUpTo(most) => Outcome::Took(local.take_up_to(KEY, *most)),
            Step::Refund(cost, receipt) => {
                local.refund_from(KEY, Tick::from_nanos(receipt.moment()), *cost);
                Outcome::Done
            }
            Step::Charge(cost) => {
                let _ = local.charge(KEY, *cost);
                Outcome::Done
            }
            Step::Change(to) => {
                let changed = local.set_algorithm(to.clone());
                if changed.is_err() {
                    // Its states take more words than the slots have.
                    return None;
                }
                Outcome::Done
            }
            Step::Reset => {
                local.reset(KEY);
                Outcome::Done
            }
        })
    }

    fn moment(&self) -> u64 {
        self.now.as_nanos()
    }
}

/// A place with a mistake in one operation, to show that the laws find it.
pub(crate) struct Mistaken<P> {
    pub(crate) place: P,
    pub(crate) mistake: Mistake,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mistake {
    /// A denied call keeps a turn.
    TakeKeepsTurn,
    TakesOneMore,
    PeekTakes,
    /// A refund counts as taken just now.
    RefundForgetsMoment,
    RefundTwice,
    ChargeForgotten,
    ResetForgotten,
    ChangeForgets,
    ReserveIgnoresWait,
    DenialCharges,
    /// Admitted without being counted.
    AcquireUncounted,
    RetryTooEarly,
    RetryTooLate,
}

impl<A: Clone, P: Place<A>> Place<A> for Mistaken<P> {
    fn apply(&mut self, now: Tick, step: &Step<A>) -> Option<Outcome> {
        let Self { place, mistake } = self;
        match (*mistake, step) {
            (Mistake::TakeKeepsTurn, Step::Take(cost)) => {
                let looked = place.apply(now, &Step::Peek(*cost))?;
                place.apply(now, &Step::Reserve(*cost, Duration::MAX))?;
                Some(looked)
            }
            (Mistake::TakesOneMore, Step::TakeUpTo(most)) => {
                place.apply(now, &Step::TakeUpTo(*most))?;
                place.apply(now, &Step::TakeUpTo(1))
            }
            (Mistake::PeekTakes, Step::Peek(cost)) => place.apply(now, &Step::Take(*cost)),
            (Mistake::RefundForgetsMoment, Step::Refund(cost, _)) => {
                place.apply(now, &Step::Refund(*cost, Receipt::NOW))
            }
            (Mistake::RefundTwice, Step::Refund(..)) => {
                place.apply(now, step)?;
                place.apply(now, step)
            }
            (Mistake::ChargeForgotten, Step::Charge(_))
            | (Mistake::ResetForgotten, Step::Reset) => Some(Outcome::Done),
            (Mistake::ChangeForgets, Step::Change(_)) => {
                place.apply(now, step)?;
                place.apply(now, &Step::Reset)
            }
            (Mistake::ReserveIgnoresWait, Step::Reserve(cost, _)) => {
                place.apply(now, &Step::Reserve(*cost, Duration::MAX))
            }
            (Mistake::AcquireUncounted, Step::Acquire(cost)) => {
                match place.apply(now, &Step::Peek(*cost))? {
                    Outcome::Decided(decision) => Some(Outcome::Passed(decision.is_admitted())),
                    _ => None,
                }
            }
            _ => {
                let outcome = place.apply(now, step)?;
                let Outcome::Decided(mut decision) = outcome else {
                    return Some(outcome);
                };
                let nano = Duration::from_nanos(1);
                match mistake {
                    Mistake::DenialCharges if decision.verdict == Verdict::Deny => {
                        place.apply(now, &Step::Charge(1))?;
                    }
                    Mistake::RetryTooEarly => {
                        let earlier = |retry: Duration| retry.saturating_sub(nano);
                        decision.retry_after = decision.retry_after.map(earlier);
                    }
                    Mistake::RetryTooLate => {
                        decision.retry_after = decision.retry_after.map(|retry| retry + nano);
                    }
                    _ => {}
                }
                Some(Outcome::Decided(decision))
            }
        }
    }

    fn moment(&self) -> u64 {
        self.place.moment()
    }
}
