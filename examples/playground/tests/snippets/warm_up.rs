use std::time::Duration;

use axum::{Router, routing::get};
use tower_throttle::{ClientIp, Quota, RateLimitLayer, WarmUp};

/// Serve it with `into_make_service_with_connect_info::<SocketAddr>()`, which passes on the
/// address of the client, and with the feature `axum` of tower-throttle.
pub fn app() -> Router {
    let limit = WarmUp::new(Quota::per_second(10), Duration::from_secs(90))
        .cold_factor(5);
    let layer = RateLimitLayer::new(ClientIp::peer(), limit)
        .queue(7);
    Router::new().route("/", get(async || "hello").layer(layer))
}
