//! A leased limit never exceeds that of its algorithm.

use std::time::Duration;

use tokio::time::Instant;
use tower_throttle::store::cas::{Fault, Faulty, MemoryStore};
use tower_throttle::store::fleet::Leased;
use tower_throttle::{FixedWindow, Quota};

use crate::fleet::{admit, machine, remaining, take};

/// They are on their way to the store: a request waits for them, and is not denied until a window ends.
///
/// Shows promise 204.
#[tokio::test(start_paused = true)]
async fn what_is_being_given_back_is_not_denied() {
    let store = Faulty::new(MemoryStore::new());
    let window = FixedWindow::new(Quota::per_hour(10));
    let limit: Leased<_, FixedWindow> = machine(&store, window);
    admit(&limit, 1).await;
    assert_eq!(remaining(&limit).await, 9);
    store.plan([Fault::Delay(Duration::from_millis(500))]);
    let closing = tokio::spawn({
        let limit = limit.clone();
        async move { limit.close().await }
    });
    // Until the batch is on its way.
    while store.planned() > 0 {
        tokio::task::yield_now().await;
    }
    let begun = Instant::now();
    assert!(take(&limit, 1).await.is_admitted());
    assert!(begun.elapsed() > Duration::ZERO, "it is on its way");
    closing.await.expect("no panic").expect("an exchange");
}
