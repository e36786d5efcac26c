//! The order of queued requests, and which one is denied if the queue is full.

use std::{convert::Infallible, task::Poll, time::Duration};

use http::{Request, Response};
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::{
    AsError, FixedWindow, Global, LeakyBucket, Quota, RateLimitLayer, RateLimited,
    queue::{Order, WhenFull},
};

use crate::support::{Harness, key, pass};

/// Shows promise 70.
#[tokio::test(start_paused = true)]
async fn the_newest_is_released_first_and_the_oldest_is_shed() {
    let bucket = LeakyBucket::new(Quota::per_second(1).burst(1));
    let layer = RateLimitLayer::new(key, bucket)
        .queue(3)
        .respond(AsError)
        .order(Order::Newest);
    let harness = Harness::new(&layer);
    let mut calls = harness.send_all(0..4).await;
    pass(100).await;
    let newest = harness.send(4).await;
    let oldest = calls.remove(1);
    assert!(oldest.is_finished(), "denied at once");
    let error = oldest.await.unwrap().unwrap_err();
    let limited = error.downcast_ref::<RateLimited>().unwrap();
    assert_eq!(limited.retry_after(), Some(Duration::from_millis(900)));
    pass(10_000).await;
    assert_eq!(
        harness.served(),
        [(0, 0), (4, 1_000), (3, 2_000), (2, 3_000)]
    );
    let counts = layer.handle().counts();
    assert_eq!((counts.admitted, counts.waited, counts.denied), (1, 4, 1));
    drop(newest);
}

/// Shows promise 61.
#[tokio::test(start_paused = true)]
async fn the_oldest_is_denied_after_the_longest_wait_if_another_order_overtakes_it() {
    let bucket = LeakyBucket::new(Quota::per_second(1).burst(1));
    let layer = RateLimitLayer::new(key, bucket)
        .queue(9)
        .max_wait(Duration::from_millis(2_500))
        .respond(AsError);
    let harness = Harness::new(&layer);
    let newest_first = Harness::new(&layer.clone().order(Order::Newest));
    let _first = harness.send(0).await;
    pass(400).await;
    let overtaken = harness.send(1).await;
    pass(400).await;
    let _newer = newest_first.send(2).await;
    pass(400).await;
    let _newest = newest_first.send(3).await;
    // It joined at 0.4 s, and would be released at 3 s.
    pass(1_690).await;
    assert!(!overtaken.is_finished());
    pass(20).await;
    assert!(overtaken.is_finished());
    let error = overtaken.await.unwrap().unwrap_err();
    assert!(error.is::<RateLimited>());
    assert_eq!(harness.served(), [(0, 0)]);
    assert_eq!(newest_first.served(), [(2, 1_000), (3, 2_000)]);
    assert_eq!(layer.handle().waiting(), 0);
}

/// Shows promise 59.
#[tokio::test(start_paused = true)]
async fn the_newest_is_not_released_before_a_granted_moment() {
    let bucket = LeakyBucket::new(Quota::per_second(1).burst(1));
    let layer = RateLimitLayer::new(key, bucket).queue(20).respond(AsError);
    let harness = Harness::new(&layer);
    let newest_first = Harness::new(&layer.clone().order(Order::Newest));
    let _calls = harness.send_all(0..3).await;
    pass(1_500).await;
    let _newest = newest_first.send(3).await;
    assert_eq!(newest_first.served(), []);
    pass(10_000).await;
    assert_eq!(harness.served(), [(0, 0), (1, 1_000), (2, 3_000)]);
    assert_eq!(newest_first.served(), [(3, 2_000)]);
}

/// Shows promise 70.
#[tokio::test(start_paused = true)]
async fn no_waiter_is_shed_for_a_request_that_another_limit_denies() {
    let bucket = LeakyBucket::new(Quota::per_second(1).burst(1));
    let window = FixedWindow::new(Quota::per_day(5));
    let layer = RateLimitLayer::new(key, (bucket, window))
        .queue(2)
        .max_wait(Duration::from_secs(30))
        .respond(AsError)
        .order(Order::Newest);
    let harness = Harness::new(&layer);
    let _calls = harness.send_all(0..3).await;
    // The window has nothing left for today.
    let penalty = layer.handle().charge(&0_u32, 9).await;
    penalty.unwrap();
    let denied = harness.send(3).await;
    assert!(denied.is_finished());
    let error = denied.await.unwrap().unwrap_err();
    assert!(error.is::<RateLimited>());
    assert_eq!(layer.handle().waiting(), 2);
    layer.handle().refund(&0_u32, 9).await.unwrap();
    pass(10_000).await;
    assert_eq!(harness.served(), [(0, 0), (2, 1_000), (1, 2_000)]);
    let counts = layer.handle().counts();
    assert_eq!((counts.admitted, counts.waited, counts.denied), (1, 2, 1));
}

/// Shows promise 68.
#[tokio::test(start_paused = true)]
async fn a_request_without_a_seat_is_denied_with_retry_after() {
    let bucket = LeakyBucket::new(Quota::per_second(1).burst(1));
    let layer = RateLimitLayer::new(key, bucket)
        .queue(20)
        .respond(AsError)
        .seats(1)
        .when_full(WhenFull::Deny);
    let harness = Harness::new(&layer);
    let _calls = harness.send_all(0..2).await;
    pass(300).await;
    // The waiter has the only seat.
    let denied = harness.send(2).await.await.unwrap().unwrap_err();
    let limited = denied.downcast_ref::<RateLimited>().unwrap();
    assert_eq!(limited.retry_after(), Some(Duration::from_millis(1_700)));
    let counts = layer.handle().counts();
    assert_eq!((counts.admitted, counts.waited, counts.denied), (1, 1, 1));
    pass(10_000).await;
    assert_eq!(harness.served(), [(0, 0), (1, 1_000)]);
}

/// Shows promise 17.
#[tokio::test(start_paused = true)]
async fn a_quota_change_reschedules_waiters() {
    for faster in [true, false] {
        let bucket = LeakyBucket::new(Quota::per_second(1).burst(1));
        let layer = RateLimitLayer::new(key, bucket).queue(20).respond(AsError);
        let harness = Harness::new(&layer);
        let _calls = harness.send_all(0..4).await;
        pass(500).await;
        let quota = Quota::per_second(if faster { 10 } else { 1 }).burst(1);
        layer.handle().set_quota(quota).unwrap();
        if !faster {
            let slow = Quota::per(1, Duration::from_secs(2)).burst(1);
            layer.handle().set_quota(slow).unwrap();
        }
        let _last = harness.send(9).await;
        pass(20_000).await;
        // Half an interval was left; then one interval per request.
        let expected = if faster {
            [(0, 0), (1, 550), (2, 650), (3, 750), (9, 850)]
        } else {
            [(0, 0), (1, 1_500), (2, 3_500), (3, 5_500), (9, 7_500)]
        };
        assert_eq!(harness.served(), expected);
    }
}

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
