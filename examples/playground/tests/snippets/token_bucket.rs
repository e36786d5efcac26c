use std::time::Duration;

use axum::{Router, routing::get};
use tower_throttle::{ClientIp, Quota, RateLimitLayer, TokenBucket};

/// Serve it with `into_make_service_with_connect_info::<SocketAddr>()`, which passes on the
/// address of the client, and with the feature `axum` of tower-throttle.
pub fn app() -> Router {
    let limit = TokenBucket::new(Quota::per_second(10).burst(50)).initial(5);
    let layer = RateLimitLayer::new(ClientIp::peer(), limit)
        .queue(20)
        .max_wait(Duration::from_millis(1500));
    Router::new().route("/", get(async || "hello").layer(layer))
}
