//! A limit in a store, as a layer.

use std::time::Duration;

use tower::{BoxError, Layer, ServiceExt, service_fn};
use tower_throttle::store::cas::{Cas, MemoryStore};
use tower_throttle::{
    AsError, FixedWindow, LeakyBucket, Quota, RateLimitLayer, RateLimited, Settle,
};

async fn echo(request: u64) -> Result<u64, BoxError> {
    Ok(request)
}

fn is_denied(result: &Result<u64, BoxError>) -> bool {
    result.as_ref().is_err_and(|error| {
        let limited = error.downcast_ref::<RateLimited>();
        limited.is_some_and(|limited| limited.decision().is_some())
    })
}

/// Shows promise 100.
#[tokio::test(start_paused = true)]
async fn a_layer_limits_by_key_and_settles() {
    let limit = Cas::new(
        MemoryStore::new(),
        "api",
        FixedWindow::new(Quota::per_day(2)),
    );
    let layer = RateLimitLayer::new(|request: &u64| *request % 10, limit)
        .settle(|response: &u64| match response {
            100.. => Settle::Refund,
            _ => Settle::Keep,
        })
        .respond(AsError);
    let service = layer.layer(service_fn(echo));
    for request in [1, 101, 201, 1] {
        assert!(service.clone().oneshot(request).await.is_ok(), "{request}");
    }
    assert!(is_denied(&service.clone().oneshot(1).await));
    assert!(service.oneshot(2).await.is_ok());
}

/// Shows promise 100.
#[tokio::test(start_paused = true)]
async fn requests_queue_for_their_turn_and_leave_it_when_they_are_dropped() {
    let bucket = LeakyBucket::new(Quota::per_second(1).burst(1));
    let limit = Cas::new(MemoryStore::new(), "line", bucket);
    let layer = RateLimitLayer::new(tower_throttle::Global, limit)
        .queue(2)
        .max_wait(Duration::from_secs(10))
        .respond(AsError);
    let service = layer.layer(service_fn(echo));
    let began = tokio::time::Instant::now();
    assert!(service.clone().oneshot(1).await.is_ok());
    let waiting = tokio::spawn(service.clone().oneshot(2));
    let last = tokio::spawn(service.clone().oneshot(3));
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert!(
        is_denied(&service.clone().oneshot(4).await),
        "the queue is full"
    );
    // Its turn passes unused: the one behind it keeps its own.
    waiting.abort();
    assert!(waiting.await.is_err());
    assert!(is_denied(&service.clone().oneshot(5).await), "still full");
    // The last turn is given back.
    last.abort();
    assert!(last.await.is_err());
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert!(service.oneshot(6).await.is_ok(), "there is room again");
    let waited = began.elapsed();
    assert!(waited >= Duration::from_millis(1_990), "{waited:?}");
    assert!(waited < Duration::from_millis(2_100), "{waited:?}");
}
