use std::time::Duration;

use axum::{
    Router,
    extract::Request,
    middleware::{Next, from_fn},
    response::Response,
    routing::get,
};
use http::{
    HeaderValue, StatusCode,
    header::{
        ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, CONTENT_ENCODING, ORIGIN,
    },
};
use tower_http::{
    compression::CompressionLayer,
    cors::{Any, CorsLayer},
    timeout::TimeoutLayer,
};
use tower_throttle::{
    Global, LeakyBucket, Local, Quota, RateLimitLayer, TokenBucket,
    key::{FromExtension, Key, Missing},
    respond::Preflight,
};

use crate::pages::support::{limit, request, send};

fn from_browser(method: &str) -> Request {
    let mut request = request(method, "/");
    let headers = request.headers_mut();
    headers.insert(ORIGIN, HeaderValue::from_static("https://shop.example"));
    let name = "access-control-request-method";
    headers.insert(name, HeaderValue::from_static("GET"));
    request
}

fn cors() -> CorsLayer {
    CorsLayer::new()
        .allow_origin(Any)
        .expose_headers([http::header::RETRY_AFTER])
}

fn hello() -> Router {
    Router::new().route("/", get(async || "hello"))
}

#[tokio::test]
async fn with_cors_outside_a_429_has_cors_headers_and_preflights_are_not_counted() {
    let limit = limit(1);
    let handle = limit.handle();
    let app = hello().layer(limit).layer(cors());
    for _ in 0..5 {
        let preflight = send(&app, from_browser("OPTIONS")).await;
        assert_eq!(preflight.status(), StatusCode::OK);
    }
    assert_eq!(handle.counts().admitted, 0);
    assert_eq!(send(&app, from_browser("GET")).await.status(), 200);
    let denied = send(&app, from_browser("GET")).await;
    assert_eq!(denied.status(), 429);
    assert_eq!(denied.headers()[ACCESS_CONTROL_ALLOW_ORIGIN], "*");
    assert_eq!(
        denied.headers()[ACCESS_CONTROL_EXPOSE_HEADERS],
        "retry-after"
    );
}

#[tokio::test]
async fn with_cors_inside_preflights_are_counted_and_a_429_has_no_cors_headers() {
    let limit = limit(2);
    let handle = limit.handle();
    let app = hello().layer(cors()).layer(limit);
    let preflight = send(&app, from_browser("OPTIONS")).await;
    assert_eq!(preflight.status(), StatusCode::OK);
    assert_eq!(handle.counts().admitted, 1);
    assert_eq!(send(&app, from_browser("GET")).await.status(), 200);
    let denied = send(&app, from_browser("GET")).await;
    assert_eq!(denied.status(), 429);
    assert!(!denied.headers().contains_key(ACCESS_CONTROL_ALLOW_ORIGIN));
}

#[tokio::test]
async fn with_cors_inside_skipped_preflights_are_not_counted() {
    let limit = limit(1).skip(Preflight);
    let app = hello().layer(cors()).layer(limit);
    for _ in 0..5 {
        let preflight = send(&app, from_browser("OPTIONS")).await;
        assert_eq!(preflight.status(), StatusCode::OK);
    }
    assert_eq!(send(&app, from_browser("GET")).await.status(), 200);
    let denied = send(&app, from_browser("GET")).await;
    assert_eq!(denied.status(), 429);
    assert!(!denied.headers().contains_key(ACCESS_CONTROL_ALLOW_ORIGIN));
}

/// The table of the page.
#[tokio::test]
async fn layer_counts_unknown_paths_and_route_layer_does_not() {
    // Method, path, status, whether `layer` counts it, whether `route_layer` does.
    let requests = [
        ("GET", "/", 200, 1, 1),
        ("GET", "/unknown", 404, 1, 0),
        ("POST", "/", 405, 1, 1),
    ];
    for (method, path, status, by_layer, by_route_layer) in requests {
        let (all, routes) = (limit(10), limit(10));
        let (all_handle, routes_handle) = (all.handle(), routes.handle());
        let apps = [hello().layer(all), hello().route_layer(routes)];
        for app in apps {
            let response = send(&app, request(method, path)).await;
            assert_eq!(response.status(), status, "{method} {path}");
        }
        let counted = (
            all_handle.counts().admitted,
            routes_handle.counts().admitted,
        );
        assert_eq!(counted, (by_layer, by_route_layer), "{method} {path}");
    }
}

#[tokio::test]
async fn a_fallback_and_routes_that_are_added_after_a_layer_are_not_limited() {
    let layers: [fn(Router) -> Router; 2] =
        [|app| app.layer(limit(1)), |app| app.route_layer(limit(1))];
    for add in layers {
        let app = add(hello())
            .route("/later", get(async || "later"))
            .fallback(async || "fallback");
        for _ in 0..3 {
            assert_eq!(send(&app, request("GET", "/later")).await.status(), 200);
            assert_eq!(send(&app, request("GET", "/any")).await.status(), 200);
        }
        assert_eq!(send(&app, request("GET", "/")).await.status(), 200);
        assert_eq!(send(&app, request("GET", "/")).await.status(), 429);
    }
}

#[tokio::test]
async fn compression_passes_a_429_on_from_either_side() {
    for outside in [true, false] {
        let compression = CompressionLayer::new();
        let app = if outside {
            hello().layer(limit(1)).layer(compression)
        } else {
            hello().layer(compression).layer(limit(1))
        };
        let statuses = [200, 429];
        for status in statuses {
            let mut request = request("GET", "/");
            let headers = request.headers_mut();
            headers.insert("accept-encoding", HeaderValue::from_static("gzip"));
            let response = send(&app, request).await;
            assert_eq!(response.status(), status);
            assert!(status == 200 || !response.headers().contains_key(CONTENT_ENCODING));
            assert_eq!(
                response.headers().contains_key("retry-after"),
                status == 429
            );
        }
    }
}

fn queue() -> RateLimitLayer<Global, Local<LeakyBucket>> {
    RateLimitLayer::new(Global, LeakyBucket::new(Quota::per_second(1).burst(1))).queue(10)
}

fn timeout() -> TimeoutLayer {
    TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, Duration::from_millis(1_500))
}

#[tokio::test(start_paused = true)]
async fn a_timeout_outside_includes_the_queue_and_gives_the_cost_back() {
    let limit = queue();
    let handle = limit.handle();
    let app = hello().layer(limit).layer(timeout());
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let app = app.clone();
        calls.spawn(async move { send(&app, request("GET", "/")).await.status().as_u16() });
    }
    let mut statuses = calls.join_all().await;
    statuses.sort_unstable();
    // The turns of the last two would have come after 2 s and 3 s.
    assert_eq!(statuses, [200, 200, 408, 408]);
    assert_eq!(handle.waiting(), 0);
    // Their turns are free again: the next one passes after 2 s, not after 4 s.
    let start = tokio::time::Instant::now();
    assert_eq!(send(&app, request("GET", "/")).await.status(), 200);
    assert_eq!(start.elapsed(), Duration::from_millis(500));
}

#[tokio::test(start_paused = true)]
async fn a_timeout_inside_limits_the_handler_alone() {
    let app = hello().layer(timeout()).layer(queue());
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let app = app.clone();
        calls.spawn(async move { send(&app, request("GET", "/")).await.status().as_u16() });
    }
    assert_eq!(calls.join_all().await, [200; 4]);
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct User(u32);

impl Key for User {}

async fn authenticate(mut request: Request, next: Next) -> Result<Response, StatusCode> {
    if !request.headers().contains_key("x-user") {
        return Err(StatusCode::UNAUTHORIZED);
    }
    request.extensions_mut().insert(User(7));
    Ok(next.run(request).await)
}

#[tokio::test]
async fn a_limit_per_user_inside_does_not_count_failed_authentication() {
    let user = FromExtension::<User>::new().if_missing(Missing::Reject(StatusCode::UNAUTHORIZED));
    let per_user = RateLimitLayer::new(user, TokenBucket::new(Quota::per_hour(1)));
    let handle = per_user.handle();
    let app = hello()
        .layer(per_user)
        .layer(from_fn(authenticate))
        .layer(limit(3));
    assert_eq!(send(&app, request("GET", "/")).await.status(), 401);
    assert_eq!(handle.counts().admitted, 0);
    let known = || {
        let mut request = request("GET", "/");
        let headers = request.headers_mut();
        headers.insert("x-user", HeaderValue::from_static("ann"));
        request
    };
    assert_eq!(send(&app, known()).await.status(), 200);
    assert_eq!(send(&app, known()).await.status(), 429);
    assert_eq!(handle.counts().denied, 1);
    // The outer limit has counted all three, also the one that the inner one denied.
    let denied = send(&app, request("GET", "/")).await;
    assert_eq!(denied.status(), 429);
}
