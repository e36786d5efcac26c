//! A limit in a store, as a layer.

use std::time::Duration;

use http::{Request, Response};
use tower::{BoxError, Layer, ServiceExt, service_fn};
use tower_throttle::store::cas::{Cas, MemoryStore};
use tower_throttle::{
    AsError, FixedWindow, LeakyBucket, Quota, RateLimitLayer, RateLimited, Settle,
    respond::{AtEnd, CostHandle},
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

/// Shows promise 321.
#[tokio::test(start_paused = true)]
async fn a_cost_that_is_said_at_the_end_reaches_the_store() {
    for (said, left) in [(None, 80), (Some(6), 94), (Some(50), 50), (Some(1_000), 0)] {
        let limit = Cas::new(
            MemoryStore::new(),
            "tokens",
            FixedWindow::new(Quota::per_day(100)),
        );
        let layer = RateLimitLayer::new(tower_throttle::Global, limit)
            .cost(|_: &Request<()>| 20)
            .settle(AtEnd);
        let handle = layer.handle();
        let served = move |request: Request<()>| async move {
            let cost = request.extensions().get::<CostHandle>().cloned();
            if let (Some(cost), Some(said)) = (&cost, said) {
                cost.set(said);
            }
            // The response holds the last handle.
            let mut response = Response::new("text".to_owned());
            response.extensions_mut().insert(cost);
            Ok::<_, BoxError>(response)
        };
        let request = Request::new(());
        let response = layer.layer(service_fn(served)).oneshot(request).await;
        assert_eq!(handle.peek(&(), 0).await.expect("a store").remaining(), 80);
        drop(response);
        let settled =
            async { while handle.peek(&(), 0).await.expect("a store").remaining() != left {} };
        let settled = tokio::time::timeout(Duration::from_secs(10), settled).await;
        assert!(settled.is_ok(), "{said:?}");
    }
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
