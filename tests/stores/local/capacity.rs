//! A table holds as many keys as its capacity, for every size of state.

use std::time::Duration;

use tower_throttle::{
    FixedWindow, Local, ManualClock, Quota, SlidingGrid, SlidingLog, SlidingWindow, TokenBucket,
    algorithm::{Algorithm, IntoAlgorithm},
};

const LIMIT: u64 = 1_000;

/// Calls `check!` with algorithms whose states have 16 to 48 bytes.
macro_rules! for_each_size {
    ($check:ident) => {
        let quota = Quota::per_hour(LIMIT);
        $check(&TokenBucket::new(quota));
        $check(&SlidingWindow::new(quota));
        $check(&(TokenBucket::new(quota), FixedWindow::new(quota)).into_algorithm());
        $check(&SlidingGrid::new(quota));
        $check(&SlidingLog::new(quota));
    };
}

/// Fills a table of `capacity` with `keys` live keys. Returns how many of them it has lost.
fn lost_keys<A: Algorithm>(algorithm: &A, capacity: usize, keys: usize) -> usize {
    let local = Local::new(algorithm.clone())
        .with_clock(ManualClock::new())
        .capacity(capacity);
    for key in 0..keys {
        let _ = local.check(&key, 10);
    }
    let lost = (0..keys)
        .filter(|key| local.peek(key, 1).remaining() == LIMIT)
        .count();
    assert_eq!(local.stats().evicted, lost as u64);
    lost
}

/// Shows promise 40.
#[test]
fn a_table_holds_its_capacity() {
    fn check<A: Algorithm>(algorithm: &A) {
        for capacity in [1, 2, 7, 60, 100, 1_000, 10_000, 100_000] {
            let lost = lost_keys(algorithm, capacity, capacity);
            assert_eq!(lost, 0, "{algorithm:?}, {capacity} keys");
        }
    }
    for_each_size!(check);
}

#[test]
fn lost_keys_of_an_overfull_table_are_counted() {
    fn check<A: Algorithm>(algorithm: &A) {
        // Slightly more keys than slots.
        assert!(lost_keys(algorithm, 10_000, 14_600) > 100, "{algorithm:?}");
    }
    for_each_size!(check);
}

#[test]
fn the_occupancy_is_exact() {
    let clock = ManualClock::new();
    let local = Local::new(FixedWindow::new(Quota::per_minute(10)))
        .with_clock(clock.clone())
        .capacity(11_000);
    assert!((11_000..17_000).contains(&local.stats().slots));
    for key in 0..5_000 {
        let _ = local.check(&key, 1);
    }
    assert_eq!(local.stats().live, 5_000);
    clock.advance(Duration::from_secs(60));
    let _ = local.check(&7, 1);
    // All others have expired, although their slots still hold them.
    assert_eq!(local.stats().live, 1);
    local.reset(&7);
    assert_eq!(local.stats().live, 0);
    // States of an earlier algorithm count as well.
    let _ = local.check(&7, 1);
    local
        .set_quota(Quota::per_minute(20))
        .expect("the same type");
    assert_eq!(local.stats().live, 1);
}
