use std::time::Duration;

use axum::{Router, routing::get};
use tower_throttle::{ClientIp, Lockout, Quota, RateLimitLayer};

/// Serve it with `into_make_service_with_connect_info::<SocketAddr>()`, which passes on the
/// address of the client, and with the feature `axum` of tower-throttle.
pub fn app() -> Router {
    let limit = Lockout::new(Quota::per(5, Duration::from_secs(900)))
        .block(Duration::from_secs(300))
        .max_block(Duration::from_secs(3600))
        .forget(Duration::from_secs(86_400))
        .clear_on_success();
    let layer = RateLimitLayer::new(ClientIp::peer(), limit);
    Router::new().route("/", get(async || "hello").layer(layer))
}
