//! A limit for each route of an axum application: `cargo run --example axum_routes --features axum`
//!
//! It starts the server on a free port of this machine, asks it a few times and prints the answers.

use std::{error::Error, net::SocketAddr};

use axum::{
    Router,
    extract::Request,
    routing::{get, post},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tower_throttle::{
    ClientIp, Global, Headers, Quota, RateLimitLayer, SlidingLog, TokenBucket, respond::Preflight,
};

async fn search() -> &'static str {
    "found"
}

async fn export() -> &'static str {
    "exported"
}

fn app() -> Router {
    // 10 a second for each client, bursts of 3; clients are told.
    let searches = RateLimitLayer::new(
        ClientIp::peer(),
        TokenBucket::new(Quota::per_second(10).burst(3)),
    )
    .name("search")
    .headers(Headers::standard())
    .skip(Preflight);
    // Never more than one in any minute for each user; only users may export.
    let exports = RateLimitLayer::new(
        |req: &Request| user(req).ok_or(http::StatusCode::UNAUTHORIZED),
        SlidingLog::new(Quota::per_minute(1)),
    );
    // 100 a second for everything together.
    let all = RateLimitLayer::new(Global, TokenBucket::new(Quota::per_second(100)));
    Router::new()
        .route("/search", get(search).layer(searches))
        .route("/export", post(export).layer(exports))
        .layer(all)
}

fn user(req: &Request) -> Option<String> {
    Some(req.headers().get("user")?.to_str().ok()?.to_owned())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    // `ClientIp::peer` needs the address of the connection, which axum tells if it is asked to.
    let make = app().into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async { axum::serve(listener, make).await });

    let mut told = Vec::new();
    for _ in 0..4 {
        told.push(ask(address, "GET /search", "").await?);
    }
    for user in ["", "user: ann\r\n", "user: ann\r\n", "user: bob\r\n"] {
        told.push(ask(address, "POST /export", user).await?);
    }
    let expected = [200, 200, 200, 429, 401, 200, 429, 200];
    assert_eq!(told, expected);
    Ok(())
}

/// The status of the answer, which is printed with what it says about limits.
async fn ask(address: SocketAddr, what: &str, headers: &str) -> Result<u16, Box<dyn Error>> {
    let mut stream = TcpStream::connect(address).await?;
    let head = format!("{what} HTTP/1.1\r\nhost: local\r\nconnection: close\r\n{headers}\r\n");
    stream.write_all(head.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let mut lines = answer.lines();
    let status = lines.next().unwrap_or_default();
    println!("{what:<13}{:<12}{status}", headers.trim());
    for line in lines.filter(|line| line.starts_with("ratelimit") || line.starts_with("retry")) {
        println!("{:25}{line}", "");
    }
    Ok(status.split(' ').nth(1).unwrap_or_default().parse()?)
}
