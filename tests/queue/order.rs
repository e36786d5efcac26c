//! Who goes first, who is sent away, and who has no time to wait.

use std::time::Duration;

use tower_throttle::{
    AsError, LeakyBucket, Order, Quota, RateLimitLayer, RateLimited, TokenBucket,
};

use crate::support::{Desk, cancel, key, pass};

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
