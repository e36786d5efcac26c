//! The memory of a table, measured with a counting allocator.

use std::time::Duration;

use crate::counting::{ALLOCATIONS, LIVE};

use tower_throttle::{
    FixedWindow, Local, ManualClock, Quota, SlidingLog, SlidingWindow, TokenBucket,
    algorithm::IntoAlgorithm,
};

/// Fills a table of `capacity` with a quarter more keys. Returns the most bytes per key that it ever took.
fn bytes_per_key<A: IntoAlgorithm>(algorithm: A, capacity: u32) -> i64 {
    let clock = ManualClock::new();
    let before = LIVE.get();
    let local = Local::new(algorithm)
        .with_clock(clock.clone())
        .capacity(usize::try_from(capacity).expect("small"));
    let mut most = LIVE.get() - before;
    for key in 0..capacity * 5 / 4 {
        let _ = local.check(&format!("a key of some length, {key}"), 1);
        if key % 1_000 == 0 {
            clock.advance(Duration::from_millis(1));
        }
        most = most.max(LIVE.get() - before);
    }
    most / i64::from(capacity)
}

/// Shows promise 42.
#[test]
fn no_table_takes_more_bytes_than_documented() {
    let quota = Quota::per_minute(100);
    let capacity = 100_000;
    assert!(bytes_per_key(TokenBucket::new(quota), capacity) <= 29);
    assert!((24..=29).contains(&bytes_per_key(FixedWindow::new(quota), capacity)));
    assert!(bytes_per_key(SlidingWindow::new(quota), capacity) <= 40);
    let pair = (TokenBucket::new(quota), FixedWindow::new(quota));
    assert!(bytes_per_key(pair, capacity) <= 51);
    let three = (pair, TokenBucket::new(quota));
    assert!(bytes_per_key(three, capacity) <= 73);
}

/// Shows promise 42.
#[test]
fn a_log_allocates_as_needed_and_frees_on_reset() {
    let clock = ManualClock::new();
    let local = Local::new(SlidingLog::new(Quota::per_second(1_000)))
        .with_clock(clock.clone())
        .capacity(100);
    let _ = local.peek("unused", 1);
    let before = LIVE.get();
    for round in 0..1_000 {
        clock.advance(Duration::from_millis(50));
        let _ = local.check(&(round % 100), 1);
        let _ = local.check(&round, 1);
    }
    assert!(LIVE.get() - before < 400 * 400, "{}", LIVE.get() - before);
    for key in 0..1_000 {
        local.reset(&key);
    }
    assert_eq!(LIVE.get(), before);
}

/// Shows promise 43.
#[test]
fn a_decision_allocates_nothing() {
    let local = Local::new(TokenBucket::new(Quota::per_second(10))).capacity(100);
    let _ = local.check("warm", 1);
    let key = String::from("alice");
    let before = ALLOCATIONS.get();
    for _ in 0..100 {
        let _ = local.check(&key, 1);
        let _ = local.check(key.as_str(), 1);
        let _ = local.check(&(7_u32, key.as_bytes()), 1);
        let _ = local.check(&std::net::IpAddr::from([10, 0, 0, 1]), 1);
    }
    assert_eq!(ALLOCATIONS.get(), before);
}

/// Shows promise 47.
#[test]
fn changes_of_the_quota_take_bounded_memory() {
    let local = Local::new(TokenBucket::new(Quota::per_second(10)))
        .with_clock(ManualClock::new())
        .capacity(100);
    let _ = local.check("idle", 1);
    let taken_by = |changes: u64| {
        let before = LIVE.get();
        for limit in 0..changes {
            let quota = Quota::per_second(1 + limit % 1_000);
            local.set_quota(quota).expect("every quota is accepted");
        }
        LIVE.get() - before
    };
    let first = taken_by(1_000);
    assert!(first < 4 * 1_024, "{first} bytes");
    let later = taken_by(20_000);
    assert!(later <= 0, "{later} bytes");
}
