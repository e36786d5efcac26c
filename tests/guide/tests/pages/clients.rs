use std::time::Duration;

use http::{Request, Response, StatusCode};
use tokio::{task::JoinSet, time::Instant};
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::{AsError, Global, LeakyBucket, Quota, RateLimitLayer, RateLimited, Settle};

/// The server denies the first call after half a second. Its `Retry-After` is 5 s.
#[tokio::test(start_paused = true)]
async fn calls_that_were_queued_before_a_429_keep_their_turns() {
    let pace = LeakyBucket::new(Quota::per_second(1)).queue(100);
    let layer = RateLimitLayer::new(Global, pace)
        .settle(|response: &Response<u32>| match response.status() {
            StatusCode::TOO_MANY_REQUESTS => Settle::Charge(5),
            _ => Settle::Keep,
        })
        .respond(AsError);
    let service = layer.layer(service_fn(async |request: Request<u32>| {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let first = *request.body() == 0;
        let mut response = Response::new(*request.body());
        if first {
            *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        }
        Ok::<_, RateLimited>(response)
    }));
    let start = Instant::now();
    let mut calls = JoinSet::new();
    for n in 0..3 {
        // The last one is sent after the 429 has arrived.
        let (service, delay) = (service.clone(), [0, 0, 600][n as usize]);
        calls.spawn(async move {
            tokio::time::sleep(Duration::from_millis(delay)).await;
            let sent = service.oneshot(Request::new(n)).await;
            assert!(sent.is_ok());
            (n, start.elapsed().as_millis() - 500)
        });
    }
    let mut sent = calls.join_all().await;
    sent.sort_unstable();
    assert_eq!(sent, [(0, 0), (1, 1_000), (2, 6_000)]);
}
