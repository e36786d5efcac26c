//! The table under every interleaving of few threads.

use std::sync::Arc;
use std::time::Duration;

use loom::thread;

use super::overflow::Overflow;
use super::table::Table;
use crate::algorithm::{Algorithm, FixedWindow, Inherit, TokenBucket};
use crate::clock::Tick;
use crate::quota::Quota;

fn at(ns: u64) -> Tick {
    Tick::from_nanos(ns)
}

/// One set.
fn table<A: Algorithm>(algorithm: A) -> Arc<Table<A>> {
    Arc::new(Table::new(algorithm, 1, Overflow::EvictLeast, at(0)))
}

fn quota(limit: u64) -> Quota {
    Quota::per(limit, Duration::from_nanos(10))
}

fn admits<A: Algorithm>(table: &Table<A>, key: u64, now: u64) -> bool {
    table
        .transition(
            key,
            at(now),
            true,
            &|algorithm: &A, state: &mut A::State| {
                algorithm.decide(state, at(now), 1).is_admitted()
            },
        )
        .unwrap_or(false)
}

/// Asks for one key from two threads; answers how often each was admitted.
fn both<A: Algorithm>(table: &Arc<Table<A>>, asks: [&'static [(u64, u64)]; 2]) -> [usize; 2] {
    let count = |table: &Table<A>, asks: &[(u64, u64)]| {
        asks.iter()
            .filter(|(key, now)| admits(table, *key, *now))
            .count()
    };
    let other = Arc::clone(table);
    let handle = thread::spawn(move || count(&other, asks[0]));
    let here = count(table, asks[1]);
    [handle.join().expect("no thread panics"), here]
}

#[test]
fn loom_a_key_that_comes_in_twice_at_once_has_one_state() {
    loom::model(|| {
        let table = table(TokenBucket::new(quota(2)));
        let admitted = both(&table, [&[(7, 0), (7, 0)], &[(7, 0)]]);
        assert_eq!(admitted[0] + admitted[1], 2);
    });
}

#[test]
fn loom_two_keys_of_one_set_lose_nothing_of_each_other() {
    loom::model(|| {
        let table = table(TokenBucket::new(quota(1)));
        assert_eq!(both(&table, [&[(7, 0), (7, 0)], &[(8, 0)]]), [1, 1]);
        assert!(!admits(&table, 7, 0) && !admits(&table, 8, 0));
    });
}

#[test]
fn loom_a_slot_that_changes_hands_is_not_written_by_its_old_key() {
    loom::model(|| {
        let table = table(TokenBucket::new(quota(1)));
        for key in 1..=4 {
            assert!(admits(&table, key, 0));
        }
        // All four have expired: the new key takes the first slot while its key comes back.
        assert_eq!(both(&table, [&[(9, 20)], &[(1, 20)]]), [1, 1]);
        assert!(!admits(&table, 9, 20) && !admits(&table, 1, 20));
    });
}

#[test]
fn loom_a_state_of_two_words_is_never_half_of_one_and_half_of_another() {
    // Thirds of nanoseconds behind a part too wide for one word.
    let odd = Quota::per(1_021, Duration::from_nanos(10_007)).burst(2);
    loom::model(move || {
        let bucket = TokenBucket::new(odd);
        assert_eq!(bucket.words(), 2);
        let table = table(bucket);
        let mut states = vec![bucket.fresh(at(5))];
        for taken in 0..2 {
            let mut next = states[taken];
            assert!(bucket.decide(&mut next, at(5), 1).is_admitted());
            states.push(next);
        }
        assert!(admits(&table, 7, 5));
        let other = Arc::clone(&table);
        let writer = thread::spawn(move || admits(&other, 7, 5));
        let seen = table.transition(7, at(5), false, &|_: &TokenBucket, state: &mut _| *state);
        assert!(states[1..].contains(&seen.expect("it has a slot")));
        assert!(writer.join().expect("no thread panics"));
    });
}

#[test]
fn loom_a_change_of_quota_meets_a_decision_whole() {
    loom::model(|| {
        let table = table(FixedWindow::new(quota(2)));
        assert!(admits(&table, 7, 0));
        let other = Arc::clone(&table);
        let change = thread::spawn(move || {
            other.change(FixedWindow::new(quota(1)), at(1), Inherit::AsIs);
        });
        // One of two is used: the second goes through before the change, and not after it.
        let before = admits(&table, 7, 1);
        change.join().expect("no thread panics");
        assert!(!admits(&table, 7, 1));
        let _ = before;
    });
}

#[test]
fn loom_a_state_outside_moves_in_and_out_whole() {
    loom::model(|| {
        let table = table(FixedWindow::new(quota(2)));
        let debtor = Arc::clone(&table);
        // Five against a limit of two do not pack.
        let debt = thread::spawn(move || {
            let _ = debtor.transition(7, at(0), true, &|window: &FixedWindow, state: &mut _| {
                window.absorb(state, at(0), 5)
            });
        });
        let before = admits(&table, 7, 0);
        debt.join().expect("no thread panics");
        let left = table.transition(7, at(0), false, &|window: &FixedWindow, state: &mut _| {
            window.refund(state, at(0), 5);
            window.peek(state, at(0), 0).remaining()
        });
        assert_eq!(left, Ok(2 - u64::from(before)));
    });
}
