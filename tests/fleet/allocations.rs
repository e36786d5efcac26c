//! Allocations of decisions in memory.

use tower_throttle::store::Backend;
use tower_throttle::store::cas::MemoryStore;

use crate::counting::ALLOCATIONS;
use crate::{leased, machine, synced, take_all};

/// Shows promise 43.
#[tokio::test(start_paused = true)]
async fn only_the_first_decision_on_a_key_allocates() {
    const KEYS: u64 = 1_000;
    let limit = machine(synced(&MemoryStore::new()).machines(1));
    let before = ALLOCATIONS.get();
    for key in 0..KEYS {
        let decision = limit.decide(&key, 1).await.expect("it is known at once");
        assert!(decision.is_admitted());
    }
    assert!(ALLOCATIONS.get() > before, "the name of each key");
    let before = ALLOCATIONS.get();
    for key in 0..KEYS {
        assert!(limit.decide(&key, 1).await.is_ok());
        assert!(
            limit
                .decide(&key, 100)
                .await
                .is_ok_and(|decision| decision.is_denied())
        );
    }
    assert_eq!(ALLOCATIONS.get(), before);
}

/// Shows promise 43.
#[tokio::test(start_paused = true)]
async fn a_denial_in_memory_allocates_nothing() {
    let limit = machine(leased(&MemoryStore::new()));
    take_all(&limit).await;
    let before = ALLOCATIONS.get();
    assert!(
        limit
            .decide("key", 1)
            .await
            .is_ok_and(|decision| decision.is_denied())
    );
    assert_eq!(ALLOCATIONS.get(), before);
}
