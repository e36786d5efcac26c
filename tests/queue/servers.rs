//! Too many requests with several servers: the rows of the table at `RateLimitLayer::seats`.

use std::future::Future;

use axum::{Router, body::Body, error_handling::HandleErrorLayer, routing::get};
use http::{Request, StatusCode};
use tokio::task::JoinHandle;
use tower::{BoxError, Service, ServiceBuilder, ServiceExt, load_shed::LoadShedLayer};
use tower_throttle::{AsError, Global, LeakyBucket, Local, Quota, RateLimitLayer};

use crate::support::{Harness, Job, pass, settle};

/// One request per second, and two seats.
fn two_seats() -> RateLimitLayer<Global, Local<LeakyBucket>> {
    RateLimitLayer::new(Global, LeakyBucket::new(Quota::per_second(1).burst(1)))
        .queue(100)
        .seats(2)
}

fn app() -> Router {
    Router::new().route("/", get(|| async { "done" }))
}

/// Sends six requests at once.
async fn six<F>(send: impl Fn() -> F) -> Vec<JoinHandle<StatusCode>>
where
    F: Future<Output = StatusCode> + Send + 'static,
{
    let mut calls = Vec::new();
    for _ in 0..6 {
        calls.push(tokio::spawn(send()));
        settle().await;
    }
    calls
}

/// The statuses of the completed calls.
async fn over(calls: Vec<JoinHandle<StatusCode>>) -> Vec<u16> {
    let mut statuses = Vec::new();
    for call in calls {
        if call.is_finished() {
            statuses.push(call.await.unwrap().as_u16());
        }
    }
    statuses
}

fn send(app: &Router) -> impl Future<Output = StatusCode> + Send + 'static {
    let app = app.clone();
    async move {
        let Ok(response) = app.oneshot(Request::new(Body::empty())).await;
        response.status()
    }
}

/// Shows promise 68.
#[tokio::test(start_paused = true)]
async fn axum_denies_requests_without_a_seat_at_once() {
    let layer = two_seats().deny_when_full();
    let handle = layer.handle();
    let app = app().layer(layer);
    let calls = six(|| send(&app)).await;
    assert_eq!(handle.waiting(), 2);
    assert_eq!(over(calls).await, [200, 429, 429, 429]);
}

/// Shows promise 68.
#[tokio::test(start_paused = true)]
async fn axum_holds_requests_without_a_seat_by_default() {
    let layer = two_seats();
    let handle = layer.handle();
    let app = app().layer(layer);
    let calls = six(|| send(&app)).await;
    assert_eq!(handle.waiting(), 2);
    pass(5_000).await;
    assert_eq!(over(calls).await, [200; 6]);
}

/// Shows promise 68.
#[tokio::test(start_paused = true)]
async fn axum_with_load_shedding_sheds_requests_without_a_seat() {
    let layer = two_seats();
    let handle = layer.handle();
    let shed = ServiceBuilder::new()
        .layer(HandleErrorLayer::new(|_: BoxError| async {
            StatusCode::SERVICE_UNAVAILABLE
        }))
        .layer(LoadShedLayer::new())
        .layer(layer);
    let app = app().layer(shed);
    let calls = six(|| send(&app)).await;
    assert_eq!(handle.waiting(), 2);
    assert_eq!(over(calls).await, [200, 503, 503, 503]);
}

/// Shows promise 68.
#[tokio::test(start_paused = true)]
async fn a_client_waits_until_a_seat_is_free() {
    let layer = RateLimitLayer::new(Global, LeakyBucket::new(Quota::per_second(1).burst(1)))
        .queue(100)
        .respond(AsError)
        .seats(2);
    let harness = Harness::new(&layer);
    let mut service = harness.service.clone();
    let mut sent = Vec::new();
    let start = tokio::time::Instant::now();
    for name in 0..6 {
        let ready = service.ready().await.unwrap();
        tokio::spawn(ready.call(Job { name, cost: 1 }));
        sent.push(start.elapsed().as_millis());
    }
    assert_eq!(sent, [0, 0, 0, 1_000, 2_000, 3_000]);
    pass(10_000).await;
    let names: Vec<_> = harness.served().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, [0, 1, 2, 3, 4, 5]);
}
