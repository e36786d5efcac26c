//! A flood of keys helps nobody past a limit.

use std::time::Duration;

use tower_throttle::{Local, ManualClock, Quota, TokenBucket, store::local::Overflow};

use crate::random::from_env;

/// Floods a table while a victim over its limit keeps trying; answers how often it got through
/// within its window, and how many keys were forgotten.
fn flood(capacity: usize, keys: u64, overflow: Overflow) -> (u64, u64) {
    let clock = ManualClock::new();
    let local = Local::new(TokenBucket::new(Quota::per_hour(10)))
        .with_clock(clock.clone())
        .overflow(overflow)
        .capacity(capacity);
    let bytes = local.stats().table_bytes;
    assert!(local.check_n("victim", 10).is_admitted());
    let mut passed = 0;
    // The flood takes five of the six minutes until the next token.
    let step = Duration::from_nanos(300_000_000_000 / keys);
    for key in 0..keys {
        clock.advance(step);
        let _ = local.check(&key);
        if key % 16 == 0 {
            passed += u64::from(local.check("victim").is_admitted());
        }
    }
    let stats = local.stats();
    assert_eq!(stats.table_bytes, bytes);
    assert_eq!(stats.outside, 0);
    (passed, stats.evicted + stats.denied + stats.shared)
}

#[test]
fn a_victim_over_its_limit_stays_denied_through_a_flood() {
    let keys = from_env("FLOOD_KEYS", 2_000_000);
    let capacity = usize::try_from(keys / 1_000).expect("a table that fits");
    for overflow in [Overflow::EvictLeast, Overflow::Deny, Overflow::Shared] {
        let (passed, overflowed) = flood(capacity, keys, overflow);
        assert_eq!(passed, 0, "{overflow:?}");
        assert!(overflowed > keys / 2, "{overflow:?}: that was no flood");
    }
}
