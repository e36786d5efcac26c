//! Loom models of the table: every interleaving of two threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use loom::thread;

use super::overflow::Overflow;
use super::slot::{CacheLine, Set};
use super::table::{Request, Table};
use super::transition::{Effect, Outcome};
use crate::algorithm::{Algorithm, Cost, FixedWindow, GiveBack, Inherit, TokenBucket, Words};
use crate::clock::Tick;
use crate::decision::{Decision, Verdict};
use crate::quota::Quota;

fn at(ns: u64) -> Tick {
    Tick::from_nanos(ns)
}

/// A table of one set.
fn table<A: Words>(algorithm: A) -> Arc<Table<A>> {
    Arc::new(Table::new(algorithm, 1, Overflow::EvictLeast, at(0)))
}

fn quota(limit: u64) -> Quota {
    Quota::per(limit, Duration::from_nanos(10))
}

/// Decides on the fast path and falls back to the slow path, as `Local` does.
fn admits<A: Words>(table: &Table<A>, key: u64, now: u64) -> bool {
    let (now, cost) = (at(now), 1);
    let request = Request {
        now,
        cost,
        admit_only: false,
    };
    let rest = || {
        let decide = |algorithm: &A, state: &mut A::State| algorithm.decide(state, now, cost);
        let decided = table.transition(key, now, true, decide);
        decided.unwrap_or(Decision::new(Verdict::Deny, 0, 0, None, 0))
    };
    table
        .decide(table.locate(key), request, |decision| decision, rest)
        .is_admitted()
}

/// Sends requests of (key, time) from two threads. Returns how many of each were admitted.
fn run_both<A: Words>(table: &Arc<Table<A>>, requests: [&'static [(u64, u64)]; 2]) -> [usize; 2] {
    let count = |table: &Table<A>, requests: &[(u64, u64)]| {
        requests
            .iter()
            .filter(|(key, now)| admits(table, *key, *now))
            .count()
    };
    let other = Arc::clone(table);
    let handle = thread::spawn(move || count(&other, requests[0]));
    let here = count(table, requests[1]);
    [handle.join().expect("no thread panics"), here]
}

/// Shows promise 37.
#[test]
fn loom_a_key_inserted_twice_at_once_has_one_state() {
    loom::model(|| {
        let table = table(TokenBucket::new(quota(2)));
        let admitted = run_both(&table, [&[(7, 0), (7, 0)], &[(7, 0)]]);
        assert_eq!(admitted[0] + admitted[1], 2);
    });
}

#[test]
fn loom_two_keys_of_one_set_do_not_overwrite_each_other() {
    loom::model(|| {
        let table = table(TokenBucket::new(quota(1)));
        assert_eq!(run_both(&table, [&[(7, 0), (7, 0)], &[(8, 0)]]), [1, 1]);
        assert!(!admits(&table, 7, 0) && !admits(&table, 8, 0));
    });
}

/// Shows promise 37.
#[test]
fn loom_a_reused_slot_is_not_written_by_its_old_key() {
    loom::model(|| {
        let table = table(TokenBucket::new(quota(1)));
        for key in 1..=4 {
            assert!(admits(&table, key, 0));
        }
        // All four have expired. A new key takes the first slot while the slot's old key returns.
        assert_eq!(run_both(&table, [&[(9, 20)], &[(1, 20)]]), [1, 1]);
        assert!(!admits(&table, 9, 20) && !admits(&table, 1, 20));
    });
}

#[test]
fn loom_a_key_inserted_twice_beside_a_full_home_set_has_one_state() {
    loom::model(|| {
        // The home of every small hash is the first of two sets, which has four slots.
        let table = Arc::new(Table::new(
            TokenBucket::new(quota(2)),
            5,
            Overflow::EvictLeast,
            at(0),
        ));
        assert_eq!(table.sets.len, 2);
        for key in 1..=4 {
            assert!(admits(&table, key, 0));
        }
        let admitted = run_both(&table, [&[(9, 0), (9, 0)], &[(9, 0)]]);
        assert_eq!(admitted[0] + admitted[1], 2);
        assert!(
            (1..=4).all(|key| admits(&table, key, 0)),
            "each key has one left"
        );
    });
}

/// A state that was only read.
struct Seen(<TokenBucket as Algorithm>::State);

impl Outcome for Seen {
    fn effect(&self) -> Effect {
        Effect::Read
    }
}

/// Shows promise 37.
#[test]
fn loom_a_state_of_two_words_is_not_torn() {
    // The interval's remainder is too wide for one word.
    let odd = Quota::per(9_999_991, Duration::from_secs(1_009)).burst(2);
    loom::model(move || {
        let bucket = TokenBucket::new(odd);
        assert_eq!(bucket.facts().words, 2);
        let table = table(bucket);
        let mut states = vec![bucket.fresh(at(5))];
        for taken in 0..2 {
            let mut next = states[taken];
            assert!(bucket.decide(&mut next, at(5), 1).is_admitted());
            states.push(next);
        }
        assert!(admits(&table, 7, 5));
        // The reader is the spawned thread: loom does not interleave between the loads of the
        // thread that spawns it.
        let other = Arc::clone(&table);
        let reader = thread::spawn(move || {
            other.transition(7, at(5), false, |_: &TokenBucket, state: &mut _| {
                Seen(*state)
            })
        });
        assert!(admits(&table, 7, 5));
        let seen = reader.join().expect("no thread panics");
        assert!(states[1..].contains(&seen.expect("the key has a slot").0));
    });
}

/// Shows promise 37.
#[test]
fn loom_a_quota_change_is_atomic_for_a_decision() {
    loom::model(|| {
        let table = table(FixedWindow::new(quota(3)));
        assert!(admits(&table, 7, 0));
        let other = Arc::clone(&table);
        let change = thread::spawn(move || {
            let change = FixedWindow::new(quota(2));
            let changed = other.set_algorithm(change, || at(1), Inherit::AsIs);
            changed.expect("no algorithm of a user");
        });
        // One is used. A second request is admitted before the change and after it, and the change
        // keeps its count.
        assert!(admits(&table, 7, 1));
        change.join().expect("no thread panics");
        assert!(!admits(&table, 7, 1));
    });
}

/// A thread decides while another one changes the quota. Returns how often the decision was tried on
/// the slow path.
fn tries_during_a_change() -> usize {
    let table = table(FixedWindow::new(quota(3)));
    let change = |table: &Table<_>, limit| {
        let window = FixedWindow::new(quota(limit));
        let changed = table.set_algorithm(window, || at(1), Inherit::AsIs);
        changed.expect("no algorithm of a user");
    };
    assert!(admits(&table, 7, 0));
    change(&table, 4);
    assert!(admits(&table, 7, 1));
    let other = Arc::clone(&table);
    // The spawned thread decides: loom does not interleave between the loads of the thread that spawns
    // it.
    let decides = thread::spawn(move || {
        // From here on this thread has an epoch in its cache.
        let seen = other.epochs.current().number;
        let before = other.attempts.load(Relaxed);
        assert!(admits(&other, 7, 1));
        let tries = other.attempts.load(Relaxed) - before;
        (seen, usize::try_from(tries).expect("a few"))
    });
    change(&table, 5);
    let (seen, tries) = decides.join().expect("no thread panics");
    assert!(admits(&table, 7, 1));
    assert!(seen == 1 || tries <= 2, "{tries} tries of a new view");
    tries
}

/// Shows promise 47.
#[test]
fn loom_a_decision_is_tried_a_few_times_during_a_quota_change() {
    let most = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&most);
    loom::model(move || {
        seen.fetch_max(tries_during_a_change(), Relaxed);
    });
    // A try that migrates the set, and one that decides.
    assert_eq!(most.load(Relaxed), 2);
}

#[test]
fn loom_a_key_inserted_twice_into_the_last_slot_is_not_denied() {
    loom::model(|| {
        let bucket = TokenBucket::new(quota(2));
        let table = Arc::new(Table::new(bucket, 1, Overflow::Deny, at(0)));
        for key in 1..=3 {
            assert!(admits(&table, key, 0));
        }
        let admitted = run_both(&table, [&[(9, 0)], &[(9, 0)]]);
        assert_eq!(admitted, [1, 1]);
    });
}

#[test]
fn loom_an_evicted_spilled_state_is_not_written_to_its_old_slot() {
    loom::model(|| {
        let table = table(FixedWindow::new(quota(2)));
        let charge = |table: &Table<_>, now, cost| {
            let _ = table.transition(1, at(now), true, &|window: &FixedWindow, state: &mut _| {
                window.charge(state, at(now), cost)
            });
        };
        // A count of five against a limit of two does not fit the slot, which is the first one.
        charge(&table, 0, 5);
        for key in 2..=4 {
            assert!(admits(&table, key, 0));
        }
        // Everything has expired: key 9 takes the first slot while its old key is charged.
        let other = Arc::clone(&table);
        let charges = thread::spawn(move || charge(&other, 1 << 30, 7));
        assert!(admits(&table, 9, 1 << 30));
        charges.join().expect("no thread panics");
        assert!(admits(&table, 9, 1 << 30), "one is left");
        assert!(!admits(&table, 9, 1 << 30));
        assert!(!admits(&table, 1, 1 << 30), "it was charged");
    });
}

/// Shows promise 37.
#[test]
fn loom_a_state_that_spills_and_unspills_loses_no_count() {
    loom::model(|| {
        let table = table(FixedWindow::new(quota(2)));
        let debtor = Arc::clone(&table);
        // A count of five against a limit of two does not fit the slot.
        let debt = thread::spawn(move || {
            let _ = debtor.transition(7, at(0), true, |window: &FixedWindow, state: &mut _| {
                window.charge(state, at(0), 5)
            });
        });
        let before = admits(&table, 7, 0);
        debt.join().expect("no thread panics");
        let left = table.transition(7, at(0), false, |window: &FixedWindow, state: &mut _| {
            window.refund(state, at(0), Cost::new(5, at(0)), GiveBack::Refund);
            window.peek(state, at(0), 0).remaining()
        });
        assert_eq!(left, Ok(2 - u64::from(before)));
    });
}

/// One thread writes a state of two words while another reads it with `read`.
fn check_pair_reads(read: fn(Set<'_>) -> Option<[u64; 2]>) {
    loom::model(move || {
        let lines: Arc<[CacheLine; 2]> = Arc::default();
        let set = Set::at_index(&lines[..], 0, 2);
        let (header, _) = set.lookup(7);
        let mut locked = set.try_lock(header).expect("no other writer");
        locked.write_tag(0, 7);
        locked.write_state(0, &[1, 1]);
        drop(locked);
        let shared = Arc::clone(&lines);
        let reader = thread::spawn(move || read(Set::at_index(&shared[..], 0, 2)));
        let mut locked = set.try_lock(set.lookup(7).0).expect("no other writer");
        locked.write_state(0, &[2, 2]);
        drop(locked);
        if let Some([first, second]) = reader.join().expect("no thread panics") {
            assert_eq!(first, second, "torn read");
        }
    });
}

#[test]
fn loom_try_read_returns_no_torn_state() {
    check_pair_reads(|set| set.try_read::<2>(7, 0).map(|(.., words)| words));
}

/// Loading the header a second time prevents this bug.
#[test]
#[should_panic(expected = "torn read")]
fn loom_a_reader_without_validation_is_detected() {
    check_pair_reads(|set| {
        set.read_unvalidated(7)
            .map(|[first, second, ..]| [first, second])
    });
}

/// Two threads increment a state. Each locks the set at the version that it read or, if `stale` is
/// set, at a later one.
fn check_increments(stale: bool) {
    loom::model(move || {
        let lines: Arc<[CacheLine; 1]> = Arc::default();
        let set = Set::at_index(&lines[..], 0, 1);
        let mut locked = set.try_lock(set.lookup(7).0).expect("no other writer");
        locked.write_tag(0, 7);
        drop(locked);
        let add = move |lines: &[CacheLine]| {
            let set = Set::at_index(lines, 0, 1);
            let (mut header, Some((slot, [count, ..]))) = set.lookup(7) else {
                return 0;
            };
            if stale {
                header = set.lookup(7).0;
            }
            let Some(mut locked) = set.try_lock(header) else {
                return 0;
            };
            locked.write_state(slot, &[count + 1]);
            1
        };
        let shared = Arc::clone(&lines);
        let other = thread::spawn(move || add(&shared[..]));
        let here = add(&lines[..]);
        let added = here + other.join().expect("no thread panics");
        let left = set.lookup(7).1.map(|(_, [count, ..])| count);
        assert_eq!(left, Some(added), "lost update");
    });
}

#[test]
fn loom_locking_the_version_read_loses_no_update() {
    check_increments(false);
}

/// Locking at the version that was read prevents this bug.
#[test]
#[should_panic(expected = "lost update")]
fn loom_locking_a_later_version_is_detected() {
    check_increments(true);
}
