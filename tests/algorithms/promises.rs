//! Refunds of what has left its window, or was refilled.

use tower_throttle::algorithm::{Algorithm, AnyAlgorithm, Cost, GiveBack};
use tower_throttle::clock::Tick;
use tower_throttle::{FixedWindow, Quota, SlidingLog, TokenBucket};

/// 10 are taken at 59 s and 10 at 60 s. The first have left the window when they are refunded.
///
/// Shows promise 12.
#[test]
fn a_refund_excludes_what_has_expired_or_been_refilled() {
    let second = 1_000_000_000;
    let quota = Quota::per_minute(10);
    let at = |seconds: u64| Tick::from_nanos(seconds * second);
    for (algorithm, first) in [
        (AnyAlgorithm::new(FixedWindow::new(quota)), 59),
        (AnyAlgorithm::new(FixedWindow::new(quota).anchored()), 0),
    ] {
        let mut state = algorithm.fresh(at(0));
        assert!(algorithm.decide(&mut state, at(first), 10).is_admitted());
        assert!(algorithm.decide(&mut state, at(60), 10).is_admitted());
        algorithm.refund(
            &mut state,
            at(61),
            Cost::new(10, at(first)),
            GiveBack::Refund,
        );
        assert_eq!(algorithm.peek(&state, at(61), 0).remaining(), 0);
        algorithm.refund(&mut state, at(61), Cost::new(10, at(60)), GiveBack::Refund);
        assert_eq!(algorithm.peek(&state, at(61), 0).remaining(), 10);
    }
    // A log counts both; the refund returns the first ten only.
    let log = SlidingLog::new(Quota::per_minute(20));
    let mut state = log.fresh(at(0));
    assert!(log.decide(&mut state, at(59), 10).is_admitted());
    assert!(log.decide(&mut state, at(60), 10).is_admitted());
    log.refund(&mut state, at(61), Cost::new(15, at(59)), GiveBack::Refund);
    assert_eq!(log.peek(&state, at(61), 0).remaining(), 10);
    assert_eq!(log.peek(&state, at(119), 0).remaining(), 10);
    assert_eq!(log.peek(&state, at(120), 0).remaining(), 20);
    // A bucket of 60 per minute has refilled 4 of 10 after 4 s.
    let bucket = TokenBucket::new(Quota::per_minute(60));
    let mut state = bucket.fresh(at(0));
    assert!(bucket.decide(&mut state, at(10), 10).is_admitted());
    bucket.charge(&mut state, at(14), 30);
    bucket.refund(&mut state, at(14), Cost::new(10, at(10)), GiveBack::Refund);
    assert_eq!(bucket.peek(&state, at(14), 0).remaining(), 30);
}
