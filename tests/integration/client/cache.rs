//! A shared cache in front of the application.

use std::collections::HashMap;

use axum::{
    Router,
    body::{Body, Bytes, to_bytes},
    extract::Request,
    response::Response,
    routing::get,
};
use http::StatusCode;
use tower_throttle::{
    FixedWindow, HeaderKey, ProblemJson, Quota, RateLimitLayer, RateLimited,
    concurrency::ConcurrencyLimitLayer, respond::Grpc,
};

use crate::client::support::{ask, policy};

/// Stores what RFC 9111 allows a shared cache to store without any header, for ever.
#[derive(Default)]
struct Cache(HashMap<String, (StatusCode, Bytes)>);

/// Statuses that may be stored without a header that says so (RFC 9110, 15.1).
const STORABLE: [u16; 12] = [200, 203, 204, 206, 300, 301, 308, 404, 405, 410, 414, 501];

impl Cache {
    async fn get(&mut self, app: &Router, request: Request) -> (StatusCode, Bytes) {
        let path = request.uri().path().to_owned();
        if let Some(stored) = self.0.get(&path) {
            return stored.clone();
        }
        let may_be_stored = request.method() == http::Method::GET;
        let (parts, body) = ask(app, request).await.into_parts();
        let response = (parts.status, to_bytes(body, 1_000).await.unwrap());
        let forbidden = parts
            .headers
            .get("cache-control")
            .is_some_and(|value| value == "no-store");
        if may_be_stored && STORABLE.contains(&parts.status.as_u16()) && !forbidden {
            self.0.insert(path, response.clone());
        }
        response
    }
}

fn request(client: &str, kind: &str) -> Request {
    let request = Request::get("/app.js").header("x-client", client);
    let request = request
        .header("content-type", kind)
        .header("te", "trailers");
    request.body(Body::empty()).unwrap()
}

fn is_attacker(request: &Request) -> bool {
    request.headers()["x-client"] == "attacker"
}

/// One application per way to deny a request.
fn apps() -> Vec<(&'static str, Router)> {
    let limit = || {
        RateLimitLayer::new(
            HeaderKey::new("x-client"),
            FixedWindow::new(Quota::per_day(1)),
        )
    };
    let closure = |_: &Request, denied: &RateLimited| Response::new(Body::from(denied.to_string()));
    let rejected = |request: &Request| {
        if is_attacker(request) {
            Err(StatusCode::NOT_FOUND)
        } else {
            Ok(())
        }
    };
    let app = Router::new().route("/app.js", get(async || "the script"));
    let limited =
        "[[limit]]\nname = \"all\"\nlimit = \"fixed_window 1/d\"\nkey = \"header:x-client\"";
    let costly = |request: &Request| if is_attacker(request) { 2_u64 } else { 1 };
    vec![
        ("the default", app.clone().layer(limit())),
        (
            "ProblemJson",
            app.clone().layer(limit().respond(ProblemJson)),
        ),
        ("Grpc", app.clone().layer(limit().respond(Grpc))),
        ("a closure", app.clone().layer(limit().respond(closure))),
        ("block", app.clone().layer(limit().block(is_attacker))),
        (
            "a rejection",
            app.clone().layer(RateLimitLayer::new(
                rejected,
                FixedWindow::new(Quota::per_day(1_000)),
            )),
        ),
        (
            "in flight",
            app.clone()
                .layer(ConcurrencyLimitLayer::new(HeaderKey::new("x-client"), 1).cost(costly)),
        ),
        ("a file", app.layer(policy(limited))),
    ]
}

/// Whether a denial of the attacker is what another client gets from the cache.
async fn is_poisoned(app: &Router, kind: &str) -> bool {
    ask(app, request("attacker", kind)).await;
    let mut cache = Cache::default();
    let (_, denial) = cache.get(app, request("attacker", kind)).await;
    assert_ne!(denial, "the script");
    cache.get(app, request("other", "text/plain")).await != (StatusCode::OK, "the script".into())
}

const KINDS: [&str; 3] = ["text/plain", "application/grpc", "application/grpc-web"];

/// Shows promise 73.
#[tokio::test]
async fn no_denial_is_stored_by_a_shared_cache() {
    for kind in KINDS {
        for (name, app) in apps() {
            assert!(!is_poisoned(&app, kind).await, "{name}, {kind}");
        }
    }
}
