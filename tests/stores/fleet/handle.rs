//! The handle of a layer changes a key for the whole fleet.

use http::{Request, Response};
use tower::{Layer, Service, service_fn};
use tower_throttle::store::cas::MemoryStore;
use tower_throttle::{HeaderKey, RateLimitLayer};

use crate::fleet::{machine, pass, synced};
use crate::memory_fleet::{respond, response};

/// The status of a request of the key.
async fn status<S>(service: &S) -> u16
where
    S: Service<Request<()>, Response = Response<String>, Error: std::fmt::Debug> + Clone,
{
    response(service).await.status().as_u16()
}

/// Shows promise 211.
#[tokio::test(start_paused = true)]
async fn a_penalty_a_refund_a_reset_and_a_quota_of_a_handle_reach_the_fleet() {
    let store = MemoryStore::new();
    let here = RateLimitLayer::new(HeaderKey::new("x-tenant"), machine(synced(&store)));
    let there = RateLimitLayer::new(HeaderKey::new("x-tenant"), machine(synced(&store)));
    let (handle, other) = (here.handle(), there.handle());
    let service = there.layer(service_fn(respond));
    let key = HeaderKey::key("a");
    // Each machine learns of the other in the exchange after its next request.
    let settle = async || {
        pass(3).await;
        let status = status(&service).await;
        pass(3).await;
        status
    };
    let remaining = async || {
        let peeked = other.peek(&key, 0).await;
        peeked.expect("a decision").remaining()
    };

    assert_eq!(settle().await, 200);
    handle.charge(&key, 60).await.expect("a penalty");
    settle().await;
    assert_eq!(settle().await, 200);
    assert!(
        (100 - 60 - 3..=100 - 60 - 2).contains(&remaining().await),
        "{}",
        remaining().await
    );

    handle.refund(&key, 10).await.expect("a refund");
    settle().await;
    settle().await;
    assert!(
        (100 - 50 - 5..=100 - 50 - 4).contains(&remaining().await),
        "{}",
        remaining().await
    );

    handle.charge(&key, 1_000).await.expect("a penalty");
    settle().await;
    assert_eq!(settle().await, 429);
    assert_eq!(remaining().await, 0);
    handle.reset(&key).await.expect("a reset");
    settle().await;
    assert_eq!(settle().await, 200);
}
