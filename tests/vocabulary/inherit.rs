//! What each `Inherit` keeps of a state when the quota changes.

use tower_throttle::algorithm::{Algorithm, Inherit};
use tower_throttle::{FixedWindow, LeakyBucket, Local, SlidingLog};

use super::*;

/// The remaining count after a cost of `used` and a change from `from` to `to`. It must be the same
/// for a `Limiter` and a `Local`.
fn remaining<A: Algorithm>(from: &A, used: u64, to: &A, inherit: Inherit) -> u64 {
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(1_000_000));
    let limiter = Limiter::new(from.clone()).with_clock(clock.clone());
    let local = Local::new(from.clone())
        .capacity(10)
        .with_clock(clock.clone());
    assert!(limiter.check_n(used).is_admitted());
    assert!(local.check_n("key", used).is_admitted());
    limiter.set_algorithm(to.clone(), inherit).expect("valid");
    local.set_algorithm(to.clone(), inherit).expect("valid");
    // The table converts a state when it is next used, as of the time of the change.
    let decision = limiter.check_n(0);
    assert_eq!(decision, local.check_n("key", 0), "{to:?}, {inherit:?}");
    decision.remaining()
}

fn bucket(limit: u64) -> TokenBucket {
    TokenBucket::new(Quota::per_hour(limit))
}

/// Shows promise 17.
#[test]
fn a_bucket_keeps_its_tokens_its_level_or_its_usage() {
    // 3 of 10 are left.
    let cases = [
        (20, Inherit::AsIs, 3),
        (20, Inherit::Proportional, 6),
        (20, Inherit::Additive, 13),
        (20, Inherit::Reset, 20),
        (5, Inherit::AsIs, 3),
        (2, Inherit::AsIs, 2),
        (5, Inherit::Proportional, 1),
        (5, Inherit::Additive, 0),
        (9, Inherit::Additive, 2),
        (1, Inherit::Proportional, 0),
        (5, Inherit::Reset, 5),
    ];
    for (limit, inherit, left) in cases {
        let found = remaining(&bucket(10), 7, &bucket(limit), inherit);
        assert_eq!(found, left, "10 to {limit}, {inherit:?}");
    }
}

/// Shows promise 17.
#[test]
fn proportional_keeps_a_bucket_full_or_empty() {
    for limit in [1, 3, 7, 10, 1_000] {
        let full = remaining(&bucket(10), 0, &bucket(limit), Inherit::Proportional);
        assert_eq!(full, limit);
        let empty = remaining(&bucket(10), 10, &bucket(limit), Inherit::Proportional);
        assert_eq!(empty, 0);
    }
}

/// Shows promise 17.
#[test]
fn inherit_never_gives_more_than_the_new_capacity() {
    for from in [1, 2, 7, 100] {
        for to in [1, 2, 7, 100] {
            // A table drops an unused state; then the key has the new capacity.
            for used in 1..=from {
                for inherit in [
                    Inherit::AsIs,
                    Inherit::Proportional,
                    Inherit::Additive,
                    Inherit::Reset,
                ] {
                    let left = remaining(&bucket(from), used, &bucket(to), inherit);
                    assert!(left <= to, "{used} of {from} to {to}, {inherit:?}: {left}");
                }
            }
        }
    }
}

/// Shows promise 17.
#[test]
fn windows_logs_and_meters_keep_their_usage() {
    for inherit in [Inherit::AsIs, Inherit::Proportional, Inherit::Additive] {
        let (old, new) = (Quota::per_hour(10), Quota::per_hour(20));
        let window = remaining(&FixedWindow::new(old), 7, &FixedWindow::new(new), inherit);
        assert_eq!(window, 13, "{inherit:?}");
        let log = remaining(&SlidingLog::new(old), 7, &SlidingLog::new(new), inherit);
        assert_eq!(log, 13, "{inherit:?}");
    }
    let (old, new) = (Quota::per_hour(10), Quota::per_hour(20));
    let meter = remaining(
        &LeakyBucket::new(old),
        7,
        &LeakyBucket::new(new),
        Inherit::AsIs,
    );
    assert_eq!(meter, 13);
}
