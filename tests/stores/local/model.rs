//! The table makes the same decisions as an unbounded map.

use std::collections::HashMap;
use std::time::Duration;

use tower_throttle::algorithm::{Algorithm, AnyAlgorithm, Cost, GiveBack, IntoAlgorithm, reserve};
use tower_throttle::{
    Decision, FixedWindow, LeakyBucket, Local, Lockout, ManualClock, Quota, SlidingGrid,
    SlidingLog, SlidingWindow, TokenBucket, WarmUp,
    clock::{Clock, Tick},
    store::local::Overflow,
    store::{Backend, Op},
};

use crate::random::Random;
use test_support::from_env;

const SECOND: u64 = 1_000_000_000;

/// The result of a run of random operations.
#[derive(Debug, Default)]
struct Found {
    /// The number of decisions that differ from the map's.
    different: usize,
    /// The number of evictions and denials because the table was full.
    evicted: u64,
    keys: usize,
}

/// Applies random operations, of which some change the quota, to a table and to a map that keeps every key.
fn compare<A: Algorithm>(mut algorithm: A, capacity: usize, keys: u64, seed: u64) -> Found {
    let mut random = Random::new(seed);
    let clock = ManualClock::new();
    clock.set(Tick::from_nanos(600_000 * SECOND + random.below(SECOND)));
    let local = Local::new(algorithm.clone())
        .with_clock(clock.clone())
        .capacity(capacity);
    let mut states: HashMap<u64, A::State> = HashMap::new();
    let mut found = Found::default();
    let quotas = [
        Quota::per_second(20),
        Quota::per(3, Duration::from_secs(2)),
        Quota::per_minute(9),
    ];
    for _ in 0..400 {
        let gap = match random.below(8) {
            0 => random.below(3 * SECOND),
            1 => 0,
            _ => random.below(SECOND / 4),
        };
        clock.advance(Duration::from_nanos(gap));
        let now = clock.now();
        let quota = *random.pick(&quotas);
        if let (0, Ok(next)) = (random.below(30), algorithm.with_quota(quota)) {
            local.set_algorithm(next.clone()).expect("another quota");
            // A key whose state has expired is like an unused one.
            states.retain(|_, state| algorithm.forgettable_at(state) > now);
            let used = states.values_mut();
            used.for_each(|state| next.rescale(state, &algorithm, now));
            algorithm = next;
        }
        let key = random.below(keys);
        let cost = random.below(5);
        let state = states.entry(key).or_insert_with(|| algorithm.fresh(now));
        let same = match random.below(12) {
            0 => {
                local.refund(&key, cost);
                let (units, at) = (cost, now);
                algorithm.refund(state, now, Cost { units, at }, GiveBack::Refund);
                true
            }
            1 => local.charge(&key, cost) == algorithm.charge(state, now, cost),
            2 => local.peek(&key, cost) == algorithm.peek(state, now, cost),
            4 => {
                let wait = Duration::from_nanos(random.below(SECOND));
                let reserved = local.reserve(&key, cost, wait);
                reserved == reserve(&algorithm, state, now, cost, wait)
            }
            5 if random.below(4) == 0 => {
                local.reset(&key);
                *state = algorithm.fresh(now);
                true
            }
            _ => local.check(&key, cost) == algorithm.decide(state, now, cost),
        };
        found.different += usize::from(!same);
    }
    let stats = local.stats();
    found.evicted = stats.evicted + stats.denied;
    found.keys = states.len();
    found
}

/// Runs `check` for all algorithms: with states of one to four words, and some that do not pack.
fn for_each_algorithm(check: impl Fn(&str, &dyn Fn(usize, u64, u64) -> Found)) {
    macro_rules! with {
        ($($name:literal: $algorithm:expr),* $(,)?) => {$(
            let algorithm = $algorithm.into_algorithm();
            check($name, &|capacity, keys, seed| {
                compare(algorithm.clone(), capacity, keys, seed)
            });
        )*};
    }
    let quota = Quota::per_second(7).burst(5);
    let limit = Quota::per_second(7);
    let odd = Quota::per(9_999_991, Duration::from_secs(1_400_000)).burst(6);
    with! {
        "token bucket": TokenBucket::new(quota),
        "token bucket of two words": TokenBucket::new(odd),
        "meter": LeakyBucket::new(quota),
        "fixed window": FixedWindow::new(limit),
        "anchored window": FixedWindow::new(limit).anchored(),
        "sliding window": SlidingWindow::new(limit),
        "grid of four": SlidingGrid::new(limit).cells(4),
        "grid of ten": SlidingGrid::new(Quota::per_second(200)),
        "strict grid of sixty": SlidingGrid::new(limit).cells(60).strict(),
        "log": SlidingLog::new(limit),
        "lockout": Lockout::new(limit).block(Duration::from_millis(300)).forget(Duration::from_secs(9)),
        "warm-up": WarmUp::new(limit, Duration::from_secs(2)),
        "pair": (TokenBucket::new(quota), FixedWindow::new(Quota::per_minute(40))),
        "any": AnyAlgorithm::new(TokenBucket::new(quota)),
    }
}

/// Shows promises 40, 47.
#[test]
fn a_table_below_capacity_decides_as_an_unbounded_map() {
    for_each_algorithm(|name, run| {
        for seed in 0..from_env("TRACES", 60) {
            let found = run(64, 60, seed);
            assert_eq!(found.evicted, 0, "{name}, seed {seed}: {found:?}");
            assert_eq!(found.different, 0, "{name}, seed {seed}: {found:?}");
        }
    });
}

#[test]
fn a_table_that_is_too_small_differs_only_if_it_counts_an_overflow() {
    for_each_algorithm(|name, run| {
        let mut overflowed = 0;
        let mut reused = 0;
        for seed in 0..from_env("TRACES", 60) {
            let found = run(1, 30, seed);
            assert!(
                found.different == 0 || found.evicted > 0,
                "{name}, seed {seed}: {found:?}"
            );
            overflowed += u64::from(found.evicted > 0);
            reused += usize::from(found.keys > 8);
        }
        assert!(
            overflowed > 0 && reused > 0,
            "{name}: the table was never full"
        );
    });
}

/// Shows promise 46.
#[test]
fn a_full_table_that_denies_returns_retry_after_and_counts() {
    let clock = ManualClock::new();
    let local = Local::new(TokenBucket::new(Quota::per_second(1)))
        .with_clock(clock.clone())
        .overflow(Overflow::Deny)
        .capacity(1);
    let denied = (0..100).find_map(|key| Some(local.check(&key, 1)).filter(Decision::is_denied));
    let denied = denied.expect("a hundred keys in a table of one");
    assert_eq!(denied.retry_after, Some(Duration::from_secs(1)));
    assert_eq!(local.stats().denied, 1);
    clock.advance(Duration::from_secs(1));
    assert!(local.check(&"another key", 1).is_admitted());
}

/// Shows promise 46.
#[test]
fn a_charge_that_finds_no_slot_is_lost_and_counted() {
    let local = Local::new(TokenBucket::new(Quota::per_second(1)))
        .with_clock(ManualClock::new())
        .overflow(Overflow::Deny)
        .capacity(1);
    let full = (0..100).find(|key| local.check(key, 1).is_denied());
    let full = full.expect("a hundred keys in a table of one");
    assert_eq!(local.charge(&full, 0), Duration::ZERO);
    assert_eq!(local.stats().lost_charges, 0, "nothing to lose");
    assert_eq!(local.charge(&full, 5), Duration::ZERO);
    assert_eq!(local.stats().lost_charges, 1);
    let charged = Backend::<i32>::apply(&local, &full, Op::Charge(5)).into_inner();
    assert!(charged.is_ok_and(|unused| unused.remaining() == 1));
    assert_eq!(local.stats().lost_charges, 2);
    // The first key has a slot.
    assert_eq!(local.charge(&0, 5), Duration::from_secs(5));
    let stats = local.stats();
    assert_eq!((stats.lost_charges, stats.denied), (2, 1));
}

/// Shows promise 40.
#[test]
fn owned_and_borrowed_keys_are_equal() {
    let local = Local::new(TokenBucket::new(Quota::per_hour(1)));
    assert!(local.check("alice", 1).is_admitted());
    assert!(local.check(&String::from("alice"), 1).is_denied());
    assert!(local.check(&("alice", 7_u8), 1).is_admitted());
    assert!(local.check(&std::net::Ipv4Addr::LOCALHOST, 1).is_admitted());
}

/// Shows promise 29.
#[test]
fn concurrent_changes_admit_no_more_than_the_larger_quota() {
    let local = Local::new(FixedWindow::new(Quota::per_day(50)))
        .with_clock(ManualClock::new())
        .capacity(100);
    let admitted: usize = std::thread::scope(|scope| {
        let deciders: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    (0..4_000)
                        .filter(|n| local.check(&(n % 8), 1).is_admitted())
                        .count()
                })
            })
            .collect();
        for round in 0..400 {
            let quota = Quota::per_day(if round % 2 == 0 { 30 } else { 50 });
            local.set_quota(quota).expect("every quota is accepted");
        }
        deciders
            .into_iter()
            .map(|decider| decider.join().expect("no panic"))
            .sum()
    });
    assert!(admitted <= 8 * 50, "{admitted}");
    assert!(admitted >= 8 * 30, "{admitted}");
}
