//! A different limit on each route of an axum app: `cargo run --example axum_routes`
//!
//! The program starts the app on a free port, sends some requests and prints the responses.

use std::{error::Error, net::SocketAddr};

use axum::{
    Router,
    extract::Request,
    http::StatusCode,
    routing::{get, post},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tower_throttle::{
    ClientIp, Global, Headers, Quota, RateLimitLayer, SlidingLog, TokenBucket, respond::Preflight,
};

fn app() -> Router {
    // 10 per second per client, bursts of 3. The responses carry `RateLimit` headers.
    let search = TokenBucket::new(Quota::per_second(10).burst(3));
    let search = RateLimitLayer::new(ClientIp::peer(), search)
        .name("search")
        .headers(Headers::Draft11)
        .skip(Preflight);
    // At most one in any minute per user. Requests without a user are rejected with 401.
    let export = RateLimitLayer::new(
        |request: &Request| user(request).ok_or(StatusCode::UNAUTHORIZED),
        SlidingLog::new(Quota::per_minute(1)),
    )
    .name("export");
    // 100 per second for all routes together.
    let all = RateLimitLayer::new(Global, TokenBucket::new(Quota::per_second(100)));
    Router::new()
        .route("/search", get(async || "found").layer(search))
        .route("/export", post(async || "exported").layer(export))
        .layer(all)
}

fn user(request: &Request) -> Option<String> {
    Some(request.headers().get("user")?.to_str().ok()?.to_owned())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    // `ClientIp::peer` needs the peer address, which axum passes on only if asked to.
    let service = app().into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async { axum::serve(listener, service).await });

    let mut statuses = Vec::new();
    for _ in 0..4 {
        statuses.push(send(address, "GET /search", "").await?);
    }
    for user in ["", "user: ann\r\n", "user: ann\r\n", "user: bob\r\n"] {
        statuses.push(send(address, "POST /export", user).await?);
    }
    assert_eq!(statuses, [200, 200, 200, 429, 401, 200, 429, 200]);
    Ok(())
}

/// Sends one request, prints the status and the rate limit headers, and returns the status.
async fn send(address: SocketAddr, route: &str, headers: &str) -> Result<u16, Box<dyn Error>> {
    let mut stream = TcpStream::connect(address).await?;
    let head = format!("{route} HTTP/1.1\r\nhost: local\r\nconnection: close\r\n{headers}\r\n");
    stream.write_all(head.as_bytes()).await?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await?;
    let mut lines = response.lines();
    let status = lines.next().unwrap_or_default();
    println!("{route:<13}{:<12}{status}", headers.trim());
    for line in lines.filter(|line| line.starts_with("ratelimit") || line.starts_with("retry")) {
        println!("{:25}{line}", "");
    }
    Ok(status.split(' ').nth(1).unwrap_or_default().parse()?)
}
