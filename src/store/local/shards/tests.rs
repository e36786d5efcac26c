//! Keys are found wherever they are, and the fast path of a layer decides as the slow one does.

use std::hash::BuildHasher;

use super::*;
use crate::algorithm::{
    FixedWindow, IntoAlgorithm, LeakyBucket, SlidingLog, SlidingWindow, TokenBucket,
};
use crate::quota::Quota;
use crate::store::local::{
    Seeded,
    line::{Boxed, Inline},
    overflow::Overflow,
};

type Three<A, S> = Shards<A, Inline<S>, 3>;

fn shards<A: Algorithm, H: Hold<A::State>, const N: usize>(
    algorithm: &A,
    keys: usize,
) -> (Shards<A, H, N>, Rules<A>) {
    let shards = Shards::new(&Arc::new(algorithm.clone()), keys);
    (shards, Rules::new(algorithm, Overflow::default()))
}

fn decide<A: Algorithm, H: Hold<A::State>, const N: usize>(
    (shards, rules): &(Shards<A, H, N>, Rules<A>),
    (hash, now, cost): (u64, Tick, u64),
) -> Decision {
    let mut decided = None;
    let mut step = |algorithm: &A, state: &mut A::State| {
        let decision = algorithm.decide(state, now, cost);
        decided = Some(decision);
        (cost > 0).then(|| decision.is_denied())
    };
    let run = shards.run(rules, (hash, now, cost > 0), &mut step);
    run.expect("a table that is not full");
    decided.expect("the step ran")
}

/// Decides on requests of one key at the same moments, in its home line first and only anywhere.
fn compare<A: Algorithm, H: Hold<A::State>, const N: usize>(algorithm: &A) {
    let layer = shards::<A, H, N>(algorithm, 1_000);
    let plain = shards::<A, H, N>(algorithm, 1_000);
    let is_marked = || {
        let (shard, home) = layer.0.shard(7);
        let slot = shard.lines[home].find(tag(7, 0));
        slot.is_some_and(|slot| shard.lines[home].is_denied(slot))
    };
    let mut was_denied = false;
    for at in 0..1_000_u64 {
        let request = (7, Tick::from_nanos(at * 30_000_000), at % 4);
        let expected = decide(&plain, request);
        let rest = || decide(&layer, request);
        let decided = layer.0.decide(request, |decision| decision, rest);
        assert_eq!(decided, expected, "request {at}");
        // A cost of zero only looks.
        if request.2 > 0 {
            was_denied = expected.is_denied();
        }
        assert_eq!(is_marked(), was_denied, "request {at}");
    }
}

#[test]
fn a_key_in_its_home_line_is_decided_as_one_anywhere() {
    let quota = Quota::per_second(10);
    compare::<_, Inline<_>, 3>(&FixedWindow::new(quota));
    compare::<_, Inline<_>, 3>(&TokenBucket::new(quota));
    compare::<_, Inline<_>, 3>(&LeakyBucket::new(quota.burst(1)));
    compare::<_, Inline<_>, 2>(&SlidingWindow::new(quota));
    let pair = (
        FixedWindow::new(Quota::per_minute(100)),
        FixedWindow::new(quota),
    );
    compare::<_, Inline<_>, 3>(&pair.into_algorithm());
    compare::<_, Boxed<_>, 3>(&SlidingLog::new(quota));
}

/// At its capacity a table has a part of its keys outside of their home lines.
#[test]
fn keys_outside_of_their_home_line_are_found() {
    const KEYS: u64 = 10_000;
    let table: (Three<_, _>, _) = shards(&TokenBucket::new(Quota::per_hour(4)), 10_000);
    let hasher = Seeded::default();
    let mut elsewhere = 0;
    for turn in 0..5 {
        for hash in (0..KEYS).map(|key| hasher.hash_one(key)) {
            let request = (hash, Tick::ZERO, 1);
            let rest = || {
                elsewhere += u64::from(turn > 0);
                decide(&table, request)
            };
            let decided = table.0.decide(request, |decision| decision, rest);
            assert_eq!(decided.is_admitted(), turn < 4);
        }
    }
    assert!(elsewhere > 4 * KEYS / 20, "{elsewhere}");
}

/// Otherwise two shards would have the keys of one, and lines at the end of a shard more than others.
#[test]
fn the_keys_spread_over_all_lines() {
    let (table, _): (Three<_, _>, _) = shards(&TokenBucket::new(Quota::per_hour(4)), 20_000);
    assert_eq!((table.bits, table.shards.len()), (4, 16));
    let hasher = Seeded::default();
    let mut keys = [[0; 10]; 16];
    for hash in (0..160_000_u64).map(|key| hasher.hash_one(key)) {
        let (shard, home) = table.shard(hash);
        let lines = shard.lines.len();
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
    for (keys, least) in [
        (1, 1),
        (20, 10),
        (60, 29),
        (100, 20),
        (900, 30),
        (100_000, 32),
    ] {
        let (table, _): (Three<_, _>, _) = shards(&TokenBucket::new(Quota::per_hour(4)), keys);
        let shard = lock(&table.shards[0].0);
        for home in 0..shard.lines.len() {
            let mut lines: Vec<_> = shard
                .distances()
                .map(|at| shard.line_at(home, at))
                .collect();
            assert_eq!(lines[0], home);
            lines.sort_unstable();
            lines.dedup();
            assert!(lines.len() >= least, "{keys} keys: {}", lines.len());
        }
    }
}

#[test]
fn the_reach_of_a_home_shrinks_when_its_farthest_key_leaves() {
    let table: (Three<_, _>, _) = shards(&TokenBucket::new(Quota::per_hour(4)), 100_000);
    // The same home and shard, and other fingerprints.
    let at = |hash| (hash, Tick::ZERO, 1);
    for hash in 1..=7 {
        assert!(decide(&table, at(hash)).is_admitted());
    }
    let reach = || {
        let (shard, home) = table.0.shard(1);
        shard.lines[home].reach
    };
    assert_eq!(reach(), 2, "three in each line");
    for hash in [2, 5, 7] {
        table.0.remove(hash);
    }
    assert!(decide(&table, at(8)).is_admitted());
    assert_eq!(reach(), 1);
    for hash in [1, 3, 4, 6, 8] {
        assert_eq!(decide(&table, at(hash)).remaining(), 2, "{hash}");
    }
}
