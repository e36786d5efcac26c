use axum::{Router, routing::get};
use http::HeaderValue;
use tower_throttle::{ClientIp, Quota, RateLimitLayer, TokenBucket, key::PeerAddr};

use crate::pages::support::{request, send};

fn app(clients: ClientIp) -> Router {
    let limit = RateLimitLayer::new(clients, TokenBucket::new(Quota::per_hour(1)));
    Router::new().route("/", get(async || "hello")).layer(limit)
}

/// A connection over a Unix socket has no address.
#[tokio::test]
async fn behind_a_unix_socket_hops_find_the_client_and_peer_does_not() {
    for (clients, expected) in [
        (ClientIp::peer(), [500, 500, 500]),
        (ClientIp::x_forwarded_for().hops(1), [200, 429, 200]),
    ] {
        let app = app(clients);
        let mut statuses = Vec::new();
        for address in ["192.0.2.1", "192.0.2.1", "192.0.2.2"] {
            let mut request = request("GET", "/");
            let address = HeaderValue::from_static(address);
            request.headers_mut().insert("x-forwarded-for", address);
            statuses.push(send(&app, request).await.status().as_u16());
        }
        assert_eq!(statuses, expected);
    }
}

#[tokio::test]
async fn behind_a_proxy_all_clients_share_the_limit_of_the_peer_address() {
    for (clients, expected) in [
        (ClientIp::peer(), [200, 429]),
        (
            ClientIp::x_forwarded_for().trusting(["10.0.0.0/8"]),
            [200, 200],
        ),
    ] {
        let app = app(clients);
        let mut statuses = Vec::new();
        for address in ["192.0.2.1", "192.0.2.2"] {
            let mut request = request("GET", "/");
            let address = HeaderValue::from_static(address);
            request.headers_mut().insert("x-forwarded-for", address);
            let proxy = PeerAddr(([10, 0, 0, 1], 4711).into());
            request.extensions_mut().insert(proxy);
            statuses.push(send(&app, request).await.status().as_u16());
        }
        assert_eq!(statuses, expected);
    }
}
