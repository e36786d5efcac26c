//! The laws in the documentation of `algorithm`, for every algorithm.

use std::time::Duration;

use tower_throttle::algorithm::{Algorithm, Cost, GiveBack, Words};
use tower_throttle::{
    Decision, LeakyBucket, Quota, SlidingGrid, SlidingLog, SlidingWindow, WarmUp,
    algorithm::Charge, clock::Tick,
};

use crate::random::{Random, seeds};
use crate::subjects::{Promise, Subject, quota, random_subjects, subjects};

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

/// The request passes at `retry_after` and is denied one nanosecond earlier.
pub(crate) fn inexact_retry<A: Words>(subject: &Subject<A>, seed: u64) -> Option<String> {
    let mut random = Random::new(seed);
    let algorithm = &subject.algorithm;
    let (state, now) = random_state(algorithm, subject, &mut random);
    let cost = 1 + random.below(subject.burst.max(subject.limit));
    let decision = algorithm.peek(&state, at(now), cost);
    let retry_after = nanos(decision.retry_after?);
    let passes = |after: u64| !algorithm.peek(&state, at(now + after), cost).is_denied();
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
pub(crate) fn inexact_reset<A: Words>(subject: &Subject<A>, seed: u64) -> Option<String> {
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
pub(crate) fn resets_while_unused<A: Words>(subject: &Subject<A>, seed: u64) -> Option<String> {
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
pub(crate) fn inexact_remaining<A: Words>(subject: &Subject<A>, seed: u64) -> Option<String> {
    let algorithm = &subject.algorithm;
    let (state, now) = random_state(algorithm, subject, &mut Random::new(seed));
    let remaining = algorithm.peek(&state, at(now), 0).remaining();
    let admitted = |cost| algorithm.peek(&state, at(now), cost).is_admitted();
    // An idle queue without a maximum cost accepts more than it reports.
    let unbounded = matches!(subject.name, "leaky queue" | "warm-up");
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
pub(crate) fn early_forget<A: Words>(subject: &Subject<A>, seed: u64) -> Option<String> {
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
pub(crate) fn admits_more_in_the_past<A: Words>(subject: &Subject<A>, seed: u64) -> Option<String> {
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

/// A denied request, a peek and a cost of zero change nothing.
pub(crate) fn changed_without_admission<A: Words>(
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
pub(crate) fn cadence_matters<A: Words>(subject: &Subject<A>, _seed: u64) -> Option<String> {
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

type Law = fn(&Subject, u64) -> Option<String>;

fn holds(law: Law, usual: u64) {
    for seed in seeds(usual) {
        for subject in random_subjects(&mut Random::new(seed)) {
            if let Some(fault) = law(&subject, seed) {
                panic!("seed {seed}: {fault}, by {:?}", subject.algorithm);
            }
        }
    }
}

#[test]
fn retry_after_is_exact_on_both_sides() {
    holds(inexact_retry, 2_000);
}

#[test]
fn reset_after_is_exact_on_both_sides() {
    holds(inexact_reset, 1_000);
}

#[test]
fn an_unused_key_resets_after_no_time_whatever_was_refunded() {
    holds(resets_while_unused, 1_000);
}

#[test]
fn remaining_is_the_largest_cost_that_passes() {
    holds(inexact_remaining, 1_000);
}

#[test]
fn a_queue_charged_beyond_the_last_tick_never_returns_a_zero_retry_after() {
    for charge in [Charge::After, Charge::Before] {
        let quota = Quota::per_second(1);
        let line = LeakyBucket::new(quota).queue(1 << 20).charge_mode(charge);
        let mut state = line.fresh(Tick::MAX);
        // An unused queue admits the first charge at once, so it takes two.
        for _ in 0..2 {
            line.charge(&mut state, Tick::MAX, u64::MAX);
        }
        let decision = line.peek(&state, Tick::MAX, 2);
        assert!(decision.is_denied(), "{decision:?}");
        assert!(decision.retry_after > Some(Duration::ZERO), "{decision:?}");
    }
}

#[test]
fn a_forgettable_state_decides_like_a_fresh_one() {
    holds(early_forget, 1_000);
}

#[test]
fn a_clock_that_steps_back_admits_no_more() {
    holds(admits_more_in_the_past, 1_000);
}

#[test]
fn denials_peeks_and_zero_costs_change_nothing() {
    holds(changed_without_admission, 500);
}

#[test]
fn the_polling_interval_does_not_change_what_is_admitted() {
    for (limit, period) in [
        (1, 60_000_000),
        (3, 1_000_000),
        (10, 3_600_000),
        (7, 7_000_013),
    ] {
        for subject in subjects(quota(limit, period), limit + 2, 10) {
            if subject.promise == Promise::Bucket {
                assert_eq!(cadence_matters(&subject, 0), None);
            }
        }
    }
}

#[test]
fn a_sliding_window_counts_smooth_traffic_within_one_of_the_log() {
    for seed in seeds(200) {
        let mut random = Random::new(seed);
        let period = 1_000 + random.below(1_000_000);
        let gap = 1 + random.below(period / 4);
        // Evenly spaced requests below the limit, from a random moment on.
        let quota = quota(period, period);
        let (window, log) = (SlidingWindow::new(quota), SlidingLog::new(quota));
        let mut now = random.below(1 << 40);
        let mut states = (window.fresh(at(now)), log.fresh(at(now)));
        let start = now;
        while now < start + 6 * period {
            let counted = window.decide(&mut states.0, at(now), 1);
            let exact = log.decide(&mut states.1, at(now), 1);
            // Skips the first two windows, which have not seen the traffic for their whole length.
            if now > start + 2 * period {
                let apart = counted.remaining().abs_diff(exact.remaining());
                assert!(apart <= 1, "seed {seed}: {apart} apart at {now}");
            }
            now += gap;
        }
    }
}

#[test]
fn setters_give_the_same_policy_in_any_order() {
    let (before, quota) = (Quota::per_second(7), Quota::per_minute(300));
    let (over, wait) = (Duration::from_secs(20), Duration::from_millis(30));
    let expected = WarmUp::new(quota, over)
        .cold_factor(5)
        .queue(9)
        .max_wait(wait);
    let warm = WarmUp::new(before, over).max_wait(wait).queue(9);
    let warm = warm.cold_factor(5).with_quota(quota);
    assert_eq!(warm.expect("a valid quota"), expected);

    let expected = SlidingGrid::new(quota).cells(7).strict().offset(wait);
    let grid = SlidingGrid::new(before).offset(wait).strict().cells(7);
    assert_eq!(grid.with_quota(quota).expect("a valid quota"), expected);
}
