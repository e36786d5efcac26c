//! What a line asks of an algorithm: turns at planned moments, and how long they take.

use std::time::Duration;

use tower_throttle::algorithm::{Algorithm, AnyAlgorithm, Cost, GiveBack, IntoAlgorithm, reserve};
use tower_throttle::clock::Tick;
use tower_throttle::{
    FixedWindow, LeakyBucket, Quota, SlidingGrid, SlidingLog, SlidingWindow, TokenBucket, Verdict,
    WarmUp,
};

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

/// The wait that is expected behind others is the one that it takes, if all costs are 1.
#[test]
fn a_wait_is_expected_to_the_nanosecond() {
    fn check<A: Algorithm>(algorithm: &A) {
        for seed in seeds(20) {
            let random = &mut Random::new(seed);
            let mut state = algorithm.fresh(Tick::ZERO);
            let mut at = Tick::ZERO;
            for _ in 0..random.below(20) {
                let _ = algorithm.decide(&mut state, at, 1);
                at = at.plus(Duration::from_micros(random.below(400_000)));
            }
            let ahead = random.below(30);
            let expected = algorithm.expected_wait(&state, at, ahead, 1);
            let mut turn = at;
            for _ in 0..=ahead {
                while let Some(wait) = {
                    let decision = algorithm.take_turn(&mut state, turn, 1);
                    decision.retry_after.filter(|_| decision.is_denied())
                } {
                    turn = turn.plus(wait);
                }
            }
            assert_eq!(expected, Some(turn.since(at)), "{algorithm:?}, seed {seed}");
        }
    }
    let quota = Quota::per_second(7);
    check(&TokenBucket::new(quota.burst(4)));
    check(&TokenBucket::new(quota.burst(1)).debt(3));
    check(&LeakyBucket::new(quota));
    check(&FixedWindow::new(quota));
    check(&FixedWindow::new(quota).anchored());
    check(&SlidingLog::new(quota));
    check(&WarmUp::new(quota, Duration::from_secs(3)));
}

/// A cost that can never pass has no turn, and no algorithm expects too long a wait.
#[test]
fn no_algorithm_expects_too_long_a_wait() {
    fn check<A: Algorithm>(algorithm: &A, most: u64) {
        let state = algorithm.fresh(Tick::ZERO);
        let never = algorithm.expected_wait(&state, Tick::ZERO, 3, most + 1);
        assert_eq!(never, None, "{algorithm:?}");
        for seed in seeds(20) {
            let random = &mut Random::new(seed);
            let (mut state, mut turn) = (algorithm.fresh(Tick::ZERO), Tick::ZERO);
            let costs: Vec<_> = (0..10).map(|_| 1 + random.below(most)).collect();
            let last = costs[costs.len() - 1];
            let ahead = costs.iter().sum::<u64>() - last;
            let expected = algorithm.expected_wait(&state, turn, ahead, last);
            for cost in costs {
                while let Some(wait) = {
                    let decision = algorithm.take_turn(&mut state, turn, cost);
                    decision.retry_after.filter(|_| decision.is_denied())
                } {
                    turn = turn.plus(wait);
                }
            }
            let took = turn.since(Tick::ZERO);
            assert!(
                expected.is_some_and(|wait| wait <= took),
                "{algorithm:?}, seed {seed}"
            );
        }
    }
    let quota = Quota::per_second(7);
    check(&TokenBucket::new(quota.burst(4)), 4);
    check(&LeakyBucket::new(quota), 7);
    check(&FixedWindow::new(quota), 7);
    check(&SlidingLog::new(quota), 7);
    check(&SlidingWindow::new(quota), 7);
    check(&SlidingGrid::new(quota).cells(5), 7);
    check(
        &(TokenBucket::new(quota.burst(4)), SlidingLog::new(quota)).into_algorithm(),
        4,
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
        let cost = Cost { units: 1, at };
        bucket.refund(&mut state, now, cost, GiveBack::Cancel);
        let booked = reserve(&bucket, &mut state, now, 1, Duration::from_secs(1));
        assert_eq!(booked.verdict, waits(next), "{leaves}");
    }
}
