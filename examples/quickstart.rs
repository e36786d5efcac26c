//! Three ways to limit, in an axum app on loopback, with a small load against it.
//!
//!     cargo run --example quickstart
//!
//! Each route has another policy. The load sends three bursts of requests to each, a second apart,
//! and the table says what became of them.

use std::{net::SocketAddr, time::Duration};

use axum::{Router, routing::get};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep};
use tower_throttle::{Global, LeakyBucket, Quota, RateLimitLayer, SlidingLog, TokenBucket};

const BURSTS: usize = 3;
const REQUESTS: usize = 20;
const ROUTES: [(&str, &str); 3] = [
    ("/search", "5 a second, bursts of 10"),
    ("/login", "never more than 15 in any minute"),
    ("/export", "one every 20 ms, 10 may wait"),
];

fn app() -> Router {
    let search = TokenBucket::new(Quota::per_second(5).burst(10));
    let login = SlidingLog::new(Quota::per_minute(15));
    let export = LeakyBucket::new(Quota::per_second(50)).queue(10);

    let hello = || async { "hello" };
    Router::new()
        .route(
            "/search",
            get(hello).layer(RateLimitLayer::new(Global, search)),
        )
        .route(
            "/login",
            get(hello).layer(RateLimitLayer::new(Global, login)),
        )
        .route(
            "/export",
            get(hello).layer(RateLimitLayer::new(Global, export)),
        )
}

/// What became of the requests to one route.
#[derive(Default)]
struct Tally {
    admitted: usize,
    delayed: usize,
    denied: usize,
    longest: Duration,
    retry_after: Option<String>,
}

/// Sends one request and waits for the whole answer.
async fn send(address: SocketAddr, path: &str) -> std::io::Result<(Duration, String)> {
    let start = Instant::now();
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok((start.elapsed(), answer))
}

async fn load(address: SocketAddr, path: &'static str) -> std::io::Result<Tally> {
    let mut tally = Tally::default();
    for burst in 0..BURSTS {
        if burst > 0 {
            sleep(Duration::from_secs(1)).await;
        }
        let requests: Vec<_> = (0..REQUESTS)
            .map(|_| tokio::spawn(send(address, path)))
            .collect();
        for request in requests {
            let (took, answer) = request.await.expect("the load does not panic")?;
            if answer.starts_with("HTTP/1.1 429") {
                tally.denied += 1;
                tally.retry_after = answer
                    .lines()
                    .find_map(|line| line.strip_prefix("retry-after: "))
                    .map(str::to_owned);
            } else if took >= Duration::from_millis(15) {
                tally.delayed += 1;
                tally.longest = tally.longest.max(took);
            } else {
                tally.admitted += 1;
            }
        }
    }
    Ok(tally)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    println!("listening on http://{address}; {BURSTS} bursts of {REQUESTS} requests a route\n");
    tokio::spawn(async move { axum::serve(listener, app()).await });

    println!(
        "{:<9} {:<34} {:>8} {:>8} {:>7} {:>13} {:>11}",
        "route", "policy", "admitted", "delayed", "denied", "longest wait", "retry-after"
    );
    for (path, policy) in ROUTES {
        let tally = load(address, path).await?;
        println!(
            "{path:<9} {policy:<34} {:>8} {:>8} {:>7} {:>10} ms {:>9} s",
            tally.admitted,
            tally.delayed,
            tally.denied,
            tally.longest.as_millis(),
            tally.retry_after.as_deref().unwrap_or("-"),
        );
        let sum = tally.admitted + tally.delayed + tally.denied;
        assert_eq!(sum, BURSTS * REQUESTS, "every request is accounted for");
    }
    Ok(())
}
