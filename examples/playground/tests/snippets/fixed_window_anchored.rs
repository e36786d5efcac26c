use std::time::Duration;

use axum::{Router, routing::get};
use tower_throttle::{ClientIp, FixedWindow, Quota, RateLimitLayer};

/// Serve it with `into_make_service_with_connect_info::<SocketAddr>()`, which passes on the
/// address of the client, and with the feature `axum` of tower-throttle.
pub fn app() -> Router {
    let limit = FixedWindow::new(Quota::per(5, Duration::from_secs(10)))
        .anchored();
    let layer = RateLimitLayer::new(ClientIp::peer(), limit);
    Router::new().route("/", get(async || "hello").layer(layer))
}
