//! Two apps, one limit: what one of them admits, the other one counts.
//!
//! Needs a Redis server. Without one:
//!
//! ```text
//! docker run --rm -p 6379:6379 redis      # or: redis-server --save ''
//! cargo run --example redis --features redis -- redis://127.0.0.1:6379
//! ```

use axum::{Router, extract::Path, extract::State, http::StatusCode, routing::get};
use tower_throttle::store::redis::{Redis, RedisLimiter};
use tower_throttle::{Quota, SlidingWindow, Verdict, store::Backend};

type Limit = RedisLimiter<SlidingWindow>;

async fn pay(State(limit): State<Limit>, Path(tenant): Path<String>) -> (StatusCode, String) {
    match limit.decide(tenant.as_str(), 1).await {
        Ok(decision) if decision.verdict == Verdict::Admit => {
            let left = decision.remaining();
            (StatusCode::OK, format!("paid; {left} left"))
        }
        Ok(decision) => {
            let wait = decision.retry_after.unwrap_or_default();
            (
                StatusCode::TOO_MANY_REQUESTS,
                format!("try again in {wait:?}"),
            )
        }
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
    }
}

/// An app as each machine runs it: its own connection, the same policy.
async fn app(url: &str) -> Result<(String, Redis), Box<dyn std::error::Error>> {
    let redis = Redis::open(url)?;
    let limit = redis.limiter("pay", SlidingWindow::new(Quota::per_minute(5)));
    let router = Router::new()
        .route("/pay/{tenant}", get(pay))
        .with_state(limit);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok((address, redis))
}

/// A request without a client: one line out, everything back.
async fn request(address: &str, path: &str) -> std::io::Result<String> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let mut stream = tokio::net::TcpStream::connect(address).await?;
    let text = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(text.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let status = answer.lines().next().unwrap_or_default().to_owned();
    let body = answer.lines().last().unwrap_or_default();
    Ok(format!("{status}: {body}"))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1);
    let url = url.as_deref().unwrap_or("redis://127.0.0.1:6379");
    let (first, redis) = app(url).await?;
    let (second, _) = app(url).await?;
    match redis.check().await {
        Ok(None) => {}
        Ok(Some(warning)) => eprintln!("warning: {warning}"),
        Err(error) => {
            eprintln!("no server at that URL ({error})");
            eprintln!("start one with: docker run --rm -p 6379:6379 redis, or: redis-server");
            return Ok(());
        }
    }
    for turn in 0..8 {
        let address = [&first, &second][turn % 2];
        println!("{address} {}", request(address, "/pay/acme").await?);
    }
    Ok(())
}
