//! Which keys a full table forgets.

use super::super::exchange::Reply;
use super::super::machine::StoreTime;
use super::super::shape::Shape;
use super::*;
use crate::algorithm::TokenBucket;
use crate::quota::Quota;

const NOW: Tick = Tick::from_nanos(1_000);

fn keys(capacity: usize) -> Keys {
    let bucket = TokenBucket::new(Quota::per_day(10));
    let limit = Limit {
        shape: Shape::of(&bucket, Tick::ZERO).expect("a shape"),
        interval: 1_000_000,
        life: 10_000_000,
        ahead: false,
    };
    Keys::new(capacity, limit)
}

/// A limit of a fleet holds at most as many keys as its capacity and 64 more, of at most 300 bytes
/// each.
#[test]
fn a_full_table_forgets_first_what_need_not_be_known_and_never_what_is_being_exchanged() {
    let keys = keys(5);
    // All hashes are of one shard.
    let add = |hash, change: fn(&mut Budget)| {
        let _ = keys.change(hash, || "key".into(), NOW, change);
    };
    let add_in_flight = |hash| {
        add(hash, |budget| budget.charge(NOW, 1));
        let mut shard = keys.shard(hash);
        shard.keys.get_mut(&hash).expect("a key").is_in_flight = true;
    };
    add_in_flight(1);
    let waiting = keys.decide(2, || "key".into(), (NOW, 1), false);
    assert!(matches!(waiting, Ok(Err(_))));
    add(3, |budget| budget.charge(NOW, 1));
    // Others have used it up.
    let limit = keys.limit();
    let _ = keys.change(
        4,
        || "key".into(),
        NOW,
        |budget| {
            let reply = Reply {
                window: 1_000_000,
                ..Reply::default()
            };
            budget.adopt(&limit, &reply, &StoreTime::default());
        },
    );
    add(5, |_| {});

    for (new, known, evicted, lost) in [
        (6, vec![1, 2, 3, 4, 6], 0, 0),
        (7, vec![1, 2, 3, 6, 7], 1, 0),
        (8, vec![1, 2, 6, 7, 8], 2, 1),
    ] {
        add_in_flight(new);
        let mut found: Vec<_> = keys.shard(new).keys.keys().copied().collect();
        found.sort_unstable();
        assert_eq!(found, known);
        let losses = keys.stats();
        assert_eq!((losses.evicted, losses.lost_charges), (evicted, lost));
    }
    // All of its part of the table are being exchanged.
    assert!(keys.change(9, || "key".into(), NOW, |_| {}).is_err());
    let full = keys.decide(9, || "key".into(), (NOW, 1), false);
    assert!(full.is_err());
}

#[test]
fn a_key_that_is_idle_is_found_among_many_that_are_being_exchanged() {
    for idle in 0..64 {
        let keys = keys(64);
        for hash in 0..64 {
            let _ = keys.change(hash, || "key".into(), NOW, |_| {});
            let mut shard = keys.shard(hash);
            shard.keys.get_mut(&hash).expect("a key").is_in_flight = hash != idle;
        }
        assert!(keys.change(64, || "key".into(), NOW, |_| {}).is_ok());
    }
}

#[test]
fn the_keys_that_are_due_are_found_and_those_that_need_not_be_known_forgotten_what_need_not_be_known()
 {
    let keys = keys(10);
    for hash in 1..=5 {
        let _ = keys.change(hash, || "key".into(), NOW, |_| {});
    }
    keys.shard(1).keys.get_mut(&1).expect("a key").is_in_flight = true;
    let waiting = keys.decide(2, || "key".into(), (NOW, 1), false);
    assert!(matches!(waiting, Ok(Err(_))));
    let _ = keys.change(
        3,
        || "key".into(),
        NOW,
        |budget| {
            budget.charge(NOW, 1);
        },
    );
    // A request waits for 2, which is urgent.
    assert_eq!(keys.due(NOW), [3]);
    let mut known: Vec<_> = keys.shard(1).keys.keys().copied().collect();
    known.sort_unstable();
    assert_eq!((known, keys.len()), (vec![1, 2, 3], 3));
}

/// Shows promise 205.
#[test]
fn all_requests_that_wait_go_on_if_there_is_an_error() {
    let keys = keys(10);
    let mut all: Vec<_> = (0..3)
        .map(|_| match keys.decide(2, || "key".into(), (NOW, 1), false) {
            Ok(Err(exchanged)) => exchanged,
            _ => panic!("it is decided"),
        })
        .collect();
    assert!(all.iter_mut().all(|waiting| waiting.try_recv().is_err()));
    let error = StoreError::new("gone", true);
    keys.fail_waiters(&error, NOW);
    for waiting in &mut all {
        assert_eq!(waiting.try_recv(), Ok(Err(error.clone())));
    }
}
