//! A client that keeps to the rate of the server it calls: `cargo run --example client_pacing`
//!
//! The same layer, around a client: its calls wait for their turn, 20 ms apart, so that none is
//! refused. It calls a server on this machine and prints when each call was answered.

use std::{convert::Infallible, error::Error, time::Duration};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Empty;
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioIo},
    service::TowerToHyperService,
};
use tokio::{net::TcpListener, task::JoinSet, time::Instant};
use tower::{BoxError, Service, ServiceBuilder, ServiceExt};
use tower_throttle::{AsError, LeakyBucket, Quota, RateLimitLayer};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(serve(listener));

    // 50 a second to each host, evenly; at most 8 calls wait, and none longer than 5 s.
    let pace = LeakyBucket::new(Quota::per_second(50))
        .queue(8)
        .max_wait(Duration::from_secs(5));
    let host = |req: &Request<Empty<Bytes>>| req.uri().authority().cloned();
    let client = Client::builder(TokioExecutor::new()).build_http();
    let client = ServiceBuilder::new()
        // What is too much is an error of the call.
        .layer(
            RateLimitLayer::new(host, pace)
                .name("upstream")
                .respond(AsError),
        )
        .map_err(BoxError::from)
        .service(client);

    let start = Instant::now();
    let mut calls = JoinSet::new();
    for _ in 0..12 {
        let mut client = client.clone();
        let request = Request::get(format!("http://{address}/")).body(Empty::new())?;
        calls.spawn(async move {
            let answer = client.ready().await?.call(request).await;
            answer.map(|response| (start.elapsed(), response.status()))
        });
    }
    let mut times = Vec::new();
    while let Some(call) = calls.join_next().await {
        match call? {
            Ok((at, status)) => {
                println!("{:>4} ms  {status}", at.as_millis());
                times.push(at);
            }
            Err(error) => println!("not sent: {error}"),
        }
    }
    assert_eq!(times.len(), 9, "one at once, 8 in turn");
    assert!(times[8] >= Duration::from_millis(150), "20 ms apart");
    Ok(())
}

async fn serve(listener: TcpListener) {
    let hello = tower::service_fn(async |_: Request<hyper::body::Incoming>| {
        Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
    });
    while let Ok((stream, _)) = listener.accept().await {
        let service = TowerToHyperService::new(hello);
        let connection = hyper::server::conn::http1::Builder::new();
        tokio::spawn(connection.serve_connection(TokioIo::new(stream), service));
    }
}
