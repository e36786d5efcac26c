//! Keys are found wherever they are, and the fast path of a layer decides as the slow one does.

use std::{
    hash::BuildHasher,
    sync::atomic::{AtomicU64, Ordering},
};

use super::*;
use crate::algorithm::{
    FixedWindow, IntoAlgorithm, LeakyBucket, SlidingLog, SlidingWindow, TokenBucket,
};
use crate::clock::Clock;
use crate::decision::Decision;
use crate::quota::Quota;
use crate::store::local::{Local, Seeded, inner::LocalInner};

fn table<A: Algorithm>(algorithm: &A, keys: usize) -> Table<A> {
    Table::new(&Arc::new(algorithm.clone()), keys)
}

fn decide<A: Algorithm>(table: &Table<A>, (hash, now, cost): (u64, Tick, u64)) -> Decision {
    let rules = Rules::new(Overflow::default(), false);
    let mut decided = None;
    let mut step = |algorithm: &A, state: &mut A::State| {
        let decision = algorithm.decide(state, now, cost);
        decided = Some(decision);
        (cost > 0).then(|| decision.is_denied())
    };
    let run = table.run(&rules, (hash, now, cost > 0), &mut step);
    run.expect("a table that is not full");
    decided.expect("the step ran")
}

/// A clock that may be set back, as that of another thread may be behind.
#[derive(Clone, Debug, Default)]
struct SetClock(Arc<AtomicU64>);

impl Clock for SetClock {
    fn now(&self) -> Tick {
        Tick::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

/// Decides on requests of one key at the same moments, in its home line first and only anywhere.
fn compare<A: Algorithm>(algorithm: &A) {
    let clock = SetClock::default();
    let [quick, plain] = [true, false].map(|is_quick| {
        let size = (1_000, Overflow::default());
        let mut inner = LocalInner::new((algorithm.clone(), size, clock.clone()));
        inner.rules.is_quick = is_quick;
        Local::from(inner)
    });
    let hash = quick.shared.in_use().hasher.hash_one(7);
    let table = &quick.shared.in_use().table;
    let is_marked = || {
        let (shard, home) = table.shard(hash);
        let slot = shard.line(home).find(tag(hash, 0));
        slot.is_some_and(|slot| shard.line(home).is_denied(slot))
    };
    let (mut was_denied, mut shown) = (false, 0);
    for at in 0..1_000_u64 {
        for local in [&quick, &plain] {
            match at % 40 {
                9 => local.refund(&7, 1),
                19 => drop(local.charge(&7, 1)),
                26 => local.reset(&7),
                39 => {
                    let quota = Quota::per_second(8 + at / 40 % 3);
                    let changed = algorithm.with_quota(quota);
                    let changed = changed.unwrap_or_else(|_| algorithm.clone());
                    local.set_algorithm(changed).expect("it is valid");
                }
                _ => {}
            }
        }
        was_denied &= at % 40 != 26;
        // As if another thread had waited.
        table.shard(hash).0.is_busy = true;
        shown += u64::from(table.last_denial(hash).of(hash, clock.now()).is_some());
        let cost = [0, 1, 1, 2, 1, 3][usize::try_from(at % 6).expect("small")];
        let expected = plain.check(&7, cost);
        assert_eq!(quick.check(&7, cost), expected, "request {at}");
        // A cost of zero only looks.
        if cost > 0 {
            was_denied = expected.is_denied();
        }
        assert_eq!(is_marked(), was_denied, "request {at}");
        // Sometimes it is set back.
        let turn = 1_000 + at - at % 13 / 12 * 20;
        clock.0.store(turn * 30_000_000, Ordering::Relaxed);
    }
    let is_one = algorithm.capabilities().limits == 1;
    assert_eq!(shown > 100, is_one, "{shown} of 1,000 requests");
}

#[test]
fn a_key_in_its_home_line_is_decided_as_one_anywhere() {
    let quota = Quota::per_second(10);
    compare(&FixedWindow::new(quota));
    compare(&TokenBucket::new(quota));
    compare(&LeakyBucket::new(quota.burst(1)));
    compare(&SlidingWindow::new(quota));
    let minute = FixedWindow::new(Quota::per_minute(100));
    compare(&(minute, FixedWindow::new(quota)).into_algorithm());
    compare(&SlidingLog::new(quota));
}

/// Otherwise two shards would have the keys of one, and lines at the end of a shard more than others.
#[test]
fn the_keys_spread_over_all_lines() {
    let table = table(&TokenBucket::new(Quota::per_hour(4)), 20_000);
    assert_eq!((table.bits, table.shards.len()), (4, 16));
    let hasher = Seeded::default();
    let mut keys = [[0; 10]; 16];
    for hash in (0..160_000_u64).map(|key| hasher.hash_one(key)) {
        let (shard, home) = table.shard(hash);
        let lines = shard.lines;
        drop(shard);
        let at = hash.rotate_left(4) & 15;
        keys[usize::try_from(at).expect("small")][home * 10 / lines] += 1;
    }
    for count in keys.as_flattened() {
        // Six standard deviations.
        assert!((810..1_190).contains(count), "{keys:?}");
    }
}

#[test]
fn the_lines_of_a_key_differ_and_a_small_table_uses_all_of_its_own() {
    for keys in [1, 5, 20, 60, 100, 900, 1_138, 2_270, 100_000] {
        let table = table(&TokenBucket::new(Quota::per_hour(4)), keys);
        let shard = lock(&table.shards[0].0.0);
        for home in 0..shard.lines {
            let mut lines: Vec<_> = shard.places(home).map(|place| place.line).collect();
            assert_eq!(lines[0], home);
            lines.sort_unstable();
            lines.dedup();
            assert_eq!(lines.len(), shard.lines.min(WINDOW), "{keys} keys");
        }
    }
}

#[test]
fn the_reach_of_a_home_shrinks_when_its_farthest_key_leaves() {
    let table = table(&TokenBucket::new(Quota::per_hour(4)), 100_000);
    // The same home and shard, and other fingerprints.
    let at = |hash| (hash, Tick::ZERO, 1);
    for hash in 1..=7 {
        assert!(decide(&table, at(hash)).is_admitted());
    }
    let reach = || {
        let (shard, home) = table.shard(1);
        shard.line(home).reach
    };
    assert_eq!(reach(), 2, "three in each line");
    for hash in [2, 5, 7] {
        table.remove(hash);
    }
    assert!(decide(&table, at(8)).is_admitted());
    assert_eq!(reach(), 1);
    for hash in [1, 3, 4, 6, 8] {
        assert_eq!(decide(&table, at(hash)).remaining(), 2, "{hash}");
    }
}
