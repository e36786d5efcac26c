//! Requests with a timeout of their own are denied if they would wait for longer.

use std::{convert::Infallible, task::Poll, time::Duration};

use http::{Request, Response};
use tower::{BoxError, Layer, ServiceExt, service_fn};
use tower_throttle::{AsError, Global, LeakyBucket, Quota, RateLimitLayer, RateLimited};

/// Shows promise 61.
#[tokio::test(start_paused = true)]
async fn a_request_whose_timeout_is_shorter_than_its_wait_is_denied_at_once() {
    let bucket = LeakyBucket::new(Quota::per_second(1).burst(1));
    let layer = RateLimitLayer::new(Global, bucket).queue(20);
    let service = layer.layer(service_fn(|_: Request<()>| async {
        Ok::<_, Infallible>(Response::new(()))
    }));
    let request = |timeout: &str| {
        let builder = Request::builder().header("grpc-timeout", timeout);
        service.clone().oneshot(builder.body(()).unwrap())
    };
    let start = tokio::time::Instant::now();
    assert_eq!(request("1S").await.unwrap().status(), 200);
    let denied = request("900m").await.unwrap();
    assert_eq!(
        (denied.status().as_u16(), start.elapsed()),
        (429, Duration::ZERO)
    );
    let reason = denied.extensions().get::<RateLimited>().unwrap();
    assert_eq!(reason.retry_after(), Some(Duration::from_millis(100)));
    // It took nothing: a request with a longer timeout is released after one second.
    assert_eq!(request("1S").await.unwrap().status(), 200);
    assert_eq!(start.elapsed().as_millis(), 1_000);
    assert_eq!(layer.handle().counts().denied, 1);
}

/// Shows promise 61.
#[tokio::test(start_paused = true)]
async fn the_waits_in_several_queues_together_are_no_longer_than_the_timeout() {
    let line = || LeakyBucket::new(Quota::per(1, Duration::from_millis(900)).burst(1));
    let layer = RateLimitLayer::new(|request: &Request<u8>| *request.body(), line())
        .queue(20)
        .and(RateLimitLayer::new(Global, line()).queue(20));
    let service = layer.layer(service_fn(|_: Request<u8>| async {
        Ok::<_, Infallible>(Response::new(()))
    }));
    let request = |key: u8| {
        let builder = Request::builder().header("grpc-timeout", "1S");
        service.clone().oneshot(builder.body(key).unwrap())
    };
    assert_eq!(request(1).await.unwrap().status(), 200);
    let mut waits = tokio_test::task::spawn(request(1));
    assert!(waits.poll().is_pending());
    tokio::time::advance(Duration::from_millis(900)).await;
    // The wait in the second queue would be as long as that in the first one was.
    assert_eq!(request(2).await.unwrap().status(), 200);
    let Poll::Ready(Ok(denied)) = waits.poll() else {
        panic!("it waits for longer than its timeout");
    };
    assert_eq!(denied.status(), 429);
    let reason = denied.extensions().get::<RateLimited>().unwrap();
    assert_eq!(reason.retry_after(), Some(Duration::from_millis(800)));
}

/// Shows promise 61.
#[tokio::test(start_paused = true)]
async fn a_late_timer_serves_none_whose_wait_was_over_before_its_turn() {
    let bucket = LeakyBucket::new(Quota::per_second(1).burst(1));
    let layer = RateLimitLayer::new(|_: &u8| (), bucket).queue(20);
    let layer = layer
        .max_wait(Duration::from_millis(2_500))
        .respond(AsError);
    let service = layer.layer(service_fn(async |_: u8| Ok::<(), BoxError>(())));
    let mut calls = [0, 1, 2].map(|name| tokio_test::task::spawn(service.clone().oneshot(name)));
    assert!(calls[0].poll().is_ready());
    assert!(calls[1].poll().is_pending() && calls[2].poll().is_pending());
    layer.handle().charge(&(), 1).await.unwrap();
    // Their turns are at 2 and 3 s.
    tokio::time::advance(Duration::from_secs(10)).await;
    tokio::task::yield_now().await;
    let [_, first, second] = &mut calls;
    let passed = [first, second].map(|call| matches!(call.poll(), Poll::Ready(Ok(()))));
    assert_eq!(passed, [true, false]);
}
