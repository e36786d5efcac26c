//! Allocations of decisions in memory.

use tower_throttle::store::Backend;
use tower_throttle::store::cas::MemoryStore;

use crate::counting::{ALLOCATIONS, LIVE};
use crate::fleet::{INTERVAL, leased, stats, synced, take_all};

/// Shows promise 43.
#[tokio::test(start_paused = true)]
async fn only_the_first_decision_on_a_key_allocates() {
    const KEYS: u64 = 1_000;
    let limit = synced(&MemoryStore::new());
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
    let limit = leased(&MemoryStore::new());
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

/// With a name of 17 letters, and without what the store keeps.
#[tokio::test(start_paused = true)]
async fn a_key_costs_at_most_300_bytes_in_the_process() {
    let store = MemoryStore::new();
    // Just before the maps grow, and just after it.
    for keys in [25_000, 31_000, 50_000_u64] {
        let limit = synced(&store);
        limit.close().await.expect("an exchange");
        for key in 0..keys {
            drop(limit.decide(&format!("customer-{key:08}"), 1));
        }
        // All are exchanged, and hold units.
        tokio::time::sleep(INTERVAL * 3 / 2).await;
        assert_eq!(stats(&limit).live as u64, keys);
        assert!(stats(&limit).store_calls >= keys);
        let held = LIVE.get();
        // It gives all back, and ends.
        drop(limit);
        tokio::time::sleep(10 * INTERVAL).await;
        let per_key = (held - LIVE.get()) / i64::try_from(keys).expect("few");
        println!("{keys} keys: {per_key} bytes per key");
        assert!(
            (150..=300).contains(&per_key),
            "{keys} keys: {per_key} bytes per key"
        );
    }
}
