//! The laws in the documentation of `algorithm`.
//!
//! Each is a function that returns what is wrong after one trace, if anything.

use std::time::Duration;

use super::law::Law;
use super::random::Random;
use super::subject::{Promise, Subject};
use super::trace::{self, Run, Step};
use crate::algorithm::{self, Algorithm, Cost, GiveBack};
use crate::clock::{Tick, nanos};
use crate::decision::Decision;

fn at(ns: u64) -> Tick {
    Tick::from_nanos(ns)
}

/// What is wrong, if anything.
type Fault = Option<String>;

/// A subject after a trace, and random numbers to look at it.
struct Case<'a, A: Algorithm> {
    subject: &'a Subject<A>,
    algorithm: &'a A,
    run: Run<A::State>,
    now: u64,
    random: Random,
}

/// How `subject` breaks `law` in a trace, if it does.
pub(super) fn fault<A: Algorithm>(
    subject: &Subject<A>,
    law: Law,
    steps: &[Step],
    random: Random,
) -> Fault {
    let run = trace::run(subject, steps, |_| ());
    let case = Case {
        subject,
        algorithm: &subject.algorithm,
        now: run.now,
        run,
        random,
    };
    match law {
        Law::Promise | Law::Refunds => case.broken_interval(),
        Law::Undo => case.refunds_otherwise(),
        Law::Charge => case.charges_otherwise(),
        Law::Denial => case.changed_without_admission(),
        Law::RetryAfter => case.inexact_retry(),
        Law::ResetAfter => case.inexact_reset(),
        Law::UnusedKey => case.resets_while_unused(),
        Law::Remaining => case.inexact_remaining(),
        Law::StepBack => case.admits_more_in_the_past(),
        Law::StepBackOperations => case.leaves_more_in_the_past(),
        Law::Forgettable => case.early_forget(),
        Law::Rounding => case.cadence_matters(),
    }
}

impl<A: Algorithm> Case<'_, A> {
    /// The decision on a cost so long after the trace.
    fn peek(&self, after: u64, cost: u64) -> Decision {
        let state = &self.run.state;
        self.algorithm.peek(state, at(self.now + after), cost)
    }

    /// What a state leaves at the end of the trace.
    fn left(&self, state: &A::State) -> u64 {
        self.algorithm.peek(state, at(self.now), 0).remaining()
    }

    /// What a state decides in the next one and a half periods.
    fn decisions(&self, state: &A::State) -> Vec<Decision> {
        let step = self.subject.period / 20 + 1;
        let moments = (0..30).map(|index| at(self.now + index * step));
        let peek = |moment| self.algorithm.peek(state, moment, 1);
        moments.map(peek).collect()
    }

    /// A cost that the promise covers.
    fn cost(&mut self, most: u64) -> u64 {
        let most = match self.subject.promise {
            Promise::Paced(max_cost) => max_cost.min(most),
            _ => most,
        };
        1 + self.random.below(most)
    }

    /// A(T), the cost admitted and kept in any interval of length T, stays within the promise.
    fn broken_interval(self) -> Fault {
        let kept = self.run.kept.iter();
        let mut kept: Vec<_> = kept.map(|kept| (kept.passes_at, kept.cost)).collect();
        kept.sort_unstable();
        self.subject.check_admissions(&kept).err()
    }

    /// A request that is refunded at once has taken nothing.
    fn refunds_otherwise(mut self) -> Fault {
        let costs: Vec<_> = (0..=self.random.below(3))
            .map(|_| self.cost(self.subject.limit.min(3)))
            .collect();
        // A refund frees only the last turn.
        let refunded = match self.subject.promise {
            Promise::Paced(_) => costs.len() - 1,
            _ => usize::try_from(self.random.below(costs.len() as u64)).expect("few"),
        };
        let (mut with, mut without) = (self.run.state.clone(), self.run.state.clone());
        for (index, cost) in costs.iter().enumerate() {
            let decision = self.algorithm.decide(&mut with, at(self.now), *cost);
            if decision.is_denied() {
                return None;
            }
            if index != refunded {
                let _ = self.algorithm.decide(&mut without, at(self.now), *cost);
            }
        }
        let cost = costs[refunded];
        let taken = Cost::new(cost, at(self.now));
        let refund = GiveBack::Refund;
        self.algorithm
            .refund(&mut with, at(self.now), taken, refund);
        (self.decisions(&with) != self.decisions(&without)).then(|| {
            let (with, without, now) = (self.left(&with), self.left(&without), self.now);
            format!(
                "costs of {costs:?} are taken at {now} ns, and the {cost} is refunded then: {with} are left, \
                 and {without} if it is not taken"
            )
        })
    }

    /// A charge takes as much as an admitted request, and all that is left if it is more than that.
    fn charges_otherwise(mut self) -> Fault {
        let cost = self.cost(self.subject.burst.max(self.subject.limit) + 2);
        let (mut charged, mut taken) = (self.run.state.clone(), self.run.state.clone());
        self.algorithm.charge(&mut charged, at(self.now), cost);
        let is_admitted = self.peek(0, cost).is_admitted();
        let is_right = if is_admitted {
            let _ = self.algorithm.decide(&mut taken, at(self.now), cost);
            self.decisions(&charged) == self.decisions(&taken)
        } else {
            self.left(&charged) == 0
        };
        (!is_right).then(|| {
            let (before, now) = (self.left(&self.run.state), self.now);
            let (charged, taken) = (self.left(&charged), self.left(&taken));
            let than = if is_admitted {
                format!("not {taken} as after a request")
            } else {
                "not 0".to_owned()
            };
            format!("a charge of {cost} at {now} ns leaves {charged} of {before}, {than}")
        })
    }

    /// A denied request, a peek and a cost of zero change nothing.
    fn changed_without_admission(mut self) -> Fault {
        let mut asked = self.run.state.clone();
        let mut costs = Vec::new();
        for _ in 0..5 {
            let most = 2 * self.subject.burst.max(self.subject.limit);
            let cost = match self.random.below(2) {
                0 => 0,
                _ => 1 + self.random.below(most),
            };
            if cost == 0 || self.peek(0, cost).is_denied() {
                let _ = self.algorithm.decide(&mut asked, at(self.now), cost);
                costs.push(cost);
            }
        }
        (self.decisions(&self.run.state) != self.decisions(&asked)).then(|| {
            let (now, before, left) = (self.now, self.left(&self.run.state), self.left(&asked));
            format!("costs of {costs:?}, none admitted at {now} ns, leave {left} of {before} or change what comes")
        })
    }

    /// The request passes at `retry_after` and is denied one nanosecond earlier. Without a `retry_after` it
    /// is denied also when the whole limit is available.
    fn inexact_retry(mut self) -> Fault {
        let most = self.subject.burst.max(self.subject.limit);
        let cost = 1 + self.random.below(most);
        let decision = self.peek(0, cost);
        let passes = |after: u64| !self.peek(after, cost).is_denied();
        let retry_after = decision.retry_after.map(nanos);
        let wrong = match retry_after {
            None if decision.is_denied() && passes(nanos(decision.reset_after)) => "passes later",
            Some(retry) if !passes(retry) => "is denied then too",
            Some(retry) if retry == 0 || passes(retry - 1) => "passes earlier",
            _ => return None,
        };
        let retry = retry_after.map_or_else(|| "none".to_owned(), |retry| format!("{retry} ns"));
        let now = self.now;
        Some(format!(
            "a cost of {cost} is denied at {now} ns, its retry_after is {retry}, and it {wrong}"
        ))
    }

    /// The whole limit is available from `reset_after` on, and not earlier.
    fn inexact_reset(self) -> Fault {
        let reset_after = nanos(self.peek(0, 0).reset_after);
        let full = |after: u64| {
            let rest = self.peek(after, 0);
            rest.remaining() == rest.limit
        };
        let is_exact = full(reset_after) && (reset_after == 0 || !full(reset_after - 1));
        let now = self.now;
        (!is_exact)
            .then(|| format!("reset_after at {now} ns is {reset_after} ns, which is not exact"))
    }

    /// A key of which the whole limit is available waits for nothing, also after refunds and at moments
    /// older than the state.
    fn resets_while_unused(mut self) -> Fault {
        let mut taken = Vec::new();
        for _ in 0..4 {
            let cost = 1 + self.random.below(self.subject.limit.min(3));
            let state = &mut self.run.state;
            if !self.algorithm.decide(state, at(self.now), cost).is_denied() {
                taken.push(Cost::new(cost, at(self.now)));
            }
            self.now += self.random.below(self.subject.period);
        }
        taken.into_iter().rev().find_map(|cost| {
            let older = self.random.below(3 * self.subject.period);
            let older = at(self.now.saturating_sub(older));
            let (algorithm, state) = (self.algorithm, &mut self.run.state);
            algorithm.refund(state, older, cost, GiveBack::Refund);
            let decision = algorithm.peek(state, older, 0);
            let unused = decision.remaining() == decision.limit;
            (unused != decision.reset_after.is_zero())
                .then(|| format!("after a refund of {cost:?} at {older:?}: {decision:?}"))
        })
    }

    /// `remaining` is the largest cost that is admitted, and no larger one is.
    fn inexact_remaining(self) -> Fault {
        let rest = self.peek(0, 0);
        let remaining = rest.remaining();
        let admitted = |cost| self.peek(0, cost).is_admitted();
        // An idle queue without a maximum cost accepts more than it reports.
        let unbounded = matches!(self.subject.promise, Promise::Paced(1));
        let exact = !unbounded || remaining < rest.limit;
        let is_right = admitted(remaining) && !(exact && admitted(remaining + 1));
        let now = self.now;
        (!is_right).then(|| format!("remaining at {now} ns is {remaining}, which is not exact"))
    }

    /// A forgettable state decides like a fresh one, then and at all later times.
    fn early_forget(mut self) -> Fault {
        let due = self.algorithm.forgettable_at(&self.run.state);
        self.now = self.now.max(due.as_nanos());
        let mut fresh = self.algorithm.fresh(at(self.now));
        (0..20).find_map(|_| {
            let (cost, now) = (self.random.below(self.subject.burst + 2), at(self.now));
            let kept = self.algorithm.decide(&mut self.run.state, now, cost);
            let forgotten = self.algorithm.decide(&mut fresh, now, cost);
            self.now += self.random.below(self.subject.period);
            (kept != forgotten).then(|| {
                format!("a cost of {cost} at {now:?}: a fresh state returns {forgotten:?}, the kept one {kept:?}")
            })
        })
    }

    /// A moment older than the state admits no more than the newest one.
    fn admits_more_in_the_past(mut self) -> Fault {
        // The state only records the newest moment if it admits something then.
        let state = &mut self.run.state;
        let _ = self.algorithm.decide(state, at(self.now), 1);
        let older = self.now.saturating_sub(self.random.log_uniform(42));
        let admits = |moment: u64, cost| {
            let decision = self.algorithm.peek(&self.run.state, at(moment), cost);
            decision.is_admitted()
        };
        let now = self.now;
        let mut costs = 1..=self.subject.burst.min(20);
        let cost = costs.find(|cost| admits(older, *cost) && !admits(now, *cost))?;
        Some(format!(
            "a cost of {cost} is admitted at {older} ns but not at {now} ns"
        ))
    }

    /// An operation at a moment older than the state leaves no more than the same operation at the newest
    /// moment, and a reservation has no turn until then that it has not at the newest. A refund from a bucket
    /// may give back of its cost what time has returned in between.
    fn leaves_more_in_the_past(mut self) -> Fault {
        let (algorithm, now, period) = (self.algorithm, self.now, self.subject.period);
        let _ = algorithm.decide(&mut self.run.state, at(now), 1);
        let older = now.saturating_sub(self.random.log_uniform(42));
        let cost = 1 + self.random.below(self.subject.burst.min(20));
        let taken_at = older.saturating_sub(self.random.below(2 * period));
        let wait = Duration::from_nanos(self.random.below(2 * period));
        let fault = |operation: &str, then: u64, newest: u64| {
            Some(format!(
                "{operation} of {cost} at {older} ns leaves {then}, at {now} ns {newest}"
            ))
        };
        let after = |change: &dyn Fn(&mut A::State)| {
            let mut state = self.run.state.clone();
            change(&mut state);
            self.left(&state)
        };

        let charged = [older, now].map(|moment| {
            after(&|state| {
                algorithm.charge(state, at(moment), cost);
            })
        });
        if charged[0] > charged[1] {
            return fault("a charge", charged[0], charged[1]);
        }

        let taken = Cost::new(cost, at(taken_at));
        let refunded = [older, now].map(|moment| {
            after(&|state| algorithm.refund(state, at(moment), taken, GiveBack::Refund))
        });
        let returned = match self.subject.promise {
            Promise::Bucket => cost,
            // A line that becomes idle has its whole length.
            Promise::Paced(_) => u64::MAX,
            _ => 0,
        };
        if refunded[0] > refunded[1].saturating_add(returned) {
            return fault("a refund", refunded[0], refunded[1]);
        }

        let [then, newest] = [older, now].map(|moment| {
            let mut state = self.run.state.clone();
            let decision = algorithm::reserve(algorithm, &mut state, at(moment), cost, wait);
            let turn = moment.saturating_add(nanos(decision.wait().unwrap_or_default()));
            (decision.is_denied(), turn <= now, self.left(&state))
        });
        let is_early = !then.0 && then.1 && (newest.0 || !newest.1);
        if is_early || (then.0 == newest.0 && then.2 > newest.2) {
            return fault("a reservation", then.2, newest.2);
        }
        None
    }

    /// The polling interval does not change what is admitted in the long run.
    fn cadence_matters(self) -> Fault {
        let (period, limit) = (self.subject.period, self.subject.limit);
        if !matches!(self.subject.promise, Promise::Bucket) {
            return None;
        }
        let admitted_asking_each = |step: u64| {
            let mut state = self.algorithm.fresh(at(0));
            let mut moments = (0..20 * period).step_by(usize::try_from(step).expect("short"));
            let mut admitted_at = |now| {
                let mut decide = || self.algorithm.decide(&mut state, at(now), 1);
                std::iter::from_fn(|| decide().is_admitted().then_some(())).count()
            };
            moments.by_ref().map(&mut admitted_at).sum::<usize>()
        };
        // The burst is large enough that the bucket is never full between requests.
        let interval = (period / limit).max(1);
        let seldom = admitted_asking_each(interval);
        [2, 3, 7, 10].into_iter().find_map(|part| {
            let often = admitted_asking_each((interval / part).max(1));
            (often.abs_diff(seldom) > 1).then(|| {
                format!(
                    "{seldom} admitted at 1 request per {interval} ns, {often} at {part} times that"
                )
            })
        })
    }
}
