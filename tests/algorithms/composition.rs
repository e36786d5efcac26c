//! Combined limits return for each operation what follows from their parts.

use std::time::Duration;

use tower_throttle::algorithm::{Algorithm, AnyAlgorithm, IntoAlgorithm};
use tower_throttle::clock::Tick;
use tower_throttle::{All, FixedWindow, Quota, TokenBucket};

const SECOND: Duration = Duration::from_secs(1);

fn at(ns: u64) -> Tick {
    Tick::from_nanos(ns)
}

/// Shows promise 16.
#[test]
fn figures_are_those_of_the_limit_with_the_least_remaining_share() {
    let pair = (
        TokenBucket::new(Quota::per_second(2)),
        FixedWindow::new(Quota::per_day(1_000)),
    )
        .into_algorithm();
    let mut state = pair.fresh(at(0));
    let first = pair.decide(&mut state, at(0), 1);
    assert_eq!((first.policy, first.remaining()), (0, 1));
    let second = pair.decide(&mut state, at(0), 1);
    assert_eq!((second.policy, second.limit, second.remaining()), (0, 2, 0));
    assert_eq!(second.reset_after, SECOND);
    // 400 of 1,000 left for the day is a smaller share than 1 of 2 left for the second.
    pair.parts().1.charge(&mut state.1, at(0), 598);
    let third = pair.decide(&mut state, at(1_000_000_000), 1);
    assert_eq!((third.policy, third.remaining()), (1, 399));
    assert_eq!(third.reset_after, Duration::from_secs(86_399));
    // A denial reports the limit to wait for.
    pair.parts().1.charge(&mut state.1, at(1_000_000_000), 399);
    let denied = pair.decide(&mut state, at(1_000_000_000), 1);
    assert!(denied.is_denied());
    assert_eq!((denied.policy, denied.limit), (1, 1_000));
    assert_eq!(denied.retry_after, Some(Duration::from_secs(86_399)));
    assert_eq!(denied.reset_after, Duration::from_secs(86_399));
}

/// Shows promise 16.
#[test]
fn policies_of_nested_lists_are_numbered_consecutively() {
    let hour = |limit| TokenBucket::new(Quota::per_hour(limit));
    let inner = |limits: [u64; 2]| All::new(limits.map(hour));
    let nested = All::new([inner([50, 40]), inner([30, 20])]);
    let expected: Vec<_> = [50, 40, 30, 20].map(Quota::per_hour).into();
    assert_eq!(nested.quotas(), expected);
    assert_eq!(AnyAlgorithm::new(nested.clone()).quotas(), expected);
    let mut state = nested.fresh(at(0));
    for (policy, limit) in [50, 40, 30, 20].into_iter().enumerate() {
        let (outer, part) = (policy / 2, policy % 2);
        let mut state = state.clone();
        let list = &nested.parts()[outer];
        list.parts()[part].charge(&mut state[outer][part], at(0), limit);
        let decision = nested.decide(&mut state, at(0), 1);
        assert!(decision.is_denied());
        assert_eq!((decision.policy, decision.limit), (policy, limit));
    }
    let decision = nested.decide(&mut state, at(0), 1);
    assert_eq!((decision.policy, decision.limit), (3, 20));
    let mixed = ((hour(50), hour(40)), (hour(30), hour(20))).into_algorithm();
    let mut state = mixed.fresh(at(0));
    assert_eq!(mixed.decide(&mut state, at(0), 1).policy, 3);
}
