//! A limit that lends units of the time to come.

use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use tower_throttle::algorithm::{
    Algorithm, AnyAlgorithm, Cost, GiveBack, Lending, state_from_bytes, state_to_bytes,
};
use tower_throttle::clock::Tick;
use tower_throttle::{
    All, FixedWindow, Limiter, Lockout, ManualClock, Quota, SlidingGrid, SlidingLog, SlidingWindow,
    TokenBucket,
};

use crate::random::{Random, seeds};

/// A mistake in how requests borrow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    None,
    /// What is lent does not count.
    NotCounted,
    /// A request goes on before its turn.
    TooEarly,
    /// One that leaves keeps its units, and its turn is used by another.
    LeavesNothing,
}

fn limits(quota: Quota) -> [AnyAlgorithm; 6] {
    [
        AnyAlgorithm::new(FixedWindow::new(quota)),
        AnyAlgorithm::new(FixedWindow::new(quota).anchored()),
        AnyAlgorithm::new(SlidingLog::new(quota)),
        AnyAlgorithm::new(SlidingGrid::new(quota).cells(5)),
        AnyAlgorithm::new(SlidingWindow::new(quota)),
        AnyAlgorithm::new(TokenBucket::new(quota)),
    ]
}

/// What a limit that lends admits in a random trace: the moment of each request, and its cost. Fails if a
/// request is not told the truth.
fn admitted(
    limit: &AnyAlgorithm,
    random: &mut Random,
    mistake: Mistake,
) -> Result<Vec<(Tick, u64)>, String> {
    let (units, longest) = (1 + random.below(6), 1 + random.below(3_000));
    let lending = Lending::new(limit.clone(), units).max_wait(Duration::from_nanos(longest));
    let mut now = Tick::from_nanos(1_000_000);
    let mut state = lending.fresh(now);
    let (mut admitted, mut waiting) = (Vec::<(Tick, u64)>::new(), Vec::<(Tick, u64)>::new());
    for _ in 0..60 {
        if random.below(3) == 0 {
            now = now.plus(Duration::from_nanos(random.below(400)));
        }
        let (due, later) = waiting.into_iter().partition(|(turn, _)| *turn <= now);
        (waiting, admitted) = (later, [admitted, due].concat());
        let cost = 1 + random.below(3);
        match random.below(8) {
            0 if !waiting.is_empty() => {
                let place = usize::try_from(random.below(waiting.len() as u64)).expect("small");
                let (turn, cost) = waiting.remove(place);
                lending.refund(&mut state, now, Cost::new(cost, turn), GiveBack::Cancel);
                if mistake == Mistake::LeavesNothing {
                    admitted.push((turn, cost));
                }
            }
            1..=3 => {
                let borrowed = lending.reserve(&mut state, now, cost, Duration::MAX);
                match borrowed.wait() {
                    Some(wait) if wait.is_zero() => admitted.push((now, cost)),
                    Some(wait) => {
                        let turn = now.plus(wait);
                        let lent: u64 = waiting.iter().map(|(_, cost)| cost).sum();
                        if lent + cost > units || wait > Duration::from_nanos(longest) {
                            return Err(format!("{cost} beside {lent} of {units}, {wait:?}"));
                        }
                        if mistake == Mistake::NotCounted {
                            let given = Cost::new(cost, turn);
                            lending.refund(&mut state, now, given, GiveBack::Cancel);
                        }
                        let early = u64::from(mistake == Mistake::TooEarly);
                        let turn = Tick::from_nanos(turn.as_nanos() - early);
                        waiting.push((turn, cost));
                    }
                    None => {}
                }
            }
            _ => {
                let looked = lending.peek(&state, now, cost);
                let decision = lending.decide(&mut state, now, cost);
                if looked.verdict != decision.verdict {
                    return Err(format!("{looked:?} before {decision:?}"));
                }
                if decision.is_admitted() {
                    admitted.push((now, cost));
                } else if let Some(retry) = decision.retry_after {
                    // It is admitted then, and not a nanosecond before.
                    let at = now.plus(retry);
                    let before = at.as_nanos().saturating_sub(1).max(now.as_nanos());
                    let seen = [at, Tick::from_nanos(before)]
                        .map(|at| lending.peek(&state, at, cost).is_admitted());
                    if seen != [true, false] {
                        return Err(format!("{seen:?} at {now:?} after {decision:?}"));
                    }
                } else if cost <= decision.limit {
                    return Err(format!("no retry_after of {cost}: {decision:?}"));
                }
            }
        }
    }
    admitted.append(&mut waiting);
    admitted.sort_by_key(|(at, _)| *at);
    Ok(admitted)
}

/// Whether the limit alone admits the same requests at the same moments.
fn first_excess(limit: &AnyAlgorithm, admitted: &[(Tick, u64)]) -> Option<String> {
    let mut state = limit.fresh(Tick::from_nanos(1_000_000));
    admitted.iter().find_map(|(at, cost)| {
        let decision = limit.decide(&mut state, *at, *cost);
        decision
            .is_denied()
            .then(|| format!("{limit:?}: {cost} at {at:?} is too much in {admitted:?}"))
    })
}

fn fault(mistake: Mistake, traces: u64) -> Option<String> {
    seeds(traces).find_map(|seed| {
        let random = &mut Random::new(seed);
        let quota = Quota::per(2 + random.below(6), Duration::from_micros(1));
        limits(quota).iter().find_map(|limit| {
            match admitted(limit, random, mistake) {
                Ok(admitted) => first_excess(limit, &admitted),
                Err(fault) => Some(format!("{limit:?}: {fault}")),
            }
            .map(|fault| format!("seed {seed}: {fault}"))
        })
    })
}

/// Shows promises 380, 381.
#[test]
fn what_is_lent_is_within_the_limit_at_the_moments_of_the_turns() {
    assert_eq!(fault(Mistake::None, 2_000), None);
}

/// Shows promises 380, 381.
#[test]
fn mistakes_in_lending_are_found() {
    for mistake in [
        Mistake::NotCounted,
        Mistake::TooEarly,
        Mistake::LeavesNothing,
    ] {
        assert!(fault(mistake, 2_000).is_some(), "{mistake:?}");
    }
}

/// Shows promise 382.
#[test]
fn one_that_leaves_gives_back_its_units_and_no_others() {
    for limit in limits(Quota::per(4, Duration::from_micros(1))) {
        let lending = Lending::new(limit, 4);
        let now = Tick::from_nanos(1_000_000);
        let mut state = lending.fresh(now);
        assert!(lending.decide(&mut state, now, 4).is_admitted());
        let before = state.clone();
        let turn = |state: &mut _| {
            let borrowed = lending.reserve(state, now, 1, Duration::MAX);
            now.plus(borrowed.wait().expect("a turn"))
        };
        let first = turn(&mut state);
        let one = state.clone();
        let second = turn(&mut state);
        for (turn, left) in [(second, &one), (first, &before)] {
            lending.refund(&mut state, now, Cost::new(1, turn), GiveBack::Cancel);
            assert_eq!(format!("{state:?}"), format!("{left:?}"), "{lending:?}");
        }
    }
}

#[test]
fn a_state_with_loans_is_the_same_as_bytes() {
    let lending = Lending::new(FixedWindow::new(Quota::per_second(2)), 3);
    let now = Tick::from_nanos(5_000_000_000);
    let mut state = lending.fresh(now);
    for _ in 0..4 {
        let _ = lending.reserve(&mut state, now, 1, Duration::MAX);
    }
    let bytes = state_to_bytes(&lending, &state).expect("bytes");
    assert_eq!(state_from_bytes(&lending, &bytes), Some(state));
    // More than it lends is no state of it.
    let less = Lending::new(FixedWindow::new(Quota::per_second(2)), 1);
    let two = Lending::new(FixedWindow::new(Quota::per_second(1)), 3);
    let mut state = two.fresh(now);
    for at in [0, 0, 0] {
        let _ = two.reserve(
            &mut state,
            now.plus(Duration::from_nanos(at)),
            1,
            Duration::MAX,
        );
    }
    let bytes = state_to_bytes(&two, &state).expect("bytes");
    assert_eq!(state_from_bytes(&less, &bytes), None);
}

#[test]
fn a_limit_that_lends_nothing_is_refused() {
    let nothing = Lending::new(FixedWindow::new(Quota::per_second(2)), 0);
    let error = nothing.validate().expect_err("refused");
    assert!(error.to_string().contains("at least 1"), "{error}");
}

/// It would count a request that borrows.
#[test]
fn a_limit_that_counts_denials_lends_nothing() {
    let window = FixedWindow::new(Quota::per_second(1));
    let lockout = Lockout::new(Quota::per_minute(1));
    let lending = Lending::new(lockout.after_denials_of(window), 1);
    let error = lending.validate().expect_err("refused").to_string();
    assert!(error.contains("after_denials_of(Lending::new("), "{error}");
    let in_tuple = Lending::new((window, lockout.after_denials_of(window)), 1);
    assert!(in_tuple.validate().is_err() && (window, lending).validate().is_err());

    // The other way round a request that borrows is not counted, and one that is denied is.
    let counting = lockout.after_denials_of(Lending::new(window, 1));
    assert_eq!(counting.validate(), Ok(()));
    let now = Tick::from_nanos(5_000_000_000);
    let mut state = counting.fresh(now);
    assert!(counting.decide(&mut state, now, 1).is_admitted());
    let mut reserve = || counting.reserve(&mut state, now, 1, Duration::MAX);
    assert_eq!(reserve().wait(), Some(Duration::from_secs(1)));
    let denied = reserve();
    assert!(denied.is_denied());
    assert_eq!(denied.retry_after, Some(Duration::from_secs(60)));
}

/// Dropping the future gives back a loan that counts by then.
///
/// Shows promise 382.
#[test]
fn a_call_that_is_dropped_at_its_turn_gives_back_its_units() {
    let quota = Quota::per_second(1);
    gives_back(&Lending::new(SlidingLog::new(quota), 1));
    let minute = SlidingLog::new(Quota::per_minute(60));
    gives_back(&Lending::new((SlidingLog::new(quota), minute), 1));
}

/// `limit` admits one per second.
fn gives_back(limit: &impl Algorithm) {
    for waited in [Duration::from_millis(999), Duration::from_secs(1)] {
        let clock = ManualClock::new();
        let limiter = Limiter::new(limit.clone()).with_clock(clock.clone());
        assert!(limiter.check().is_admitted());
        {
            let mut call = pin!(limiter.acquire(1, Duration::from_secs(5)));
            let poll = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(poll.is_pending());
            clock.advance(waited);
        }
        clock.advance(Duration::from_secs(1).saturating_sub(waited));
        assert!(limiter.check().is_admitted(), "left after {waited:?}");
        assert!(limiter.check().is_denied(), "left after {waited:?}");
    }
}

/// In a tuple each limit would grant a turn of its own.
#[test]
fn a_tuple_lends_nothing() {
    let window = FixedWindow::new(Quota::per_second(2));
    let lending = Lending::new(window, 1);
    assert!(lending.facts().lends);
    assert!(!(lending, window).facts().lends);
    assert_eq!(Algorithm::quotas(&lending), [Quota::per_second(2)]);
    denies_when_full(&(lending, FixedWindow::new(Quota::per_second(9))));
    denies_when_full(&(lending, lending));
    denies_when_full(&All::new([lending, lending]));
}

fn denies_when_full(set: &impl Algorithm) {
    let now = Tick::from_nanos(1_000_000);
    let mut state = set.fresh(now);
    assert!(set.decide(&mut state, now, 2).is_admitted());
    let looked = Algorithm::peek_reserve(set, &state, now, 1, Duration::MAX);
    let denied = set.reserve(&mut state, now, 1, Duration::MAX);
    assert!(looked.is_denied() && denied.is_denied(), "{set:?}");
}
