//! Allocations of decisions in memory.

use std::{
    pin::pin,
    task::{Context, Poll, Waker},
};

use tower_throttle::store::Backend;
use tower_throttle::store::cas::MemoryStore;

use crate::counting::ALLOCATIONS;
use crate::{builder, take, take_all, window};

/// Allocations of a decision that is made in memory, and whether it admits.
fn decide<B: Backend<str>>(limit: &B) -> (usize, bool) {
    let before = ALLOCATIONS.get();
    let mut cx = Context::from_waker(Waker::noop());
    let Poll::Ready(Ok(decision)) = pin!(limit.decide("key", 1)).poll(&mut cx) else {
        panic!("the machine holds units");
    };
    (ALLOCATIONS.get() - before, decision.is_admitted())
}

/// A machine that holds units, or that knows that none are left, allocates nothing.
#[tokio::test(start_paused = true)]
async fn a_decision_in_memory_allocates_nothing() {
    let store = MemoryStore::new();
    let limit = builder(&store).units(80).build("api", window());
    let limit = limit.expect("a limit");
    let before = ALLOCATIONS.get();
    let first = take(&limit, 1).await;
    assert!(first.is_admitted());
    assert!(ALLOCATIONS.get() > before, "the first one asks the store");
    assert!(take(&limit, 1).await.is_admitted());
    assert_eq!(decide(&limit), (0, true));
    let before = ALLOCATIONS.get();
    assert!(limit.try_admit("key", 1));
    assert_eq!(ALLOCATIONS.get(), before);
    take_all(&limit).await;
    assert_eq!(decide(&limit), (0, false));
}

/// A tenth of the keys of a full table are outside their home set.
#[tokio::test(start_paused = true)]
async fn decisions_on_all_keys_of_a_full_table_allocate_nothing() {
    const KEYS: u64 = 1_000;
    let store = MemoryStore::new();
    let limit = builder(&store).units(80).capacity(1_000);
    let limit = limit.build("api", window());
    let limit = limit.expect("a limit");
    for key in (0..KEYS).chain(0..KEYS) {
        let decision = limit.decide(&key, 1).await.expect("the store replies");
        assert!(decision.is_admitted());
    }
    let before = ALLOCATIONS.get();
    for key in 0..KEYS {
        assert!(limit.try_admit(&key, 1));
    }
    assert_eq!(ALLOCATIONS.get(), before);
}
