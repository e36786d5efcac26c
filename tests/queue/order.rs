//! The order of queued requests, and which one is denied if the queue is full.

use std::{convert::Infallible, task::Poll, time::Duration};

use http::{Request, Response};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_throttle::{
    AsError, Decision, FixedWindow, Global, Handle, LeakyBucket, Local, Quota, RateLimitLayer,
    RateLimited, TokenBucket, WarmUp,
    queue::{Order, WhenFull},
};

use crate::own::OwnLine;
use crate::support::{Harness, Job, cancel, key, pass, settle};

/// Shows promise 70.
#[tokio::test(start_paused = true)]
async fn the_newest_is_released_first_and_the_oldest_is_shed() {
    let bucket = LeakyBucket::new(Quota::per_second(1)).queue(3);
    let layer = RateLimitLayer::new(key, bucket)
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

#[tokio::test(start_paused = true)]
async fn the_newest_may_be_cancelled() {
    let bucket = TokenBucket::new(Quota::per_second(1).burst(1)).queue(10);
    let layer = RateLimitLayer::new(key, bucket)
        .respond(AsError)
        .order(Order::Newest);
    let harness = Harness::new(&layer);
    let mut calls = harness.send_all(0..4).await;
    cancel(calls.remove(3)).await;
    pass(1_500).await;
    let _later = harness.send(5).await;
    pass(10_000).await;
    assert_eq!(
        harness.served(),
        [(0, 0), (2, 1_000), (5, 2_000), (1, 3_000)]
    );
}

/// Shows promise 70.
#[tokio::test(start_paused = true)]
async fn two_orders_may_share_a_queue() {
    let bucket = LeakyBucket::new(Quota::per_second(1)).queue(4);
    let layer = RateLimitLayer::new(key, bucket).respond(AsError);
    let harness = Harness::new(&layer);
    let newest_first = Harness::new(&layer.clone().order(Order::Newest));
    let mut calls = harness.send_all(0..4).await;
    let _newest = newest_first.send(4).await;
    pass(1_100).await;
    // A waiter in the middle is cancelled, then the queue is filled again.
    cancel(calls.remove(2)).await;
    let _more = harness.send_all(5..7).await;
    let last = calls.remove(2);
    let _newer = newest_first.send_all(7..8).await;
    pass(10_000).await;
    assert!(last.is_finished());
    assert_eq!(newest_first.served(), [(4, 1_000), (7, 2_000)]);
    assert_eq!(
        harness.served(),
        [(0, 0), (1, 3_000), (3, 4_000), (5, 5_000)]
    );
}

/// Shows promise 61.
#[tokio::test(start_paused = true)]
async fn the_oldest_is_denied_after_the_longest_wait_if_another_order_overtakes_it() {
    let bucket = LeakyBucket::new(Quota::per_second(1)).queue(9);
    let bucket = bucket.max_wait(Duration::from_millis(2_500));
    let layer = RateLimitLayer::new(key, bucket).respond(AsError);
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

#[tokio::test(start_paused = true)]
async fn a_shed_request_is_denied_even_if_polled_after_the_queue_is_empty() {
    let bucket = LeakyBucket::new(Quota::per_second(1)).queue(3);
    let layer = RateLimitLayer::new(key, bucket)
        .cost(|job: &Job| job.cost)
        .respond(AsError);
    let harness = Harness::new(&layer);
    let newest_first = Harness::new(&layer.clone().order(Order::Newest));
    let _calls = harness.send_all(0..3).await;
    let job = Job { name: 3, cost: 1 };
    let mut last = tokio_test::task::spawn(harness.service.clone().call(job));
    assert!(last.poll().is_pending());
    // It sheds the last one, and the others go two seconds later.
    let _costly = newest_first.send_of(4, 2).await;
    pass(10_000).await;
    assert_eq!(newest_first.served().len(), 1);
    let Poll::Ready(Err(error)) = last.poll() else {
        panic!("the request was not shed");
    };
    assert!(error.is::<RateLimited>());
    assert_eq!(harness.served(), [(0, 0), (1, 3_000), (2, 4_000)]);
}

/// Shows promise 59.
#[tokio::test(start_paused = true)]
async fn the_newest_is_not_released_before_a_granted_moment() {
    let bucket = LeakyBucket::new(Quota::per_second(1)).queue(20);
    let layer = RateLimitLayer::new(key, bucket).respond(AsError);
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
async fn the_newest_goes_first_whatever_the_costs() {
    let bucket = LeakyBucket::new(Quota::per_second(1).burst(10)).queue(20);
    let layer = RateLimitLayer::new(key, bucket)
        .cost(|job: &Job| job.cost)
        .respond(AsError)
        .order(Order::Newest);
    let harness = Harness::new(&layer);
    let mut calls = Vec::new();
    for (name, cost) in [(0, 1), (1, 1), (2, 5), (3, 1), (4, 1)] {
        calls.push(harness.send_of(name, cost).await);
    }
    pass(20_000).await;
    let expected = [(0, 0), (4, 1_000), (3, 2_000), (2, 3_000), (1, 8_000)];
    assert_eq!(harness.served(), expected);
}

/// Shows promise 70.
#[tokio::test(start_paused = true)]
async fn with_different_costs_the_newest_replaces_the_oldest() {
    let bucket = LeakyBucket::new(Quota::per_second(1).burst(10)).queue(3);
    let layer = RateLimitLayer::new(key, bucket)
        .cost(|job: &Job| job.cost)
        .respond(AsError)
        .order(Order::Newest);
    let harness = Harness::new(&layer);
    let mut calls = Vec::new();
    for (name, cost) in [(0, 1), (1, 1), (2, 2), (3, 1)] {
        calls.push(harness.send_of(name, cost).await);
    }
    let newest = harness.send_of(4, 1).await;
    assert!(calls.remove(1).is_finished());
    pass(20_000).await;
    assert_eq!(
        harness.served(),
        [(0, 0), (4, 1_000), (3, 2_000), (2, 3_000)]
    );
    drop((calls, newest));
}

/// Shows promise 70.
#[tokio::test(start_paused = true)]
async fn no_waiter_is_shed_for_a_request_that_another_limit_denies() {
    let bucket = LeakyBucket::new(Quota::per_second(1)).queue(2);
    let window = FixedWindow::new(Quota::per_day(5));
    let layer = RateLimitLayer::new(key, (bucket, window))
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

/// Shows promise 70.
#[tokio::test(start_paused = true)]
async fn no_waiter_is_shed_for_a_request_that_the_limit_of_another_key_denies() {
    let bucket = LeakyBucket::new(Quota::per_second(1)).queue(1);
    let window = FixedWindow::new(Quota::per_day(2));
    let layer = RateLimitLayer::new(key, bucket)
        .order(Order::Newest)
        .and(RateLimitLayer::new(Global, window))
        .respond(AsError);
    let harness = Harness::new(&layer);
    let calls = harness.send_all(0..3).await;
    assert!(calls[2].is_finished());
    pass(10_000).await;
    assert_eq!(harness.served(), [(0, 0), (1, 1_000)]);
}

/// Shows promise 68.
#[tokio::test(start_paused = true)]
async fn a_request_without_a_seat_is_denied_with_retry_after() {
    let bucket = LeakyBucket::new(Quota::per_second(1)).queue(20);
    let layer = RateLimitLayer::new(key, bucket)
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

#[tokio::test(start_paused = true)]
async fn requests_that_are_admitted_after_a_reset_go_behind_the_waiters() {
    let bucket = TokenBucket::new(Quota::per_second(1).burst(3)).queue(20);
    let layer = RateLimitLayer::new(key, bucket).respond(AsError);
    let harness = Harness::new(&layer);
    let _waiters = harness.send_all(0..6).await;
    layer.handle().reset(&0_u32).await.unwrap();
    // Three waiters have gone on. The limiter would admit neither of these.
    let _calls = harness.send_all(6..8).await;
    assert_eq!(harness.served(), [0, 1, 2, 3, 4, 5].map(|name| (name, 0)));
    assert_eq!(layer.handle().waiting(), 2);
    let counts = layer.handle().counts();
    assert_eq!((counts.admitted, counts.waited), (3, 5));
}

#[tokio::test(start_paused = true)]
async fn a_request_behind_the_waiters_of_a_reset_key_is_told_how_long_they_take() {
    let bucket = TokenBucket::new(Quota::per_second(1).burst(1)).queue(20);
    let layer = RateLimitLayer::new(key, bucket)
        .respond(AsError)
        .seats(4)
        .when_full(WhenFull::Deny);
    let harness = Harness::new(&layer);
    let _waiters = harness.send_all(0..4).await;
    layer.handle().reset(&0_u32).await.unwrap();
    let _calls = harness.send_all(4..6).await;
    // There is no seat. The limiter alone would admit the request in a second.
    let denied = harness.send(6).await.await.unwrap().unwrap_err();
    let limited = denied.downcast_ref::<RateLimited>().unwrap();
    assert_eq!(limited.retry_after(), Some(Duration::from_secs(5)));
}

#[tokio::test(start_paused = true)]
async fn shedding_is_per_key() {
    let bucket = LeakyBucket::new(Quota::per_second(1)).queue(1);
    let layer = RateLimitLayer::new(key, bucket)
        .respond(AsError)
        .order(Order::Newest);
    let harness = Harness::new(&layer);
    let _others = harness.send_all(1_000..1_002).await;
    let _calls = harness.send_all(0..3).await;
    pass(10_000).await;
    let mut served = harness.served();
    served.sort_unstable();
    assert_eq!(served, [(0, 0), (2, 1_000), (1_000, 0), (1_001, 1_000)]);
}

/// Shows promise 17.
#[tokio::test(start_paused = true)]
async fn a_quota_change_reschedules_waiters() {
    for faster in [true, false] {
        let bucket = LeakyBucket::new(Quota::per_second(1)).queue(20);
        let layer = RateLimitLayer::new(key, bucket).respond(AsError);
        let harness = Harness::new(&layer);
        let _calls = harness.send_all(0..4).await;
        pass(500).await;
        let quota = Quota::per_second(if faster { 10 } else { 1 });
        layer.handle().set_quota(quota).unwrap();
        if !faster {
            let slow = Quota::per(1, Duration::from_secs(2));
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

/// Shows promise 17.
#[tokio::test(start_paused = true)]
async fn a_quota_change_reschedules_waiters_of_a_token_bucket() {
    let bucket = TokenBucket::new(Quota::per_second(1).burst(2)).queue(20);
    let layer = RateLimitLayer::new(key, bucket).respond(AsError);
    let harness = Harness::new(&layer);
    let _calls = harness.send_all(0..5).await;
    pass(500).await;
    layer
        .handle()
        .set_quota(Quota::per_second(10).burst(2))
        .unwrap();
    let _last = harness.send(9).await;
    pass(20_000).await;
    let expected = [(0, 0), (1, 0), (2, 550), (3, 650), (4, 750), (9, 850)];
    assert_eq!(harness.served(), expected);
}

/// Shows promise 17.
#[tokio::test(start_paused = true)]
async fn a_quota_change_reschedules_waiters_of_a_warm_up() {
    let warm = WarmUp::new(Quota::per_second(2), Duration::from_secs(4)).queue(20);
    let layer = RateLimitLayer::new(key, warm).respond(AsError);
    let harness = Harness::new(&layer);
    let _calls = harness.send_all(0..3).await;
    layer.handle().set_quota(Quota::per_second(20)).unwrap();
    pass(20_000).await;
    assert_eq!(harness.served(), [(0, 0), (1, 1_375), (2, 1_524)]);
}

/// Shows promise 61.
#[tokio::test(start_paused = true)]
async fn a_request_whose_timeout_is_shorter_than_its_wait_is_denied_at_once() {
    let bucket = LeakyBucket::new(Quota::per_second(1)).queue(20);
    let layer = RateLimitLayer::new(Global, bucket);
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
    let line = || LeakyBucket::new(Quota::per(1, Duration::from_millis(900))).queue(20);
    let layer = RateLimitLayer::new(|request: &Request<u8>| *request.body(), line())
        .and(RateLimitLayer::new(Global, line()));
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

#[tokio::test(start_paused = true)]
async fn a_request_replaces_another_one_beside_other_limits() {
    macro_rules! replaces {
        ($layer:expr) => {
            replaces!($layer.order(Order::Newest), |handle| handle)
        };
        ($layer:expr, $of_line:expr) => {{
            let layer = $layer.respond(AsError);
            let waiting = || {
                let of_line = $of_line;
                of_line(layer.handle()).waiting()
            };
            let harness = Harness::new(&layer);
            let _calls = harness.send_all(0..3).await;
            let newest = harness.send(3).await;
            // The line of two is full. The oldest waiter gives its place away.
            assert_eq!(waiting(), 2);
            pass(10_000).await;
            assert_eq!(harness.served(), [(0, 0), (3, 1_000), (2, 2_000)]);
            assert!(newest.await.unwrap().is_ok());
        }};
    }
    let own = OwnLine(LeakyBucket::new(Quota::per_second(1)).queue(9));
    replaces!(RateLimitLayer::new(key, own).queue(2));
    let line = || Local::new(LeakyBucket::new(Quota::per_second(1)).queue(2));
    let window = || Local::new(FixedWindow::new(Quota::per_day(100)));
    let newest = || RateLimitLayer::new(key, line()).order(Order::Newest);
    let other = || RateLimitLayer::new(Global, window());
    replaces!(newest().and(other()), |handle: Handle<_, (_, _)>| handle
        .first());
    replaces!(other().and(newest()), |handle: Handle<_, (_, _)>| handle
        .second());
}

#[tokio::test(start_paused = true)]
async fn a_replaced_request_gives_back_what_it_took_beside_the_line() {
    let line = Local::new(LeakyBucket::new(Quota::per_second(1)).queue(2));
    let window = Local::new(FixedWindow::new(Quota::per_day(10)));
    let layer = RateLimitLayer::new(Global, line)
        .order(Order::Newest)
        .and(RateLimitLayer::new(|job: &Job| job.name, window.clone()))
        .respond(AsError);
    let harness = Harness::new(&layer);
    let mut calls = harness.send_all(0..3).await;
    let used = |name: u32| 10 - window.peek(&name).remaining();
    assert_eq!([0, 1, 2].map(used), [1, 1, 1]);
    // Its own window denies it, so no waiter is shed.
    window.charge(&9, 10);
    let denied = harness.send(9).await;
    assert!(denied.await.unwrap().is_err());
    assert_eq!((layer.handle().first().waiting(), used(9)), (2, 10));
    let _newest = harness.send(3).await;
    let replaced = calls.remove(1);
    assert!(replaced.await.unwrap().is_err());
    settle().await;
    assert_eq!([0, 1, 2, 3].map(used), [1, 0, 1, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_goes_at_once_needs_no_seat() {
    let bucket = LeakyBucket::new(Quota::per_second(1)).queue(20);
    let layer = RateLimitLayer::new(key, bucket)
        .respond(AsError)
        .order(Order::Newest)
        .seats(1)
        .when_full(WhenFull::Deny);
    let harness = Harness::new(&layer);
    let _calls = harness.send_all(0..2).await;
    pass(300).await;
    // The waiter has the only seat. One of another key needs none.
    let other = harness.send(1_000).await;
    assert_eq!(other.await.unwrap().unwrap(), 1_000);
    assert_eq!(harness.served(), [(0, 0), (1_000, 300)]);
    pass(10_000).await;
    assert_eq!(harness.served(), [(0, 0), (1_000, 300), (1, 1_000)]);
}

#[tokio::test(start_paused = true)]
async fn the_newest_is_told_how_long_it_waits() {
    macro_rules! told {
        ($line:expr, $is_reset:expr) => {{
            let layer = RateLimitLayer::new(Global, $line)
                .order(Order::Newest)
                .share_decision();
            let service = layer.layer(service_fn(async |req: Request<()>| {
                let decision = req.extensions().get::<Decision>().copied();
                let decision = decision.expect("the decision is shared");
                Ok::<_, Infallible>(Response::new(decision.wait()))
            }));
            let call = || tokio::spawn(service.clone().oneshot(Request::new(())));
            let mut calls = Vec::new();
            for _ in 0..3 {
                calls.push(call());
                settle().await;
            }
            if $is_reset {
                // The limiter then admits a request at once, and grants the next one a wait of 1 s.
                layer.handle().reset(&()).await.unwrap();
                calls.push(call());
                settle().await;
            }
            let newest = call();
            pass(10_000).await;
            newest.await.unwrap().unwrap().into_body()
        }};
    }
    let line = || Local::new(LeakyBucket::new(Quota::per_second(1)).queue(2));
    let seconds = |secs| Some(Duration::from_secs(secs));
    assert_eq!(told!(line(), true), seconds(1));
    // The line is full, and the newest goes first.
    assert_eq!(told!(line(), false), seconds(1));
}
