//! A leased limit never exceeds that of its algorithm.

use std::time::Duration;

use tokio::time::Instant;
use tower_throttle::store::cas::{Fault, Faulty, MemoryStore};
use tower_throttle::store::fleet::Leased;
use tower_throttle::{FixedWindow, Quota};

use crate::fleet::{admit, drain, leased, machine, pass, remaining, take};

/// Shows promise 204.
#[tokio::test(start_paused = true)]
async fn what_is_not_used_is_given_back() {
    let store = MemoryStore::new();
    let limit = leased(&store);
    admit(&limit, 1).await;
    pass(5).await;
    assert_eq!(drain(&leased(&store)).await, 99);
    let held = leased(&MemoryStore::new());
    assert!(take(&held, 100).await.is_admitted());
    assert!(take(&held, 1).await.is_denied());
}

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
