//! Who goes first, who is sent away, and who has no time to wait.

use std::{convert::Infallible, task::Poll, time::Duration};

use http::{Request, Response};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_throttle::{
    AsError, Global, LeakyBucket, Quota, RateLimitLayer, RateLimited, TokenBucket, WarmUp,
    queue::Order,
};

use crate::support::{Desk, Job, cancel, key, pass};

#[tokio::test(start_paused = true)]
async fn the_newest_goes_first_and_the_oldest_is_sent_away() {
    let bucket = LeakyBucket::new(Quota::per_second(1)).queue(3);
    let layer = RateLimitLayer::new(key, bucket)
        .respond(AsError)
        .order(Order::Newest);
    let desk = Desk::new(&layer);
    let mut calls = desk.send_all(0..4).await;
    pass(100).await;
    let newest = desk.send(4).await;
    let oldest = calls.remove(1);
    assert!(oldest.is_finished(), "sent away at once");
    let error = oldest.await.unwrap().unwrap_err();
    let limited = error.downcast_ref::<RateLimited>().unwrap();
    assert_eq!(limited.retry_after(), Some(Duration::from_millis(900)));
    pass(10_000).await;
    assert_eq!(desk.went(), [(0, 0), (4, 1_000), (3, 2_000), (2, 3_000)]);
    let counts = layer.handle().counts();
    assert_eq!((counts.admitted, counts.waited, counts.denied), (1, 4, 1));
    drop(newest);
}

#[tokio::test(start_paused = true)]
async fn the_newest_may_leave_as_well() {
    let bucket = TokenBucket::new(Quota::per_second(1).burst(1)).queue(10);
    let layer = RateLimitLayer::new(key, bucket)
        .respond(AsError)
        .order(Order::Newest);
    let desk = Desk::new(&layer);
    let mut calls = desk.send_all(0..4).await;
    cancel(calls.remove(3)).await;
    pass(1_500).await;
    let _later = desk.send(5).await;
    pass(10_000).await;
    assert_eq!(desk.went(), [(0, 0), (2, 1_000), (5, 2_000), (1, 3_000)]);
}

#[tokio::test(start_paused = true)]
async fn of_two_orders_in_one_line_the_newest_goes_before_all_and_the_others_in_turn() {
    let bucket = LeakyBucket::new(Quota::per_second(1)).queue(4);
    let layer = RateLimitLayer::new(key, bucket).respond(AsError);
    let desk = Desk::new(&layer);
    let hasty = Desk::new(&layer.clone().order(Order::Newest));
    let mut calls = desk.send_all(0..4).await;
    let _newest = hasty.send(4).await;
    pass(1_100).await;
    // Somebody in the middle leaves, and the line is full again.
    cancel(calls.remove(2)).await;
    let _more = desk.send_all(5..7).await;
    let last = calls.remove(2);
    let _newer = hasty.send_all(7..8).await;
    pass(10_000).await;
    assert!(last.is_finished());
    assert_eq!(hasty.went(), [(4, 1_000), (7, 2_000)]);
    assert_eq!(desk.went(), [(0, 0), (1, 3_000), (3, 4_000), (5, 5_000)]);
}

#[tokio::test(start_paused = true)]
async fn who_was_sent_away_by_a_dear_request_learns_it_even_after_that_has_gone() {
    let bucket = LeakyBucket::new(Quota::per_second(1)).queue(3);
    let layer = RateLimitLayer::new(key, bucket)
        .cost(|job: &Job| job.cost)
        .respond(AsError);
    let desk = Desk::new(&layer);
    let hasty = Desk::new(&layer.clone().order(Order::Newest));
    let _calls = desk.send_all(0..3).await;
    let job = Job { name: 3, cost: 1 };
    let mut last = tokio_test::task::spawn(desk.service.clone().call(job));
    assert!(last.poll().is_pending());
    // It needs the room of two, and goes after the one that is left: its cost is another.
    let _dear = hasty.send_of(4, 2).await;
    pass(10_000).await;
    assert_eq!(hasty.went().len(), 1);
    let Poll::Ready(Err(error)) = last.poll() else {
        panic!("it was sent away long ago");
    };
    assert!(error.is::<RateLimited>());
    assert_eq!(desk.went(), [(0, 0), (1, 1_000)]);
}

#[tokio::test(start_paused = true)]
async fn a_line_of_other_keys_is_left_alone() {
    let bucket = LeakyBucket::new(Quota::per_second(1)).queue(1);
    let layer = RateLimitLayer::new(key, bucket)
        .respond(AsError)
        .order(Order::Newest);
    let desk = Desk::new(&layer);
    let _others = desk.send_all(1_000..1_002).await;
    let _calls = desk.send_all(0..3).await;
    pass(10_000).await;
    let mut went = desk.went();
    went.sort_unstable();
    assert_eq!(went, [(0, 0), (2, 1_000), (1_000, 0), (1_001, 1_000)]);
}

#[tokio::test(start_paused = true)]
async fn a_change_of_quota_plans_anew() {
    for faster in [true, false] {
        let bucket = LeakyBucket::new(Quota::per_second(1)).queue(20);
        let layer = RateLimitLayer::new(key, bucket).respond(AsError);
        let desk = Desk::new(&layer);
        let _calls = desk.send_all(0..4).await;
        pass(500).await;
        let quota = Quota::per_second(if faster { 10 } else { 1 });
        layer.handle().set_quota(quota).unwrap();
        if !faster {
            let slow = Quota::per(1, Duration::from_secs(2));
            layer.handle().set_quota(slow).unwrap();
        }
        let _last = desk.send(9).await;
        pass(20_000).await;
        // Half an interval was left, and then one each.
        let expected = if faster {
            [(0, 0), (1, 550), (2, 650), (3, 750), (9, 850)]
        } else {
            [(0, 0), (1, 1_500), (2, 3_500), (3, 5_500), (9, 7_500)]
        };
        assert_eq!(desk.went(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_of_quota_plans_a_token_bucket_anew() {
    let bucket = TokenBucket::new(Quota::per_second(1).burst(2)).queue(20);
    let layer = RateLimitLayer::new(key, bucket).respond(AsError);
    let desk = Desk::new(&layer);
    let _calls = desk.send_all(0..5).await;
    pass(500).await;
    layer
        .handle()
        .set_quota(Quota::per_second(10).burst(2))
        .unwrap();
    let _last = desk.send(9).await;
    pass(20_000).await;
    let expected = [(0, 0), (1, 0), (2, 550), (3, 650), (4, 750), (9, 850)];
    assert_eq!(desk.went(), expected);
}

#[tokio::test(start_paused = true)]
async fn in_a_warm_up_those_who_wait_keep_their_turns() {
    let warm = WarmUp::new(Quota::per_second(2), Duration::from_secs(4)).queue(20);
    let layer = RateLimitLayer::new(key, warm).respond(AsError);
    let desk = Desk::new(&layer);
    let _calls = desk.send_all(0..3).await;
    layer.handle().set_quota(Quota::per_second(20)).unwrap();
    pass(20_000).await;
    assert_eq!(desk.went(), [(0, 0), (1, 1_375), (2, 2_500)]);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_has_no_time_to_wait_is_denied_on_arrival() {
    let bucket = LeakyBucket::new(Quota::per_second(1)).queue(20);
    let layer = RateLimitLayer::new(Global, bucket);
    let service = layer.layer(service_fn(|_: Request<()>| async {
        Ok::<_, Infallible>(Response::new(()))
    }));
    let ask = |timeout: &str| {
        let request = Request::builder()
            .header("grpc-timeout", timeout)
            .body(())
            .unwrap();
        service.clone().oneshot(request)
    };
    let start = tokio::time::Instant::now();
    assert_eq!(ask("1S").await.unwrap().status(), 200);
    let denied = ask("900m").await.unwrap();
    assert_eq!(
        (denied.status().as_u16(), start.elapsed()),
        (429, Duration::ZERO)
    );
    let reason = denied.extensions().get::<RateLimited>().unwrap();
    assert_eq!(reason.retry_after(), Some(Duration::from_millis(100)));
    // It took no place: whoever has the time goes at the first second.
    assert_eq!(ask("1S").await.unwrap().status(), 200);
    assert_eq!(start.elapsed().as_millis(), 1_000);
    assert_eq!(layer.handle().counts().denied, 1);
}
