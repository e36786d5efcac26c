//! A client that stays within its server's rate: `cargo run --example client_pacing`
//!
//! The layer wraps a hyper client. Calls to one host are sent 20 ms apart instead of being refused
//! by the server. The program starts a server on a free port and prints when each call completed.

use std::{error::Error, time::Duration};

use axum::{Router, body::Body, extract::Request, routing::get};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use tokio::{net::TcpListener, task::JoinSet, time::Instant};
use tower::{BoxError, Service, ServiceBuilder, ServiceExt};
use tower_throttle::{AsError, LeakyBucket, Quota, RateLimitLayer};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let server = Router::new().route("/", get(async || "hello"));
    tokio::spawn(async { axum::serve(listener, server).await });

    // 50 per second per host, evenly spaced. At most 8 calls are queued, each for at most 5 s.
    let pace = LeakyBucket::new(Quota::per_second(50))
        .queue(8)
        .max_wait(Duration::from_secs(5));
    let host = |request: &Request| request.uri().authority().cloned();
    let client = ServiceBuilder::new()
        // A refused call returns an error, because no HTTP response exists.
        .layer(RateLimitLayer::new(host, pace).respond(AsError))
        .map_err(BoxError::from)
        .service(Client::builder(TokioExecutor::new()).build_http());

    let start = Instant::now();
    let mut calls = JoinSet::new();
    for _ in 0..12 {
        let mut client = client.clone();
        let request = Request::get(format!("http://{address}/")).body(Body::empty())?;
        calls.spawn(async move {
            let response = client.ready().await?.call(request).await?;
            Ok::<_, BoxError>((start.elapsed(), response.status()))
        });
    }
    let mut completed = Vec::new();
    while let Some(call) = calls.join_next().await {
        match call? {
            Ok((at, status)) => {
                println!("{:>4} ms  {status}", at.as_millis());
                completed.push(at);
            }
            Err(error) => println!("not sent: {error}"),
        }
    }
    assert_eq!(completed.len(), 9, "one at once, 8 queued");
    assert!(completed[8] >= Duration::from_millis(150), "20 ms apart");
    Ok(())
}
