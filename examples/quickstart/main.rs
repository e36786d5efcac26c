//! Three rate limits in an axum app: `cargo run -p quickstart`
//!
//! The program starts the app on a free port, sends three bursts of requests to each route, one
//! second apart, and prints how many requests were admitted, delayed and denied.

use std::{io::Result, net::SocketAddr, time::Duration};

use axum::{Router, routing::get};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::{Instant, sleep},
};
use tower_throttle::{ClientIp, LeakyBucket, Quota, RateLimitLayer, SlidingLog, TokenBucket};

const BURSTS: usize = 3;
const REQUESTS: usize = 20;
const ROUTES: [(&str, &str); 3] = [
    ("/search", "5 per second, bursts of 10"),
    ("/login", "at most 15 in any minute"),
    ("/export", "one every 20 ms, 10 queued"),
];

fn app() -> Router {
    let search = TokenBucket::new(Quota::per_second(5).burst(10));
    let login = SlidingLog::new(Quota::per_minute(15));
    let export = LeakyBucket::new(Quota::per_second(50).burst(1));

    // Each client has its own limit: the key is the address of the connection.
    let search = RateLimitLayer::new(ClientIp::peer(), search);
    let login = RateLimitLayer::new(ClientIp::peer(), login);
    let export = RateLimitLayer::new(ClientIp::peer(), export).queue(10);
    Router::new()
        .route("/search", get(async || "found").layer(search))
        .route("/login", get(async || "welcome").layer(login))
        .route("/export", get(async || "exported").layer(export))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    println!("http://{address}: {BURSTS} bursts of {REQUESTS} requests per route\n");
    // `ClientIp::peer` needs the peer address, which axum passes on only if asked to.
    let service = app().into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async { axum::serve(listener, service).await });

    println!(
        "{:<9} {:<27} {:>8} {:>8} {:>7} {:>13} {:>12}",
        "route", "limit", "admitted", "delayed", "denied", "longest delay", "retry-after"
    );
    for (path, limit) in ROUTES {
        let tally = load(address, path).await?;
        println!(
            "{path:<9} {limit:<27} {:>8} {:>8} {:>7} {:>10} ms {:>10} s",
            tally.admitted,
            tally.delayed,
            tally.denied,
            tally.longest_delay.as_millis(),
            tally.retry_after.as_deref().unwrap_or("-"),
        );
        let sum = tally.admitted + tally.delayed + tally.denied;
        assert_eq!(sum, BURSTS * REQUESTS);
        assert!(tally.denied > 0, "{path} has no limit");
    }
    Ok(())
}

/// What happened to the requests to one route.
#[derive(Default)]
struct Tally {
    admitted: usize,
    delayed: usize,
    denied: usize,
    longest_delay: Duration,
    retry_after: Option<String>,
}

async fn load(address: SocketAddr, path: &'static str) -> Result<Tally> {
    let mut tally = Tally::default();
    for burst in 0..BURSTS {
        if burst > 0 {
            sleep(Duration::from_secs(1)).await;
        }
        let requests: Vec<_> = (0..REQUESTS)
            .map(|_| tokio::spawn(send(address, path)))
            .collect();
        for request in requests {
            let (took, response) = request.await.expect("the request does not panic")?;
            if response.starts_with("HTTP/1.1 429") {
                tally.denied += 1;
                tally.retry_after = response
                    .lines()
                    .find_map(|line| line.strip_prefix("retry-after: "))
                    .map(str::to_owned);
            } else if took >= Duration::from_millis(15) {
                tally.delayed += 1;
                tally.longest_delay = tally.longest_delay.max(took);
            } else {
                tally.admitted += 1;
            }
        }
    }
    Ok(tally)
}

/// Sends one request; returns how long it took, and the response.
async fn send(address: SocketAddr, path: &str) -> Result<(Duration, String)> {
    let start = Instant::now();
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: local\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await?;
    Ok((start.elapsed(), response))
}
