//! The fast paths decide as the slow one does, and keys are found outside of their home set.

use super::*;
use crate::algorithm::{Algorithm, FixedWindow, LeakyBucket, SlidingGrid, SlidingLog, TokenBucket};
use crate::quota::Quota;
use crate::store::local::Seeded;
use std::{convert::identity, hash::BuildHasher};

const fn request(now: Tick, cost: u64) -> Request {
    Request {
        now,
        cost,
        admit_only: false,
    }
}

/// Decides on requests of one key at the same moments, with the fast path of a layer first and
/// without it.
fn compare<A: Words>(algorithm: &A) {
    let table = || Table::new(algorithm.clone(), 1_000, Overflow::Deny, Tick::ZERO);
    let (layer, plain) = (table(), table());
    let decide = |table: &Table<A>, now, cost| {
        let request = request(now, cost);
        table.decide(table.locate(7), request, identity, || {
            let step = |algorithm: &A, state: &mut A::State| algorithm.decide(state, now, cost);
            let decided = table.transition(7, now, cost > 0, step);
            decided.expect("a table that is not full")
        })
    };
    let is_marked_denied = |table: &Table<A>| {
        let id = table.sets.key_id(7);
        let (header, found) = table.sets.set(id.home).lookup(id.fingerprint);
        found.is_some_and(|(slot, _)| header.is_denied(slot))
    };
    let mut quickly = 0;
    for at in 0..1_000_u64 {
        let (now, cost) = (Tick::from_nanos(at * 30_000_000), at % 4);
        let expected = decide(&plain, now, cost);
        let admit_only = Request {
            admit_only: true,
            ..request(now, cost)
        };
        if layer.decide(layer.locate(7), admit_only, |_| true, || false) {
            quickly += 1;
            assert!(expected.is_admitted(), "request {at}");
        } else {
            assert_eq!(decide(&layer, now, cost), expected, "request {at}");
            let marked = is_marked_denied(&layer);
            assert_eq!(marked, expected.is_denied(), "request {at}");
        }
    }
    // A decision that changes nothing does not mark a key that is admitted.
    let later = Tick::from_nanos(1 << 50);
    assert!(decide(&layer, later, 1).is_admitted());
    assert!(decide(&layer, later, 0).is_admitted());
    assert!(!is_marked_denied(&layer));
    assert!(
        layer.stats(Tick::ZERO).outside > 0 || quickly > 100,
        "{quickly}"
    );
}

#[test]
fn the_fast_path_of_a_layer_admits_what_is_admitted_and_else_takes_nothing() {
    compare(&FixedWindow::new(Quota::per_second(10)));
    compare(&TokenBucket::new(Quota::per_second(10)));
    // Waits take the cost as well.
    compare(&LeakyBucket::new(Quota::per_second(10)).queue(5));
    compare(&(
        FixedWindow::new(Quota::per_minute(100)),
        FixedWindow::new(Quota::per_second(10)),
    ));
    compare(&SlidingLog::new(Quota::per_second(10)));
}

#[test]
fn the_fast_path_decides_for_states_of_every_width() {
    let mut widths = Vec::new();
    for cells in 1..=SlidingGrid::MAX_CELLS {
        let grid = SlidingGrid::new(Quota::per_hour(1_000)).cells(cells);
        let is_outside = grid.facts().words > 4;
        let table = Table::new(grid, 100, Overflow::Deny, Tick::ZERO);
        let step = |grid: &SlidingGrid, state: &mut _| grid.decide(state, Tick::ZERO, 1);
        let first = table.transition(7, Tick::ZERO, true, step);
        assert!(first.is_ok_and(|first| first.is_admitted()));
        let done = |second: Decision| Some(second.remaining());
        let left = table.decide(table.locate(7), request(Tick::ZERO, 1), done, || None);
        assert_eq!(left, (!is_outside).then_some(998), "{cells} cells");
        widths.push(table.sets.state_words);
    }
    widths.dedup();
    // Wider states are outside of their slots, which have one word, and take the slow path.
    assert_eq!(widths, [1, 2, 3, 4, 1]);
}

/// At its capacity a table has a tenth of its keys outside of their home sets.
#[test]
fn keys_outside_their_home_set_are_found() {
    const KEYS: u64 = 10_000;
    let bucket = TokenBucket::new(Quota::per_hour(4));
    let table = Table::new(bucket, 10_000, Overflow::Deny, Tick::ZERO);
    let hasher = Seeded::default();
    let now = Tick::ZERO;
    let mut outside = 0;
    for turn in 0..5 {
        for hash in (0..KEYS).map(|key| hasher.hash_one(key)) {
            let id = table.sets.key_id(hash);
            let (_, at_home) = table.sets.set(id.home).lookup(id.fingerprint);
            outside += u64::from(turn > 0 && at_home.is_none());
            let step = |bucket: &TokenBucket, state: &mut _| bucket.decide(state, now, 1);
            let rest = || table.transition(hash, now, true, step).expect("a slot");
            let decided = table.decide(table.locate(hash), request(now, 1), identity, rest);
            assert_eq!(decided.is_admitted(), turn < 4);
        }
    }
    assert!(outside > 4 * KEYS / 20, "{outside}");
}
