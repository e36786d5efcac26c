use std::{io::Result, net::SocketAddr};

use axum::{Router, routing::get};
use tokio::net::TcpListener;
use tower_throttle::{ClientIp, Quota, RateLimitLayer, TokenBucket};

fn app() -> Router {
    // 10 requests per second per client, in bursts of up to 50.
    let bucket = TokenBucket::new(Quota::per_second(10).burst(50));
    let limit = RateLimitLayer::new(ClientIp::peer(), bucket);
    Router::new().route("/search", get(async || "found").layer(limit))
}

#[tokio::main]
async fn main() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    // Passes on the address of the client, which is the key.
    let service = app().into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).await
}

// ---- The page ends here.

use crate::readme::{
    shown,
    support::{Response, send},
};

/// Shows promises 49, 101.
#[tokio::test]
async fn first_example_denies_the_end_of_a_burst() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = app().into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async { axum::serve(listener, service).await });
    let mut admitted = 0;
    let denied = loop {
        let response = send(address, "GET /search", "").await;
        if response.status != 200 {
            break response;
        }
        admitted += 1;
        assert!(admitted < 1_000, "no request is denied");
    };
    assert!(admitted >= 50, "{admitted}");
    let Response { status, head } = denied;
    assert_eq!(status, 429);
    assert!(shown(0).count() > 3);
    for line in shown(0) {
        assert!(head.contains(&format!("{line}\r\n")), "{line}: {head}");
    }
}
