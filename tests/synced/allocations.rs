//! Allocations of decisions in memory.

use std::time::Duration;

use tower_throttle::store::Backend;
use tower_throttle::store::cas::MemoryStore;

use crate::counting::ALLOCATIONS;
use crate::{builder, pass, window};

/// Some keys of a table that is almost full are outside their home set.
#[tokio::test(start_paused = true)]
async fn only_the_first_decision_on_a_key_in_use_allocates() {
    const KEYS: u64 = 930;
    let store = MemoryStore::new();
    let limit = builder(&store).capacity(1_000).build("api", window());
    let limit = limit.expect("a limit");
    for _ in 0..2 {
        let before = ALLOCATIONS.get();
        for key in 0..KEYS {
            let decision = limit.decide(&key, 1).await.expect("it is known at once");
            assert!(decision.is_admitted());
        }
        let after = ALLOCATIONS.get();
        assert!(after > before, "the name of each key");
        // Several exchanges per key.
        for _ in 0..10 {
            let before = ALLOCATIONS.get();
            for key in 0..KEYS {
                assert!(limit.try_admit(&key, 1));
                assert!(limit.decide(&key, 1).await.is_ok());
            }
            assert_eq!(ALLOCATIONS.get(), before);
            tokio::time::sleep(Duration::from_millis(40)).await;
        }
        assert!(limit.counts().exchanged >= 3 * KEYS);
        pass(5).await;
        assert_eq!(limit.counts().pending, 0);
    }
}
