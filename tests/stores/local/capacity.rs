//! A table holds as many keys as its capacity, for every size of state.

use std::collections::hash_map::DefaultHasher;
use std::hash::BuildHasherDefault;
use std::panic::{AssertUnwindSafe, catch_unwind};

use std::time::Duration;

use tower_throttle::{
    FixedWindow, Local, ManualClock, Quota, SlidingGrid, SlidingLog, SlidingWindow, TokenBucket,
    algorithm::Algorithm, store::Backend,
};

/// A hasher without a random seed.
type FixedHasher = BuildHasherDefault<DefaultHasher>;

const LIMIT: u64 = 1_000;

/// Calls `check!` with algorithms whose states are stored in each of the ways: three in a line of one or two
/// cache lines, two in a line, and outside of the slots.
macro_rules! for_each_layout {
    ($check:ident) => {
        let quota = Quota::per_hour(LIMIT);
        $check(&TokenBucket::new(quota));
        $check(&SlidingWindow::new(quota));
        $check(&(TokenBucket::new(quota), FixedWindow::new(quota)));
        $check(&SlidingGrid::new(quota));
        $check(&SlidingLog::new(quota));
    };
}

/// Fills a table of `capacity` with `keys` live keys. Returns how many of them it has lost.
fn lost_keys<A: Algorithm>(algorithm: &A, capacity: usize, keys: usize) -> usize {
    let local = Local::new(algorithm.clone())
        .with_clock(ManualClock::new())
        .with_hasher(FixedHasher::default())
        .capacity(capacity);
    for key in 0..keys {
        let _ = local.check_n(&key, 10);
    }
    let lost = (0..keys)
        .filter(|key| local.peek(key).remaining() == LIMIT)
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
    for_each_layout!(check);
}

#[test]
fn the_sizes_of_a_table_are_known_before_its_first_use() {
    fn check<A: Algorithm>(algorithm: A, capacity: usize) {
        let local = Local::new(algorithm).capacity(capacity);
        let before = local.stats();
        local.allocate();
        assert_eq!(local.stats(), before);
        assert_eq!(before.capacity, capacity);
        assert!(before.slots > capacity && before.most_bytes >= before.table_bytes);
        assert!(before.table_bytes > 21 * before.slots);
    }
    for capacity in [1, 1_234, 50_000] {
        check(TokenBucket::new(Quota::per_second(10)), capacity);
        check(SlidingLog::new(Quota::per_second(10)), capacity);
    }
}

#[test]
#[cfg(target_pointer_width = "64")]
fn a_capacity_is_at_most_2_to_the_36_keys() {
    let local = || Local::new(TokenBucket::new(Quota::per_second(10)));
    let refusal = |limiter: Local<TokenBucket>, keys| {
        let refused = catch_unwind(AssertUnwindSafe(|| limiter.capacity(keys)));
        let panic = refused.map(drop).err()?;
        Some(panic.downcast_ref::<String>().expect("a text").clone())
    };
    assert_eq!(refusal(local(), 1 << 36), None);
    let text = "capacity: 68719476737 is not allowed; give a number of keys from 1 to 68719476736";
    assert_eq!(refusal(local(), (1 << 36) + 1).as_deref(), Some(text));
    let used = local();
    assert!(used.check("key").is_admitted());
    assert!(refusal(used, 1_000).is_some(), "it is in use");
}

#[test]
fn lost_keys_of_an_overfull_table_are_counted() {
    fn check<A: Algorithm>(algorithm: &A) {
        // Slightly more keys than slots.
        assert!(lost_keys(algorithm, 10_000, 14_600) > 100, "{algorithm:?}");
    }
    for_each_layout!(check);
}

/// `Stats::live` is exact up to a capacity of 26,000 keys; in a larger table it is an estimate within 2
/// % of the slots.
#[test]
fn the_occupancy_of_a_small_table_is_exact() {
    let clock = ManualClock::new();
    let local = Local::new(FixedWindow::new(Quota::per_minute(10)))
        .with_clock(clock.clone())
        .capacity(11_000);
    assert!((11_000..17_000).contains(&local.stats().slots));
    for key in 0..5_000 {
        let _ = local.check(&key);
    }
    assert_eq!(local.stats().live, 5_000);
    clock.advance(Duration::from_secs(60));
    let _ = local.check(&7);
    // All others have expired, although their slots still hold them.
    assert_eq!(local.stats().live, 1);
    local.reset(&7);
    assert_eq!(local.stats().live, 0);
    // States of an earlier algorithm count as well.
    let _ = local.check(&7);
    local
        .set_quota(Quota::per_minute(20))
        .expect("the same type");
    assert_eq!(local.stats().live, 1);
}

#[test]
fn states_outside_of_the_table_count_as_live() {
    let clock = ManualClock::new();
    let local = Local::new(SlidingLog::new(Quota::per_minute(10)))
        .with_clock(clock.clone())
        .capacity(1_000);
    for key in 0..500 {
        let _ = local.check_n(&key, 5);
    }
    assert_eq!((local.stats().live, local.stats().outside), (500, 500));
    clock.advance(Duration::from_secs(61));
    assert_eq!((local.stats().live, local.stats().outside), (0, 500));
}

#[test]
fn the_occupancy_of_a_large_table_is_estimated() {
    fn check<A: Algorithm>(algorithm: &A) {
        for keys in [20_000, 100_000] {
            let local = Local::new(algorithm.clone())
                .with_clock(ManualClock::new())
                .capacity(100_000);
            for key in 0..keys {
                let _ = local.check_n(&key, 10);
            }
            let stats = local.stats();
            let off = stats.live.abs_diff(keys);
            assert!(
                off * 50 < stats.slots,
                "{algorithm:?}, {keys} keys: {stats:?}"
            );
        }
    }
    for_each_layout!(check);
}

/// The states are read by the algorithm that has made them, or that they were converted to.
#[test]
fn the_largest_use_is_read_after_a_change() {
    let clock = ManualClock::new();
    let bucket = TokenBucket::new(Quota::per_second(10));
    let local = Local::new(bucket).with_clock(clock.clone());
    let mut most_used = 0;
    for limit in [1_000_003, 7, 5, 11, 1 << 40] {
        local
            .set_quota(Quota::per_second(limit))
            .expect("every quota");
        // The keys that were used before the change have not been used since.
        let fullness = Backend::<u64>::fullness(&local).expect("a table knows");
        let used = |key: u64| {
            let peeked = local.peek_n(&key, 0);
            peeked.limit.saturating_sub(peeked.remaining()) * 100 / peeked.limit
        };
        let largest = (0..200).map(used).max();
        assert_eq!(Some(fullness.largest_use_percent), largest, "{limit}");
        most_used = most_used.max(fullness.largest_use_percent);
        for key in 0..200_u64 {
            let _ = local.check_n(&key, 1 + key % 5);
            clock.advance(Duration::from_nanos(1 + key));
        }
    }
    assert!(most_used > 0, "no key is in use after a change");
}
