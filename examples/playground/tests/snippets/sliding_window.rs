use std::time::Duration;

use axum::{Router, routing::get};
use tower_throttle::{ClientIp, Quota, RateLimitLayer, SlidingWindow};

/// Serve it with `into_make_service_with_connect_info::<SocketAddr>()`, which passes on the
/// address of the client, and with the feature `axum` of tower-throttle.
pub fn app() -> Router {
    let limit = SlidingWindow::new(Quota::per_hour(1000))
        .offset(Duration::from_secs(900));
    let layer = RateLimitLayer::new(ClientIp::peer(), limit);
    Router::new().route("/", get(async || "hello").layer(layer))
}
