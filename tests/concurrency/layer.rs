//! What the layer decides and says, without waiting.

use axum::{Router, body::Body, extract::Request, routing::get};
use http::Response;
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::{
    AsError, Global, Headers, ProblemJson, RateLimited,
    concurrency::{ConcurrencyLimitLayer, Gradient2},
};

type Boxed = Box<dyn std::error::Error + Send + Sync>;

fn get_as(user: &str) -> Request {
    Request::get("/")
        .header("user", user)
        .body(Body::empty())
        .unwrap()
}

fn app(layer: impl FnOnce(Router) -> Router) -> Router {
    layer(Router::new().route("/", get(async || "data")))
}

async fn ask(app: &Router, request: Request) -> Response<Body> {
    let Ok(response) = app.clone().oneshot(request).await;
    response
}

/// Shows promise 184.
#[tokio::test]
async fn denials_say_what_the_client_needs() {
    let one = || ConcurrencyLimitLayer::new(Global, 1).name("export");
    let denied = async |app: Router| {
        let _first = ask(&app, get_as("a")).await;
        ask(&app, get_as("a")).await
    };

    let response = denied(app(|app| app.layer(one().headers(Headers::Draft11)))).await;
    assert_eq!(response.status(), 429);
    assert_eq!(response.headers()["retry-after"], "1");
    assert_eq!(response.headers()["ratelimit"], r#""export";r=0"#);
    let reason = response.extensions().get::<RateLimited>().unwrap();
    assert_eq!(reason.policy(), Some("export"));
    assert_eq!(
        reason.to_string(),
        "too many requests at once, retry in 1 s"
    );

    let response = denied(app(|app| {
        app.layer(one().unavailable().respond(ProblemJson))
    }))
    .await;
    assert_eq!(response.status(), 503);
    let body = axum::body::to_bytes(response.into_body(), 1_000)
        .await
        .unwrap();
    let body = String::from_utf8(body.to_vec()).unwrap();
    assert!(body.contains("temporary-reduced-capacity"), "{body}");

    for (layer, code) in [(one(), "8"), (one().unavailable(), "14")] {
        let app = app(|app| app.layer(layer));
        let _first = ask(&app, get_as("a")).await;
        let mut call = get_as("a");
        let grpc = "application/grpc".parse().unwrap();
        call.headers_mut().insert("content-type", grpc);
        call.headers_mut().insert("te", "trailers".parse().unwrap());
        *call.method_mut() = http::Method::POST;
        let response = ask(&app, call).await;
        assert_eq!(
            (
                response.status().as_u16(),
                &response.headers()["grpc-status"]
            ),
            (200, &code.parse().unwrap())
        );
        assert_eq!(response.headers()["grpc-retry-pushback-ms"], "1000");
    }
}

/// Shows promise 184.
#[tokio::test]
async fn headers_of_every_form_state_no_period_and_no_reset() {
    for (form, expected) in [
        (
            Headers::Draft11,
            vec![
                ("ratelimit", r#""default";r=2"#),
                (
                    "ratelimit-policy",
                    r#""default";q=3;qu="concurrent-requests""#,
                ),
            ],
        ),
        (
            Headers::Draft6,
            vec![("ratelimit-limit", "3"), ("ratelimit-remaining", "2")],
        ),
        (
            Headers::XRateLimitDelta,
            vec![("x-ratelimit-limit", "3"), ("x-ratelimit-remaining", "2")],
        ),
        (
            Headers::XRateLimitEpoch,
            vec![("x-ratelimit-limit", "3"), ("x-ratelimit-remaining", "2")],
        ),
    ] {
        let app = app(|app| app.layer(ConcurrencyLimitLayer::new(Global, 3).headers(form)));
        let response = ask(&app, get_as("a")).await;
        let mut stated: Vec<_> = response
            .headers()
            .iter()
            .filter(|(name, _)| name.as_str().contains("ratelimit"))
            .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
            .collect();
        stated.sort_unstable();
        assert_eq!(stated, expected, "{form:?}");
    }
}

/// Shows promise 54.
#[tokio::test]
async fn shadow_states_the_limit_only_if_asked_to_and_rejects_nothing() {
    let keys = |request: &Request| match request.headers().get("user") {
        Some(user) => Ok(user.clone()),
        None => Err(http::StatusCode::UNAUTHORIZED),
    };
    let layer = ConcurrencyLimitLayer::new(keys, 1).headers(Headers::Draft6);
    for (layer, stated) in [
        (layer.clone().shadow(), 0),
        (layer.clone().shadow().headers(Headers::Draft6), 2),
        (layer.clone(), 1),
    ] {
        let app = app(|app| app.layer(layer));
        let held = [ask(&app, get_as("a")).await, ask(&app, get_as("a")).await];
        let told = held
            .iter()
            .filter(|one| one.headers().contains_key("ratelimit-limit") && one.status() == 200);
        assert_eq!(told.count(), stated);
    }
    let app = app(|app| app.layer(layer.clone().shadow()));
    assert_eq!(ask(&app, Request::new(Body::empty())).await.status(), 200);
    let counts = layer.handle().counts();
    assert_eq!((counts.rejected, counts.shadow_rejected), (0, 1));
}

/// Shows promise 184.
#[tokio::test]
async fn costs_take_several_permits_and_too_high_ones_are_refused_for_good() {
    let layer = ConcurrencyLimitLayer::new(Global, 3)
        .cost(|cost: &u64| *cost)
        .queue(1)
        .release_at_response()
        .respond(AsError);
    let service = layer.layer(service_fn(async |_: u64| Ok::<_, Boxed>(())));
    for cost in [0, 1, 3] {
        service.clone().oneshot(cost).await.unwrap();
    }
    let error = service.clone().oneshot(4).await.unwrap_err();
    let limited = error.downcast_ref::<RateLimited>().unwrap();
    assert!(limited.retry_after().is_none());
    assert_eq!(
        limited.to_string(),
        "the request costs more than may ever be in flight"
    );
    // Of a cost of 0 there may be any number, even while no permit is free.
    let never = layer.layer(service_fn(|_: u64| {
        std::future::pending::<Result<(), Boxed>>()
    }));
    let mut free = tokio_test::task::spawn(never.clone().oneshot(0));
    assert!(free.poll().is_pending());
    assert_eq!(layer.handle().keys(), 0);
    let mut all = tokio_test::task::spawn(never.clone().oneshot(3));
    assert!(all.poll().is_pending());
    service.oneshot(0).await.unwrap();
    assert_eq!(layer.handle().in_flight(&()), 3);
}

/// Shows promise 184.
#[tokio::test]
async fn a_cost_above_an_adaptive_limit_passes_alone() {
    let layer = ConcurrencyLimitLayer::adaptive(Gradient2::new().start_at(1))
        .cost(|cost: &u64| *cost)
        .release_at_response()
        .respond(AsError);
    let service = layer.layer(service_fn(async |_: u64| Ok::<_, Boxed>(())));
    for cost in [2, 20] {
        service.clone().oneshot(cost).await.unwrap();
    }
    let never = layer.layer(service_fn(|_: u64| {
        std::future::pending::<Result<(), Boxed>>()
    }));
    let mut one = tokio_test::task::spawn(never.oneshot(1));
    assert!(one.poll().is_pending());
    let error = service.clone().oneshot(20).await.unwrap_err();
    let limited = error.downcast_ref::<RateLimited>().unwrap();
    assert!(limited.retry_after().is_some());
    drop(one);
    // In line it waits until it is alone.
    let layer = layer.queue(1);
    let never = layer.layer(service_fn(|_: u64| {
        std::future::pending::<Result<(), Boxed>>()
    }));
    let mut one = tokio_test::task::spawn(never.oneshot(1));
    assert!(one.poll().is_pending());
    let service = layer.layer(service_fn(async |_: u64| Ok::<_, Boxed>(())));
    let mut waits = tokio_test::task::spawn(service.oneshot(20));
    assert!(waits.poll().is_pending());
    drop(one);
    assert!(waits.is_woken() && waits.poll().is_ready());
}
