//! The bytes that a table takes, by an allocator that counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use crate::room::grid_of;

use tower_throttle::{
    FixedWindow, Local, ManualClock, Quota, SlidingLog, SlidingWindow, TokenBucket,
    algorithm::Algorithm,
};

struct Counting;

thread_local! {
    /// Of one thread, because tests run beside each other.
    static LIVE: AtomicI64 = const { AtomicI64::new(0) };
}

fn add(layout: Layout, sign: i64) {
    let bytes = i64::try_from(layout.size()).unwrap_or(i64::MAX);
    let _ = LIVE.try_with(|live| live.fetch_add(sign * bytes, Ordering::Relaxed));
}

fn live() -> i64 {
    LIVE.with(|live| live.load(Ordering::Relaxed))
}

#[expect(
    unsafe_code,
    reason = "counting what is allocated is what this test is for"
)]
// SAFETY: every call is handed to the system's allocator as it comes.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout, 1);
        // SAFETY: the caller's promise is ours.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        add(layout, -1);
        // SAFETY: the caller's promise is ours.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Fills a table of `capacity` over and over; answers the most bytes a key that it ever took.
fn bytes_a_key<A: Algorithm>(algorithm: A, capacity: u32) -> i64 {
    let clock = ManualClock::new();
    let before = live();
    let local = Local::new(algorithm)
        .with_clock(clock.clone())
        .capacity(usize::try_from(capacity).expect("small"));
    let mut most = live() - before;
    for key in 0..4 * capacity {
        let _ = local.check(&format!("a key of some length, {key}"));
        if key % 1_000 == 0 {
            clock.advance(Duration::from_millis(1));
        }
        most = most.max(live() - before);
    }
    most / i64::from(capacity)
}

#[test]
fn no_table_ever_takes_more_than_its_docs_say() {
    let quota = Quota::per_minute(100);
    let capacity = 100_000;
    assert!(bytes_a_key(TokenBucket::new(quota), capacity) < 24);
    assert!(bytes_a_key(FixedWindow::new(quota), capacity) < 24);
    assert!(bytes_a_key(SlidingWindow::new(quota), capacity) < 24);
    let odd = Quota::per(9_973, Duration::from_secs(1_009));
    assert!(bytes_a_key(TokenBucket::new(odd), capacity) < 38);
    for (words, most) in [(1, 24), (2, 38), (3, 46), (4, 47)] {
        let bytes = bytes_a_key(grid_of(words), capacity / 5);
        assert!(bytes <= most, "{words} words: {bytes} bytes");
    }
}

#[test]
fn the_count_sees_a_table_that_keeps_its_keys() {
    let mut kept = std::collections::HashMap::new();
    let before = live();
    for key in 0..10_000 {
        kept.insert(format!("a key of some length, {key}"), 0_u64);
    }
    assert!(live() - before > 48 * 10_000);
}

#[test]
fn a_log_takes_what_it_uses_and_gives_it_back() {
    let clock = ManualClock::new();
    let local = Local::new(SlidingLog::new(Quota::per_second(1_000)))
        .with_clock(clock.clone())
        .capacity(100);
    let before = live();
    for round in 0..1_000 {
        clock.advance(Duration::from_millis(50));
        let _ = local.check(&(round % 100));
        let _ = local.check(&round);
    }
    assert!(local.stats().outside <= 400);
    assert!(live() - before < 400 * 400, "{}", live() - before);
    // What it says of itself is what the allocator says, but for the maps' own rounding.
    let said = i64::try_from(local.stats().outside_bytes).expect("small");
    let taken = live() - before;
    assert!(
        (said - taken).abs() < taken / 8,
        "{said} bytes said, {taken} taken"
    );
    for key in 0..1_000 {
        local.reset(&key);
    }
    assert_eq!(local.stats().outside, 0);
}

/// Fills logs of `limit` a second for many more keys than there is room for, and charges `charges`
/// more afterwards to each; answers how many percent it took of the bytes that it may take.
fn share_of_its_bound(
    limit: u64,
    charges: u64,
    may: impl Fn(&Local<SlidingLog, ManualClock>) -> usize,
) -> i64 {
    let clock = ManualClock::new();
    let before = live();
    let local = Local::new(SlidingLog::new(Quota::per_second(limit)))
        .with_clock(clock.clone())
        .capacity(1_000);
    let mut most = 0;
    for key in 0..4_000 {
        for _ in 0..limit {
            clock.advance(Duration::from_nanos(100));
            let _ = local.check(&key);
        }
        for _ in 0..charges {
            clock.advance(Duration::from_nanos(100));
            local.charge(&key, 1);
        }
        most = most.max(live() - before);
    }
    assert!(local.stats().evicted > 0 || local.stats().outside > 1_000);
    100 * most / i64::try_from(may(&local)).expect("small")
}

#[test]
fn logs_of_a_flood_stay_within_the_stated_bound() {
    let stated = |local: &Local<SlidingLog, ManualClock>| local.stats().most_bytes;
    for limit in [1, 3, 10, 64] {
        let share = share_of_its_bound(limit, 0, stated);
        assert!((25..=100).contains(&share), "{limit} a second: {share} %");
    }
    // Nor does what is charged afterwards make them longer.
    let share = share_of_its_bound(10, 100, stated);
    assert!(share <= 100, "with charges: {share} %");
}

#[test]
fn a_bound_that_forgets_the_logs_is_found_out() {
    let table_alone = |local: &Local<SlidingLog, ManualClock>| local.stats().table_bytes;
    assert!(share_of_its_bound(10, 0, table_alone) > 100);
}

#[test]
fn a_decision_allocates_nothing() {
    let local = Local::new(TokenBucket::new(Quota::per_second(10))).capacity(100);
    let _ = local.check("warm");
    let before = live();
    let key = String::from("alice");
    let with_key = live();
    for _ in 0..100 {
        let _ = local.check(&key);
        let _ = local.check(key.as_str());
        let _ = local.check(&(7_u32, key.as_bytes()));
        let _ = local.check(&std::net::IpAddr::from([10, 0, 0, 1]));
    }
    assert_eq!(live(), with_key);
    drop(key);
    assert_eq!(live(), before);
}
