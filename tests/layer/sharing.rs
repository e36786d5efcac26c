//! One layer is one limit, in all its clones and services.

use std::{collections::HashSet, thread, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::Request,
    routing::{MethodRouter, get},
};
use futures_util::FutureExt;
use tower::{Layer, ServiceBuilder, ServiceExt, service_fn};
use tower_throttle::{
    AsError, FixedWindow, Global, Local, ManualClock, Quota, RateLimitLayer, RateLimited,
};

fn ten() -> FixedWindow {
    FixedWindow::new(Quota::per_day(10)).anchored()
}

/// Sends 90 requests over 10 routes and 3 methods. Returns how many `app` admits.
async fn admitted(app: Router) -> usize {
    let mut admitted = 0;
    for n in 0..90 {
        let method = ["GET", "POST", "PUT"][n % 3];
        let request = Request::builder()
            .method(method)
            .uri(format!("/{}", n % 10))
            .body(Body::empty())
            .unwrap();
        // A clone per request, because a server makes one per connection.
        let response = app.clone().oneshot(request).await.unwrap();
        admitted += usize::from(response.status().is_success());
    }
    admitted
}

fn routes(route: impl Fn() -> MethodRouter) -> Router {
    (0..10).fold(Router::new(), |app, n| app.route(&format!("/{n}"), route()))
}

fn methods() -> MethodRouter {
    get(async || ()).post(async || ()).put(async || ())
}

/// Shows promise 50.
#[tokio::test]
async fn axum_2634_and_3682_ten_routes_and_three_methods_share_one_limit() {
    let limit = || RateLimitLayer::new(Global, ten());
    assert_eq!(admitted(routes(methods).layer(limit())).await, 10);
    assert_eq!(admitted(routes(methods).route_layer(limit())).await, 10);
    let one = limit();
    assert_eq!(admitted(routes(|| methods().layer(one.clone()))).await, 10);
    let stack = ServiceBuilder::new().layer(limit());
    assert_eq!(admitted(routes(methods).layer(stack)).await, 10);
}

/// Shows promise 50.
#[tokio::test]
async fn separate_layers_are_separate_limits() {
    let app = routes(|| methods().layer(RateLimitLayer::new(Global, ten())));
    assert_eq!(admitted(app).await, 90);
}

/// Shows promise 630.
#[test]
fn clients_that_are_denied_at_once_are_told_different_times() {
    let window = Local::new(FixedWindow::new(Quota::per_day(1))).with_clock(ManualClock::new());
    let layer = RateLimitLayer::new(Global, window)
        .jitter(100)
        .respond(AsError);
    let service = layer.layer(service_fn(async |()| Ok::<(), RateLimited>(())));
    let ask = |_| {
        let asked = service.clone().oneshot(()).now_or_never().unwrap();
        asked.err()?.retry_after()
    };
    let told = thread::scope(|scope| {
        let asks = || (0..5_000).filter_map(ask).collect::<Vec<_>>();
        let threads = [(); 4].map(|()| scope.spawn(asks));
        let told = threads.map(|thread| thread.join().unwrap());
        told.concat()
    });
    let told: HashSet<Duration> = told.into_iter().collect();
    assert_eq!(told.len(), 4 * 5_000 - 1);
}
