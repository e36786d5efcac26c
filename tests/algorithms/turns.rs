//! What a line asks of an algorithm: turns at planned moments, and how long they take.

use std::time::Duration;

use tower_throttle::algorithm::{
    Algorithm, AnyAlgorithm, Cost, GiveBack, IntoAlgorithm, LineCosts, reserve,
};
use tower_throttle::clock::Tick;
use tower_throttle::{
    FixedWindow, LeakyBucket, Lockout, Quota, SlidingGrid, SlidingLog, SlidingWindow, TokenBucket,
    Verdict, WarmUp,
};

use crate::planted::{Bug, broken};
use crate::random::{Random, seeds};

/// How a line asks.
type Take<A> = fn(&A, &mut <A as Algorithm>::State, Tick, u64) -> tower_throttle::Decision;

/// The moments at which `turns` requests of a cost of 1 go on, each as soon as it can.
fn line<A: Algorithm>(algorithm: &A, turns: usize, take: Take<A>) -> Vec<u64> {
    let (mut at, mut moments) = (Tick::ZERO, Vec::new());
    let mut state = algorithm.fresh(at);
    while moments.len() < turns {
        let decision = take(algorithm, &mut state, at, 1);
        match decision.retry_after {
            Some(wait) if !decision.is_admitted() => at = at.plus(wait),
            _ => moments.push(at.as_nanos()),
        }
    }
    moments
}

/// Shows promise 7.
#[test]
fn a_line_that_asks_at_whole_nanoseconds_loses_no_fraction() {
    fn check<A: Algorithm>(algorithm: &A, limit: u64) {
        let ideal = |turn: u64| (turn * 1_000_000_000).div_ceil(limit);
        let expected: Vec<_> = (0..5_000).map(ideal).collect();
        let found = line(algorithm, 5_000, A::take_turn);
        assert_eq!(found, expected, "{algorithm:?}");
        // Each turn begins at the moment that was rounded up.
        assert_ne!(line(algorithm, 5_000, A::decide), expected, "{algorithm:?}");
    }
    for limit in [3, 7, 999] {
        let quota = Quota::per_second(limit).burst(1);
        check(&TokenBucket::new(quota), limit);
        check(&LeakyBucket::new(quota), limit);
        check(&AnyAlgorithm::new(TokenBucket::new(quota)), limit);
        let slower = TokenBucket::new(Quota::per_second(1_000));
        check(&(TokenBucket::new(quota), slower).into_algorithm(), limit);
    }
}

/// Takes these costs one after the other, each as soon as it can. Returns how long the last one has waited.
fn served<A: Algorithm>(algorithm: &A, mut state: A::State, at: Tick, costs: &[u64]) -> Duration {
    let mut turn = at;
    for cost in costs {
        while let Some(wait) = {
            let decision = algorithm.take_turn(&mut state, turn, *cost);
            decision.retry_after.filter(|_| decision.is_denied())
        } {
            turn = turn.plus(wait);
        }
    }
    turn.since(at)
}

/// Checks what is expected behind random costs, all equal or not, from random states. `is_exact` if the costs fill the
/// limit. Returns how often a request waits for longer than the least that is expected.
fn check<A: Algorithm>(algorithm: &A, most: u64, are_equal: bool, is_exact: bool) -> usize {
    let later = |seed| {
        let random = &mut Random::new(seed);
        let mut at = Tick::from_nanos(1_772_319_600_000_000_000);
        let mut state = algorithm.fresh(at);
        for _ in 0..random.below(20) {
            let _ = algorithm.decide(&mut state, at, 1 + random.below(most));
            let us = random.below(400_000) * random.below(2);
            at = at.plus(Duration::from_micros(us));
        }
        if random.below(4) == 0 {
            algorithm.charge(&mut state, at, random.below(20));
        }
        let each = 1 + random.below(most.min(3));
        let len = 2 + random.below(30);
        let draw = |_| {
            if are_equal {
                each
            } else {
                1 + random.below(most)
            }
        };
        let costs: Vec<_> = (0..len).map(draw).collect();
        let own = costs[costs.len() - 1];
        let ahead = costs.iter().sum::<u64>() - own;
        let expected = LineCosts {
            ahead,
            own,
            are_equal,
        };
        let expected = algorithm.expected_wait(&state, at, expected);
        let [least, longest] = expected.expect("it can pass");
        let truth = served(algorithm, state, at, &costs);
        let bounds =
            format!("{algorithm:?}, seed {seed}: {costs:?}, {least:?}, {truth:?}, {longest:?}");
        assert!(least <= truth && truth <= longest, "{bounds}");
        assert!(least == longest || !is_exact, "{bounds}");
        least < truth
    };
    seeds(100).filter(|seed| later(*seed)).count()
}

/// It is exact for buckets without steps, and for windows and logs if the costs fill them.
///
/// Shows promise 61.
#[test]
fn a_wait_is_expected_at_least_and_at_most() {
    fn bucket<A: Algorithm>(algorithm: &A, most: u64) {
        check(algorithm, most, false, true);
    }
    fn window<A: Algorithm>(algorithm: &A) {
        check(algorithm, 12, true, true);
        assert!(
            check(algorithm, 12, false, false) > 0,
            "{algorithm:?}: it is early"
        );
    }
    fn other<A: Algorithm>(algorithm: &A, most: u64) {
        check(algorithm, most, true, false);
        check(algorithm, most, false, false);
    }
    let quota = Quota::per_second(12);
    bucket(&TokenBucket::new(quota.burst(4)), 4);
    bucket(&TokenBucket::new(quota.burst(1)).debt(3), 4);
    bucket(&LeakyBucket::new(quota), 12);
    for ms in [100, 1_000] {
        let step = Duration::from_millis(ms);
        let bucket = TokenBucket::new(quota.burst(4)).refill_every(step);
        check(&bucket, 1, true, true);
        other(&bucket.debt(6), 10);
    }
    bucket(&WarmUp::new(quota, Duration::from_secs(3)), 12);
    #[cfg(feature = "governor")]
    for burst in [1, 12] {
        bucket(&tower_throttle::Gcra::new(quota.burst(burst)), burst);
    }
    let grid = SlidingGrid::new(quota).cells(5);
    window(&FixedWindow::new(quota));
    window(&FixedWindow::new(quota).anchored());
    window(&SlidingLog::new(quota));
    window(&grid);
    window(&grid.strict());
    window(&broken(FixedWindow::new(quota), Bug::NoRefund));
    window(&AnyAlgorithm::new(SlidingLog::new(quota)));
    for quota in [Quota::per_day(12), Quota::per_month(12)] {
        window(&tower_throttle::CalendarWindow::new(quota, "Europe/Berlin").expect("a zone"));
    }
    for block in [100, 5_000] {
        let lockout = Lockout::new(quota).block(Duration::from_millis(block));
        window(&lockout);
        other(&(LeakyBucket::new(quota), lockout).into_algorithm(), 12);
    }
    other(&SlidingWindow::new(quota), 12);
    let (log, slower) = (
        SlidingLog::new(quota),
        FixedWindow::new(Quota::per_minute(60)),
    );
    other(&(TokenBucket::new(quota.burst(4)), log).into_algorithm(), 4);
    other(
        &(log, slower, SlidingWindow::new(quota)).into_algorithm(),
        12,
    );
    // A cost that can never pass has no turn.
    let never = LineCosts {
        ahead: 3,
        own: 13,
        are_equal: false,
    };
    assert_eq!(
        log.expected_wait(&log.fresh(Tick::ZERO), Tick::ZERO, never),
        None
    );
}

/// Behind a turn that passes unused the others keep theirs; that of the last one is free again.
///
/// Shows promise 25.
#[test]
fn only_the_last_turn_is_given_back() {
    let bucket = TokenBucket::new(Quota::per_second(10).burst(1));
    let now = Tick::from_nanos(1 << 40);
    for (leaves, next) in [(100, 400), (200, 400), (300, 300)] {
        let mut state = bucket.fresh(now);
        let mut book = || reserve(&bucket, &mut state, now, 1, Duration::from_secs(1)).verdict;
        let waits = |ms| Verdict::Wait(Duration::from_millis(ms));
        let booked = [Verdict::Admit, waits(100), waits(200), waits(300)];
        assert_eq!([(); 4].map(|()| book()), booked);
        let at = Tick::from_nanos(now.as_nanos() + leaves * 1_000_000 - 1);
        bucket.refund(&mut state, now, Cost { units: 1, at }, GiveBack::Cancel);
        let booked = reserve(&bucket, &mut state, now, 1, Duration::from_secs(1));
        assert_eq!(booked.verdict, waits(next), "{leaves}");
    }
}
