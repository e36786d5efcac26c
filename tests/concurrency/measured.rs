//! Limits that adapt: what the layer measures.

use std::{
    convert::Infallible,
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::{Request, Response};
use http_body_util::Full;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_throttle::{
    AsError, Global, Handle, RateLimited,
    concurrency::{Aimd, ConcurrencyLimitLayer, Gradient2, Permits},
};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn from_20() -> ConcurrencyLimitLayer<Global> {
    ConcurrencyLimitLayer::adaptive(Aimd::new(ms(60)).start_at(20).between(1, 40))
}

/// The limit after so many seconds of twelve requests each. Their clients wait for 500 ms.
async fn after<S>(seconds: u32, service: &S, handle: &Handle<(), Permits>) -> u64
where
    S: Service<Request<()>, Response: Send, Error: Send, Future: Send> + Clone + Send + 'static,
{
    for _ in 0..seconds {
        let second = tokio::time::Instant::now() + ms(1_000);
        let calls = (0..12).map(|_| {
            let call = service.clone().oneshot(Request::new(()));
            tokio::time::timeout(ms(500), call)
        });
        let mut calls: tokio::task::JoinSet<_> = calls.collect();
        while calls.join_next().await.is_some() {}
        tokio::time::sleep_until(second).await;
    }
    handle.limit()
}

/// A response after 50 ms. The body is not empty.
async fn respond(
    status: u16,
    grpc: Option<u8>,
) -> Result<Response<Full<bytes::Bytes>>, Infallible> {
    tokio::time::sleep(ms(50)).await;
    let mut response = Response::builder().status(status);
    if let Some(grpc) = grpc {
        response = response.header("grpc-status", grpc.to_string());
    }
    let body = Full::new(bytes::Bytes::from_static(b"body"));
    Ok(response.body(body).unwrap())
}

/// The limit after a minute of such responses.
async fn after_a_minute_of(status: u16, grpc: Option<u8>) -> u64 {
    let service = service_fn(move |_: Request<()>| respond(status, grpc));
    let layer = from_20();
    after(60, &layer.layer(service), &layer.handle()).await
}

/// Shows promise 185.
#[tokio::test(start_paused = true)]
async fn statuses_are_samples_drops_or_ignored() {
    for sample in [(200, None), (200, Some(0))] {
        let limit = after_a_minute_of(sample.0, sample.1).await;
        assert!(limit > 20, "{sample:?}");
    }
    // 429 and resource exhausted are about the client.
    for ignored in [
        (400, None),
        (404, None),
        (429, None),
        (500, None),
        (200, Some(8)),
        (200, Some(5)),
    ] {
        let limit = after_a_minute_of(ignored.0, ignored.1).await;
        assert_eq!(limit, 20, "{ignored:?}");
    }
    for dropped in [(503, None), (504, None), (200, Some(4)), (200, Some(14))] {
        let limit = after_a_minute_of(dropped.0, dropped.1).await;
        assert!(limit < 15, "{dropped:?} {limit}");
    }
    // A 503 of a limit further in, which denies all of them.
    let inner = ConcurrencyLimitLayer::new(Global, 1).unavailable();
    let inner = inner.layer(service_fn(|_: Request<()>| respond(200, None)));
    let _held = inner.clone().oneshot(Request::new(())).await;
    let outer = from_20();
    assert_eq!(after(60, &outer.layer(inner), &outer.handle()).await, 20);
}

/// A service that takes 50 ms for each of the first 36 requests, and then until `end` ends.
async fn after_it_is_stuck<F>(end: impl Fn() -> F + Clone + Send + Sync + 'static) -> (u64, u64)
where
    F: Future<Output = ()> + Send,
{
    let seen = Arc::new(AtomicUsize::new(0));
    let service = service_fn(move |_: Request<()>| {
        let is_stuck = seen.fetch_add(1, Ordering::Relaxed) >= 36;
        let end = end.clone();
        async move {
            if is_stuck {
                end().await;
            }
            respond(200, None).await
        }
    });
    let layer = from_20();
    let (service, handle) = (layer.layer(service), layer.handle());
    let before = after(3, &service, &handle).await;
    (before, after(60, &service, &handle).await)
}

/// Shows promise 185.
#[tokio::test(start_paused = true)]
async fn clients_that_time_out_lower_the_limit_and_panics_do_not() {
    let (before, limit) = after_it_is_stuck(std::future::pending).await;
    assert!(before > 20 && limit < 10, "{limit} after {before}");
    let (before, limit) = after_it_is_stuck(async || {
        tokio::time::sleep(ms(300)).await;
        std::panic::resume_unwind(Box::new(()));
    })
    .await;
    assert_eq!(limit, before);
}

/// Shows promise 185.
#[tokio::test(start_paused = true)]
async fn clients_that_hang_up_early_do_not_change_the_limit() {
    let service = service_fn(|_: Request<()>| respond(200, None));
    // Twelve at a time use more than half of it.
    let layer = ConcurrencyLimitLayer::adaptive(Gradient2::new().between(1, 20));
    let (service, handle) = (layer.layer(service), layer.handle());
    let before = after(5, &service, &handle).await;
    for _ in 0..10 {
        for _ in 0..200 {
            let call = service.clone().oneshot(Request::new(()));
            assert!(tokio::time::timeout(ms(1), call).await.is_err());
        }
        assert_eq!(after(1, &service, &handle).await, before);
    }
    // The latency without a queue is not theirs.
    assert_eq!(after(5, &service, &handle).await, before);
}

/// Shows promise 185.
#[tokio::test(start_paused = true)]
async fn a_request_that_another_limit_denies_is_no_sample() {
    let other = ConcurrencyLimitLayer::new(Global, 12)
        .queue(12)
        .max_wait(ms(300));
    let stuck = other.layer(service_fn(|_: Request<()>| {
        pending::<Result<Response<Full<bytes::Bytes>>, Infallible>>()
    }));
    let layer = from_20();
    let (handle, layer) = (layer.handle(), layer.and(other));
    let service = layer.layer(service_fn(|_: Request<()>| respond(200, None)));
    let before = after(5, &service, &handle).await;
    let held = (0..12).map(|_| stuck.clone().oneshot(Request::new(())));
    let _held: tokio::task::JoinSet<_> = held.collect();
    assert_eq!(after(5, &service, &handle).await, before);
}

/// Shows promise 185.
#[tokio::test(start_paused = true)]
async fn a_limit_that_rises_wakes_waiters_and_denials_are_no_samples() {
    let slow = service_fn(|(): ()| async {
        tokio::time::sleep(ms(100)).await;
        Ok::<(), tower::BoxError>(())
    });
    let layer = ConcurrencyLimitLayer::adaptive(Gradient2::new().start_at(1))
        .queue(500)
        .max_wait(Duration::from_secs(60))
        .release_at_response()
        .respond(AsError);
    let (service, handle) = (layer.layer(slow), layer.handle());
    let calls = (0..502).map(|_| service.clone().oneshot(()));
    let mut calls: tokio::task::JoinSet<_> = calls.collect();
    let (mut served, mut denied) = (0, 0);
    while let Some(ended) = calls.join_next().await {
        match ended.unwrap() {
            Ok(()) => served += 1,
            Err(error) => {
                assert!(error.is::<RateLimited>());
                denied += 1;
            }
        }
    }
    assert_eq!((served, denied), (501, 1));
    assert!(handle.limit() >= 16, "{}", handle.limit());
    assert_eq!((handle.keys(), handle.waiting()), (0, 0));
}
