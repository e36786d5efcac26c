//! A flood of keys does not get around the limits.

use std::time::Duration;

use tower_throttle::{
    FixedWindow, LeakyBucket, Local, ManualClock, Quota, SlidingLog, SlidingWindow, TokenBucket,
    algorithm::Algorithm, store::local::Overflow,
};

use crate::random::from_env;

/// Floods a table while a key that is over its limit keeps sending requests. Returns how many of
/// them were admitted, and how often the table was full.
fn flood(capacity: usize, keys: u64, overflow: Overflow) -> (u64, u64) {
    let clock = ManualClock::new();
    let local = Local::new(TokenBucket::new(Quota::per_hour(10)))
        .with_clock(clock.clone())
        .overflow(overflow)
        .capacity(capacity);
    let bytes = local.stats().table_bytes;
    assert!(local.check_n("over limit", 10).is_admitted());
    let mut admitted = 0;
    // The flood takes five of the six minutes until the next token.
    let step = Duration::from_nanos(300_000_000_000 / keys);
    for key in 0..keys {
        clock.advance(step);
        let _ = local.check(&key);
        if key % 16 == 0 {
            admitted += u64::from(local.check("over limit").is_admitted());
        }
    }
    let stats = local.stats();
    assert_eq!(stats.table_bytes, bytes);
    assert_eq!(stats.outside, 0);
    (admitted, stats.evicted + stats.denied + stats.shared)
}

#[test]
fn a_key_over_its_limit_stays_denied_during_a_flood() {
    let keys = from_env("FLOOD_KEYS", 2_000_000);
    let capacity = usize::try_from(keys / 1_000).expect("a table that fits");
    for overflow in [Overflow::EvictLeast, Overflow::Deny, Overflow::Shared] {
        let (admitted, overflowed) = flood(capacity, keys, overflow);
        assert_eq!(admitted, 0, "{overflow:?}");
        assert!(
            overflowed > keys / 2,
            "{overflow:?}: the table was rarely full"
        );
    }
}

/// Checks `keys` keys in turn, `rounds` times. Returns how often each key was admitted.
fn admitted_in_turn<A: Algorithm>(
    local: &Local<A, ManualClock>,
    keys: usize,
    rounds: usize,
) -> Vec<u64> {
    let mut admitted = vec![0; keys];
    for _ in 0..rounds {
        for (key, admitted) in admitted.iter_mut().enumerate() {
            *admitted += u64::from(local.check(&key).is_admitted());
        }
    }
    admitted
}

#[test]
fn keys_that_evict_each_other_take_over_usage() {
    fn check<A: Algorithm>(algorithm: &A, limit: u64, rounds: usize) {
        for overflow in [Overflow::EvictLeast, Overflow::Deny, Overflow::Shared] {
            for keys in [2, 9, 50, 1_000] {
                let clock = ManualClock::new();
                let local = Local::new(algorithm.clone())
                    .with_clock(clock.clone())
                    .overflow(overflow)
                    .capacity(1);
                // An upper bound: a slot takes at least eight bytes.
                let slots = u64::try_from(local.stats().table_bytes / 8).expect("a small table");
                for window in 0..3 {
                    let sum: u64 = admitted_in_turn(&local, keys, rounds).iter().sum();
                    assert!(
                        sum <= slots * limit,
                        "{algorithm:?}, {overflow:?}, {keys} keys: {sum} in window {window}"
                    );
                    let denied = admitted_in_turn(&local, keys, 1);
                    assert!(
                        denied.iter().all(|admitted| *admitted == 0),
                        "{algorithm:?}, {overflow:?}, {keys} keys: {denied:?}"
                    );
                    clock.advance(Duration::from_secs(7_200));
                }
            }
        }
    }
    let quota = Quota::per_hour(5);
    check(&TokenBucket::new(quota), 5, 200);
    check(&LeakyBucket::new(quota), 5, 200);
    check(&FixedWindow::new(quota), 5, 200);
    check(&SlidingWindow::new(quota), 5, 200);
    check(&SlidingLog::new(quota), 5, 200);
    check(&TokenBucket::new(Quota::per_hour(1)), 1, 200);
}
