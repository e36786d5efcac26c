//! A flood of keys does not get around the limits.

use std::time::Duration;

use tower_throttle::{
    FixedWindow, LeakyBucket, Local, Lockout, ManualClock, Quota, SlidingLog, SlidingWindow,
    TokenBucket, algorithm::Algorithm, store::local::Overflow,
};

use crate::local::users::PanicsAtCost13;
use test_support::from_env;

/// Floods a table while a key that is over its limit keeps sending requests. Returns how many of
/// them were admitted, and how often the table was full.
fn flood(capacity: usize, keys: u64, overflow: Overflow) -> (u64, u64) {
    let clock = ManualClock::new();
    let local = Local::new(TokenBucket::new(Quota::per_hour(10)))
        .with_clock(clock.clone())
        .overflow(overflow)
        .capacity(capacity);
    let bytes = local.stats().table_bytes;
    assert!(local.check("over limit", 10).is_admitted());
    let mut admitted = 0;
    // The flood takes five of the six minutes until the next token.
    let step = Duration::from_nanos(300_000_000_000 / keys);
    for key in 0..keys {
        clock.advance(step);
        let _ = local.check(&key, 1);
        if key % 16 == 0 {
            admitted += u64::from(local.check("over limit", 1).is_admitted());
        }
    }
    let stats = local.stats();
    assert_eq!(stats.table_bytes, bytes);
    (admitted, stats.evicted + stats.denied)
}

/// Shows promise 46.
#[test]
fn a_key_over_its_limit_stays_denied_during_a_flood() {
    let keys = from_env("FLOOD_KEYS", 200_000);
    let capacity = usize::try_from(keys / 1_000).expect("a table that fits");
    for overflow in [Overflow::EvictLeast, Overflow::Deny] {
        let (admitted, overflowed) = flood(capacity, keys, overflow);
        assert_eq!(admitted, 0, "{overflow:?}");
        assert!(
            overflowed > keys / 2,
            "{overflow:?}: the table was rarely full"
        );
    }
}

/// Shows promise 190.
#[test]
fn a_flood_of_keys_does_not_evict_a_block() {
    let lockout = Lockout::new(Quota::per(5, Duration::from_secs(900)));
    for (overflow, keys) in [
        (Overflow::EvictLeast, 100_000_u32),
        (Overflow::Deny, 10_000),
    ] {
        let local = Local::new(lockout)
            .capacity(1_000)
            .overflow(overflow)
            .with_clock(ManualClock::new());
        assert!(local.check("attacker", 5).is_admitted());
        for key in 0..keys {
            let _ = local.check(&key, 1);
            if key % 500 == 0 {
                assert!(local.peek("attacker", 1).is_denied(), "{overflow:?}, {key}");
            }
        }
        assert!(local.check("attacker", 1).is_denied(), "{overflow:?}");
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
            *admitted += u64::from(local.check(&key, 1).is_admitted());
        }
    }
    admitted
}

/// Shows promises 29, 46.
#[test]
fn keys_that_evict_each_other_take_over_usage() {
    fn check<A: Algorithm>(algorithm: &A, limit: u64, rounds: usize) {
        for overflow in [Overflow::EvictLeast, Overflow::Deny] {
            for keys in [2, 9, 50, 1_000] {
                let clock = ManualClock::new();
                let local = Local::new(algorithm.clone())
                    .with_clock(clock.clone())
                    .overflow(overflow)
                    .capacity(1);
                let slots = u64::try_from(local.stats().slots).expect("a small table");
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
    check(&TokenBucket::new(quota), 5, 100);
    check(&LeakyBucket::new(quota), 5, 100);
    check(&FixedWindow::new(quota), 5, 100);
    check(&SlidingWindow::new(quota), 5, 100);
    check(&SlidingLog::new(quota), 5, 100);
    check(&TokenBucket::new(Quota::per_hour(1)), 1, 100);
}

/// Takes nine units of as many keys as there are slots, but one.
fn fill<A: Algorithm>(local: &Local<A, ManualClock>) {
    for key in 1..local.stats().slots {
        assert!(local.check(&key, 9).is_admitted());
    }
}

/// Keys in all slots of a small table; the first is denied a cost of 5 with 3 left. Returns what a
/// new key leaves to the first, and to the others on average.
fn left_after_a_new_key<A: Algorithm>(
    algorithm: A,
    deny: impl Fn(&Local<A, ManualClock>),
) -> [u64; 2] {
    let local = Local::new(algorithm)
        .with_clock(ManualClock::new())
        .capacity(1);
    assert!(local.check("denied", 7).is_admitted());
    fill(&local);
    deny(&local);
    assert!(local.check("new", 1).is_admitted());
    assert_eq!(local.stats().evicted, 1);
    let others = (1..local.stats().slots).map(|key| local.peek(&key, 1).remaining());
    [
        local.peek("denied", 1).remaining(),
        others.sum::<u64>() / (local.stats().slots as u64 - 1),
    ]
}

/// Shows promise 46.
#[test]
fn a_key_that_is_denied_a_large_cost_is_not_evicted_before_others() {
    fn check<A: Algorithm>(algorithm: &A) {
        let left = left_after_a_new_key(algorithm.clone(), |local| {
            assert!(local.check("denied", 5).is_denied());
        });
        assert_eq!(left[0], 3, "{algorithm:?}: {left:?}");
        // Also on the slow path, and if it was denied before.
        let left = left_after_a_new_key(algorithm.clone(), |local| {
            for _ in 0..3 {
                assert!(local.reserve("denied", 5, Duration::ZERO).is_denied());
            }
            let _ = local.peek("denied", 1);
        });
        assert_eq!(left[0], 3, "{algorithm:?}: {left:?}");
        // An admission ends the protection, and a look at the key gives none.
        let left = left_after_a_new_key(algorithm.clone(), |local| {
            assert!(local.check("denied", 5).is_denied());
            assert!(local.check("denied", 1).is_admitted());
            assert!(local.peek("denied", 5).is_denied());
        });
        assert_eq!(left, [10, 1], "{algorithm:?}");
    }
    let quota = Quota::per_hour(10);
    check(&TokenBucket::new(quota));
    check(&FixedWindow::new(quota));
    check(&SlidingWindow::new(quota));
    check(&SlidingLog::new(quota));
    check(&PanicsAtCost13 {
        window: FixedWindow::new(quota),
    });
}

/// Shows promise 46.
#[test]
fn a_key_without_units_is_not_evicted_before_others_although_it_was_not_denied() {
    let clock = ManualClock::new();
    let window = FixedWindow::new(Quota::per_hour(10)).anchored();
    let local = Local::new(window).with_clock(clock.clone()).capacity(1);
    assert!(local.check("first", 10).is_admitted());
    clock.advance(Duration::from_secs(60));
    fill(&local);
    assert!(local.check("new", 1).is_admitted());
    assert_eq!(local.peek("first", 0).remaining(), 0);
}

/// Shows promise 46.
#[test]
fn a_key_that_could_take_nothing_is_not_evicted_before_others() {
    let clock = ManualClock::new();
    let log = SlidingLog::new(Quota::per_hour(10));
    let local = Local::new(log).with_clock(clock.clone()).capacity(1);
    let half_an_hour = Duration::from_secs(1_800);
    assert!(local.check("first", 1).is_admitted());
    clock.advance(half_an_hour);
    assert!(local.check("first", 9).is_admitted());
    assert!(local.check("first", 1).is_denied());
    clock.advance(half_an_hour);
    // Its state is the first to expire, and one unit is available.
    fill(&local);
    assert!(local.check("new", 1).is_admitted());
    assert_eq!(local.peek("first", 0).remaining(), 1);
}

/// A table whose slots are all taken, each by a key that has used so much.
fn full<A: Algorithm>(algorithm: A, used: u64) -> Local<A, ManualClock> {
    let local = Local::new(algorithm).with_clock(ManualClock::new());
    let local = local.capacity(1);
    assert!((0..local.stats().slots).all(|key| local.check(&key, used).is_admitted()));
    local
}

#[test]
fn a_new_key_replaces_a_denied_key_if_all_are_being_denied() {
    fn check<A: Algorithm>(algorithm: A) {
        let local = full(algorithm, 7);
        assert!((0..local.stats().slots).all(|key| local.check(&key, 5).is_denied()));
        assert_eq!(local.check(&"new", 1).remaining(), 2);
        let stats = local.stats();
        let counts = (stats.evicted, stats.evicted_denied, stats.denied);
        assert_eq!(counts, (1, 1, 0));
    }
    let quota = Quota::per_hour(10);
    check(TokenBucket::new(quota));
    check(SlidingLog::new(quota));
    check(PanicsAtCost13 {
        window: FixedWindow::new(quota),
    });
}

/// Shows promise 46.
#[test]
fn a_new_key_that_is_denied_a_large_cost_evicts_no_key() {
    fn check<A: Algorithm>(algorithm: A) {
        let local = full(algorithm, 7);
        assert!(local.check(&"new", 5).is_denied());
        assert_eq!((local.stats().evicted, local.stats().denied), (0, 1));
        assert!((0..local.stats().slots).all(|key| local.peek(&key, 1).remaining() == 3));
    }
    check(TokenBucket::new(Quota::per_hour(10)));
    check(SlidingLog::new(Quota::per_hour(10)));
}
