//! The rows of the table at `RateLimitLayer::seats` for a real gRPC server. Time is real, so the
//! limit is one per hour and no queued request is released during a test.

use std::time::Duration;

use ::tonic::{
    Code, Status,
    transport::{Endpoint, Server, server::TcpIncoming},
};
use tokio::{
    task::{AbortHandle, JoinSet},
    time::timeout,
};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tower_throttle::{Global, Handle, LeakyBucket, Local, Quota, RateLimitLayer, queue::WhenFull};

use crate::wait::until;

const PATIENCE: Duration = Duration::from_secs(30);

/// One request per hour, and two seats.
fn two_seats() -> RateLimitLayer<Global, Local<LeakyBucket>> {
    RateLimitLayer::new(Global, LeakyBucket::new(Quota::per_hour(1)).queue(100)).seats(2)
}

/// Sends six calls at once to a health service behind `layer`.
fn six(
    layer: RateLimitLayer<Global, Local<LeakyBucket>>,
) -> (JoinSet<Result<(), Status>>, Vec<AbortHandle>) {
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = incoming.local_addr().unwrap();
    let (_, health) = tonic_health::server::health_reporter();
    let server = Server::builder().layer(layer).add_service(health);
    tokio::spawn(server.serve_with_incoming(incoming));
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let client = HealthClient::new(endpoint.connect_lazy());
    let mut calls = JoinSet::new();
    let aborts = (0..6)
        .map(|_| {
            let mut client = client.clone();
            calls.spawn(async move {
                let request = HealthCheckRequest::default();
                client.check(request).await.map(drop)
            })
        })
        .collect();
    (calls, aborts)
}

async fn next(calls: &mut JoinSet<Result<(), Status>>) -> Result<(), Code> {
    let next = timeout(PATIENCE, calls.join_next()).await.unwrap();
    next.unwrap().unwrap().map_err(|status| status.code())
}

fn waited(handle: &Handle<(), Local<LeakyBucket>>) -> u64 {
    handle.counts().waited
}

/// Shows promise 68.
#[tokio::test]
async fn tonic_denies_requests_without_a_seat_at_once() {
    let layer = two_seats().when_full(WhenFull::Deny);
    let handle = layer.handle();
    let (mut calls, _) = six(layer);
    let mut denied = 0;
    for _ in 0..4 {
        match next(&mut calls).await {
            Ok(()) => {}
            Err(code) => {
                assert_eq!(code, Code::ResourceExhausted);
                denied += 1;
            }
        }
    }
    assert_eq!((denied, handle.waiting(), calls.len()), (3, 2, 2));
}

/// Shows promise 68.
#[tokio::test]
async fn tonic_holds_requests_without_a_seat_by_default() {
    let layer = two_seats();
    let handle = layer.handle();
    let (mut calls, aborts) = six(layer);
    assert_eq!(next(&mut calls).await, Ok(()));
    until("two requests wait", async || handle.waiting() == 2).await;
    // When callers give up, the held requests get their seats, until none is left.
    for left in aborts {
        left.abort();
    }
    while let Some(call) = calls.join_next().await {
        assert!(call.unwrap_err().is_cancelled());
    }
    until("no request waits", async || handle.waiting() == 0).await;
    assert_eq!(handle.counts().denied, 0);
    assert!((2..=5).contains(&waited(&handle)));
}
