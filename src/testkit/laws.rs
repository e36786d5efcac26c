//! The laws in the documentation of `algorithm`.
//!
//! Each is a function that returns what is wrong in one random trace, if anything.

use std::time::Duration;

use super::random::Random;
use super::subject::{Promise, Subject};
use crate::algorithm::{Cost, GiveBack, Words};
use crate::clock::Tick;
use crate::decision::Decision;

fn at(ns: u64) -> Tick {
    Tick::from_nanos(ns)
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).expect("short spans")
}

/// Sends a few random requests. Returns the state and the newest moment that it has seen.
fn random_state<A: Words>(
    algorithm: &A,
    subject: &Subject<A>,
    random: &mut Random,
) -> (A::State, u64) {
    let mut now = random.log_uniform(41);
    let mut state = algorithm.fresh(at(now));
    for _ in 0..random.below(60) {
        let cost = random.below(subject.burst.max(subject.limit) + 3);
        let _ = algorithm.decide(&mut state, at(now), cost);
        now += match random.below(4) {
            0 => 0,
            1 => random.below(subject.period / subject.limit + 2),
            2 => random.below(subject.period),
            _ => random.log_uniform(41),
        };
    }
    (state, now)
}

/// The request passes at `retry_after` and is denied one nanosecond earlier. Without a `retry_after` it
/// is denied also when the whole limit is available.
pub(super) fn inexact_retry<A: Words>(subject: &Subject<A>, seed: u64) -> Option<String> {
    let mut random = Random::new(seed);
    let algorithm = &subject.algorithm;
    let (state, now) = random_state(algorithm, subject, &mut random);
    let cost = 1 + random.below(subject.burst.max(subject.limit));
    let decision = algorithm.peek(&state, at(now), cost);
    let passes = |after: u64| !algorithm.peek(&state, at(now + after), cost).is_denied();
    let Some(retry_after) = decision.retry_after.map(nanos) else {
        let passes_later = decision.is_denied() && passes(nanos(decision.reset_after));
        return passes_later.then(|| format!("{}: denied without a retry_after", subject.name));
    };
    if !passes(retry_after) {
        return Some(format!(
            "{}: denied at its retry_after {retry_after}",
            subject.name
        ));
    }
    if retry_after == 0 || passes(retry_after - 1) {
        return Some(format!(
            "{}: admitted before its retry_after {retry_after}",
            subject.name
        ));
    }
    None
}

/// The whole limit is available from `reset_after` on, and not earlier.
pub(super) fn inexact_reset<A: Words>(subject: &Subject<A>, seed: u64) -> Option<String> {
    let algorithm = &subject.algorithm;
    let (state, now) = random_state(algorithm, subject, &mut Random::new(seed));
    let decision = algorithm.peek(&state, at(now), 0);
    let reset_after = nanos(decision.reset_after);
    let full = |after: u64| {
        let rest = algorithm.peek(&state, at(now + after), 0);
        rest.remaining() == rest.limit
    };
    if !full(reset_after) || (reset_after > 0 && full(reset_after - 1)) {
        return Some(format!(
            "{}: reset_after {reset_after} is not exact",
            subject.name
        ));
    }
    None
}

/// A key of which the whole limit is available waits for nothing, also after refunds and at moments
/// older than the state.
pub(super) fn resets_while_unused<A: Words>(subject: &Subject<A>, seed: u64) -> Option<String> {
    let mut random = Random::new(seed);
    let algorithm = &subject.algorithm;
    let (mut state, mut now) = random_state(algorithm, subject, &mut random);
    let mut taken = Vec::new();
    for _ in 0..4 {
        let cost = 1 + random.below(subject.limit.min(3));
        if !algorithm.decide(&mut state, at(now), cost).is_denied() {
            taken.push((now, cost));
        }
        now += random.below(subject.period);
    }
    for (taken_at, cost) in taken.into_iter().rev() {
        let older = now.saturating_sub(random.below(3 * subject.period));
        algorithm.refund(
            &mut state,
            at(older),
            Cost::new(cost, at(taken_at)),
            GiveBack::Refund,
        );
        let decision = algorithm.peek(&state, at(older), 0);
        let unused = decision.remaining() == decision.limit;
        if unused != (decision.reset_after == Duration::ZERO) {
            let name = subject.name;
            return Some(format!("{name}: at {older} {decision:?}"));
        }
    }
    None
}

/// `remaining` is the largest cost that is admitted, and no larger one is.
pub(super) fn inexact_remaining<A: Words>(subject: &Subject<A>, seed: u64) -> Option<String> {
    let algorithm = &subject.algorithm;
    let (state, now) = random_state(algorithm, subject, &mut Random::new(seed));
    let remaining = algorithm.peek(&state, at(now), 0).remaining();
    let admitted = |cost| algorithm.peek(&state, at(now), cost).is_admitted();
    // An idle queue without a maximum cost accepts more than it reports.
    let unbounded = subject.promise == Promise::Paced(1);
    let exact = !unbounded || remaining < algorithm.peek(&state, at(now), 0).limit;
    if !admitted(remaining) || exact && admitted(remaining + 1) {
        return Some(format!(
            "{}: remaining {remaining} is not exact",
            subject.name
        ));
    }
    None
}

/// A forgettable state decides like a fresh one, then and at all later times.
pub(super) fn early_forget<A: Words>(subject: &Subject<A>, seed: u64) -> Option<String> {
    let mut random = Random::new(seed);
    let algorithm = &subject.algorithm;
    let (mut state, now) = random_state(algorithm, subject, &mut random);
    let mut now = now.max(algorithm.forgettable_at(&state).as_nanos());
    let mut fresh = algorithm.fresh(at(now));
    for _ in 0..20 {
        let cost = random.below(subject.burst + 2);
        let kept = algorithm.decide(&mut state, at(now), cost);
        let forgotten = algorithm.decide(&mut fresh, at(now), cost);
        if kept != forgotten {
            return Some(format!(
                "{}: a fresh state returns {forgotten:?}, the kept one {kept:?}",
                subject.name
            ));
        }
        now += random.below(subject.period);
    }
    None
}

/// A moment older than the state admits no more than the newest one.
pub(super) fn admits_more_in_the_past<A: Words>(subject: &Subject<A>, seed: u64) -> Option<String> {
    let mut random = Random::new(seed);
    let algorithm = &subject.algorithm;
    let (mut state, now) = random_state(algorithm, subject, &mut random);
    // The state only records the newest moment if it admits something then.
    let _ = algorithm.decide(&mut state, at(now), 1);
    let older = now.saturating_sub(random.log_uniform(42));
    for cost in 1..=subject.burst.min(20) {
        let then = algorithm.peek(&state, at(older), cost);
        let newest = algorithm.peek(&state, at(now), cost);
        if then.is_admitted() && !newest.is_admitted() {
            return Some(format!(
                "{}: a cost of {cost} is admitted at {older} but not at {now}",
                subject.name
            ));
        }
    }
    None
}

/// An operation at a moment older than the state leaves no more than the same operation at the newest
/// moment, and a reservation has no turn until then that it has not at the newest. A refund from a bucket
/// may give back of its cost what time has returned in between.
pub(super) fn leaves_more_in_the_past<A: Words>(subject: &Subject<A>, seed: u64) -> Option<String> {
    let mut random = Random::new(seed);
    let algorithm = &subject.algorithm;
    let (mut state, now) = random_state(algorithm, subject, &mut random);
    let _ = algorithm.decide(&mut state, at(now), 1);
    let older = now.saturating_sub(random.log_uniform(42));
    let cost = 1 + random.below(subject.burst.min(20));
    let taken_at = older.saturating_sub(random.below(2 * subject.period));
    let wait = Duration::from_nanos(random.below(2 * subject.period));
    let left = |state: &A::State| algorithm.peek(state, at(now), 0).remaining();
    let fault = |operation: &str, then: u64, newest: u64| {
        Some(format!(
            "{}: {operation} of {cost} at {older} leaves {then}, at {now} {newest}",
            subject.name
        ))
    };

    let charged = |moment: u64| {
        let mut state = state.clone();
        algorithm.charge(&mut state, at(moment), cost);
        left(&state)
    };
    if charged(older) > charged(now) {
        return fault("a charge", charged(older), charged(now));
    }

    let refunded = |moment: u64| {
        let (mut state, taken) = (state.clone(), Cost::new(cost, at(taken_at)));
        algorithm.refund(&mut state, at(moment), taken, GiveBack::Refund);
        left(&state)
    };
    let returned = match subject.promise {
        Promise::Bucket => cost,
        // A line that becomes idle has its whole length.
        Promise::Paced(_) => u64::MAX,
        _ => 0,
    };
    if refunded(older) > refunded(now).saturating_add(returned) {
        return fault("a refund", refunded(older), refunded(now));
    }

    let reserved = |moment: u64| {
        let mut state = state.clone();
        let decision = algorithm.reserve(&mut state, at(moment), cost, wait);
        let turn = moment.saturating_add(nanos(decision.wait().unwrap_or_default()));
        (decision.is_denied(), turn <= now, left(&state))
    };
    let (then, newest) = (reserved(older), reserved(now));
    let is_early = !then.0 && then.1 && (newest.0 || !newest.1);
    if is_early || (then.0 == newest.0 && then.2 > newest.2) {
        return fault("a reservation", then.2, newest.2);
    }
    None
}

/// A denied request, a peek and a cost of zero change nothing.
pub(super) fn changed_without_admission<A: Words>(
    subject: &Subject<A>,
    seed: u64,
) -> Option<String> {
    let mut random = Random::new(seed);
    let algorithm = &subject.algorithm;
    let (state, now) = random_state(algorithm, subject, &mut random);
    let look = |state: &_| -> Vec<Decision> {
        (0..30)
            .map(|step| algorithm.peek(state, at(now + step * (subject.period / 20 + 1)), 1))
            .collect()
    };
    let mut asked = state.clone();
    for _ in 0..5 {
        let cost = match random.below(2) {
            0 => 0,
            _ => 1 + random.below(2 * subject.burst.max(subject.limit)),
        };
        if cost == 0 || algorithm.peek(&state, at(now), cost).is_denied() {
            let _ = algorithm.decide(&mut asked, at(now), cost);
        }
    }
    (look(&state) != look(&asked)).then(|| format!("{}: a denial changed the state", subject.name))
}

/// The polling interval does not change what is admitted in the long run.
pub(super) fn cadence_matters<A: Words>(subject: &Subject<A>) -> Option<String> {
    if subject.promise != Promise::Bucket {
        return None;
    }
    let horizon = 20 * subject.period;
    let admitted_asking_each = |step: u64| {
        let mut state = subject.algorithm.fresh(at(0));
        let mut admitted = 0;
        let mut now = 0;
        while now < horizon {
            while subject
                .algorithm
                .decide(&mut state, at(now), 1)
                .is_admitted()
            {
                admitted += 1;
            }
            now += step;
        }
        admitted
    };
    // The burst is large enough that the bucket is never full between requests.
    let interval = (subject.period / subject.limit).max(1);
    let seldom: u64 = admitted_asking_each(interval);
    for part in [2, 3, 7, 10] {
        let often = admitted_asking_each((interval / part).max(1));
        if often.abs_diff(seldom) > 1 {
            return Some(format!(
                "{}: {seldom} admitted at 1 request per {interval} ns, {often} at {part} times that",
                subject.name
            ));
        }
    }
    None
}
