//! Allocations of decisions in memory.

use tower_throttle::store::Backend;
use tower_throttle::store::cas::MemoryStore;

use crate::counting::ALLOCATIONS;
use crate::{builder, pass, window};

/// A tenth of the keys of a full table are outside their home set.
#[tokio::test(start_paused = true)]
async fn only_the_first_decision_on_a_key_after_an_exchange_allocates() {
    const KEYS: u64 = 1_000;
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
        for key in 0..KEYS {
            assert!(limit.try_admit(&key, 1));
            assert!(limit.decide(&key, 1).await.is_ok());
        }
        assert_eq!(ALLOCATIONS.get(), after);
        pass(5).await;
        assert_eq!(limit.counts().pending, 0);
    }
}
