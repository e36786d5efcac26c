//! The numbers of limits that decide together.

use std::time::Duration;

use tower_throttle::algorithm::{Algorithm, AnyAlgorithm, IntoAlgorithm, reserve};
use tower_throttle::{All, Quota, TokenBucket};

use crate::at;

/// The limit that is unused later binds, and the other one has the longer wait.
#[test]
fn a_request_waits_for_the_longer_of_both_waits() {
    let [deep, fast] =
        [(1, 10), (2, 1)].map(|(limit, burst)| Quota::per_minute(limit).burst(burst));
    let both = (TokenBucket::new(deep), TokenBucket::new(fast)).into_algorithm();
    let mut state = both.fresh(at(0));
    both.charge(&mut state, at(0), 10);
    let decision = reserve(&both, &mut state, at(0), 1, Duration::MAX);
    let seconds = decision.wait().map(|wait| wait.as_secs());
    assert_eq!((seconds, decision.limit), (Some(300), 10));
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
