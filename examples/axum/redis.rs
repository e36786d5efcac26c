//! One limit shared by two servers: `cargo run --example redis --features redis -- redis://127.0.0.1:6379`
//!
//! It needs a Redis server: `docker run --rm -p 6379:6379 redis`, or `redis-server --save ''`.
//! The program starts two apps, as two machines of a fleet would, sends requests to them in turn and
//! prints the responses: what one app admits counts in the other.

use std::error::Error;

use axum::{Router, routing::get};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tower_throttle::{HeaderKey, Quota, RateLimitLayer, SlidingWindow, store::redis::Redis};

fn app(redis: &Redis) -> Router {
    let limit = redis.limiter("pay", SlidingWindow::new(Quota::per_minute(5)));
    let limit = RateLimitLayer::new(HeaderKey::new("x-tenant"), limit)
        // The default is to admit requests while Redis is down.
        .deny_on_store_error();
    Router::new().route("/pay", get(async || "paid").layer(limit))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1);
    let url = url.as_deref().unwrap_or("redis://127.0.0.1:6379");
    let mut servers = Vec::new();
    for _ in 0..2 {
        let redis = Redis::open(url)?;
        if let Some(warning) = redis.check().await? {
            eprintln!("warning: {warning}");
        }
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        servers.push(listener.local_addr()?.to_string());
        let app = app(&redis);
        tokio::spawn(async { axum::serve(listener, app).await });
    }

    // A tenant of its own for each run, so that runs do not count together.
    let tenant = format!("tenant-{}", std::process::id());
    let mut admitted = 0;
    for turn in 0..8 {
        let server = &servers[turn % 2];
        let status = send(server, &tenant).await?;
        println!("{server}  {status}");
        admitted += usize::from(status.contains("200"));
    }
    assert_eq!(admitted, 5);
    Ok(())
}

/// Sends one request and returns the status line.
async fn send(server: &str, tenant: &str) -> Result<String, Box<dyn Error>> {
    let mut stream = TcpStream::connect(server).await?;
    let head = format!(
        "GET /pay HTTP/1.1\r\nhost: local\r\nconnection: close\r\nx-tenant: {tenant}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await?;
    Ok(response.lines().next().unwrap_or_default().to_owned())
}
