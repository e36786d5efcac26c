//! Changes by a handle while requests are queued.

use tower_throttle::{AsError, LeakyBucket, Quota, RateLimitLayer, queue::Order};

use crate::support::{Harness, Job, cancel, key, pass, settle};

fn bucket() -> LeakyBucket {
    LeakyBucket::new(Quota::per_second(1).burst(10)).queue(50)
}

#[tokio::test(start_paused = true)]
async fn a_refund_moves_the_queue_up() {
    for (refund, expected) in [
        (1, [(0, 0), (1, 500), (2, 1_000), (3, 2_000), (9, 3_000)]),
        (2, [(0, 0), (1, 500), (2, 500), (3, 1_000), (9, 2_000)]),
    ] {
        let layer = RateLimitLayer::new(key, bucket()).respond(AsError);
        let harness = Harness::new(&layer);
        let _calls = harness.send_all(0..4).await;
        pass(500).await;
        layer.handle().refund(&0_u32, refund).await.unwrap();
        settle().await;
        let _next = harness.send(9).await;
        pass(10_000).await;
        assert_eq!(harness.served(), expected, "{refund}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refund_of_another_key_does_not_move_the_queue() {
    let layer = RateLimitLayer::new(key, bucket()).respond(AsError);
    let harness = Harness::new(&layer);
    let _calls = harness.send_all(0..3).await;
    layer.handle().refund(&7_u32, 1).await.unwrap();
    pass(10_000).await;
    assert_eq!(harness.served(), [(0, 0), (1, 1_000), (2, 2_000)]);
}

#[tokio::test(start_paused = true)]
async fn with_several_limits_a_refund_reaches_the_queue_with_the_next_request() {
    let slow = LeakyBucket::new(Quota::per_second(2).burst(10)).queue(50);
    let layer = RateLimitLayer::new(key, (slow, bucket())).respond(AsError);
    let harness = Harness::new(&layer);
    let _calls = harness.send_all(0..4).await;
    layer.handle().refund(&0_u32, 2).await.unwrap();
    pass(500).await;
    // The new request is granted 2 s, like the third one. So each request from the third on is
    // released at the moment of its predecessor.
    let _next = harness.send(9).await;
    pass(10_000).await;
    let expected = [(0, 0), (1, 1_000), (2, 2_000), (3, 2_000), (9, 3_000)];
    assert_eq!(harness.served(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_penalty_delays_only_new_requests() {
    let layer = RateLimitLayer::new(key, bucket()).respond(AsError);
    let harness = Harness::new(&layer);
    let _calls = harness.send_all(0..3).await;
    layer.handle().charge(&0_u32, 2).await.unwrap();
    let _next = harness.send(9).await;
    pass(10_000).await;
    assert_eq!(
        harness.served(),
        [(0, 0), (1, 1_000), (2, 2_000), (9, 5_000)]
    );
}

#[tokio::test(start_paused = true)]
async fn a_quota_set_on_the_limiter_itself_applies_to_new_requests() {
    let set = [
        (
            "by the handle",
            vec![(0, 0), (1, 500), (2, 1_000), (9, 1_500)],
        ),
        (
            "by the limiter",
            vec![(0, 0), (1, 1_000), (2, 1_500), (9, 2_000)],
        ),
    ];
    for (how, expected) in set {
        let layer = RateLimitLayer::new(key, bucket()).respond(AsError);
        let harness = Harness::new(&layer);
        let handle = layer.handle();
        let _calls = harness.send_all(0..3).await;
        let twice = Quota::per_second(2).burst(10);
        if how == "by the handle" {
            handle.set_quota(twice).unwrap();
        } else {
            handle.backend().set_quota(twice).unwrap();
        }
        let _next = harness.send(9).await;
        pass(10_000).await;
        assert_eq!(harness.served(), expected, "{how}");
    }
}

/// Shows promise 60.
#[tokio::test(start_paused = true)]
async fn with_different_costs_a_moment_is_used_only_for_the_cost_it_was_granted_for() {
    let bucket = LeakyBucket::new(Quota::per_second(1).burst(10)).queue(8);
    let layer = RateLimitLayer::new(key, bucket)
        .cost(|job: &Job| job.cost)
        .respond(AsError)
        .order(Order::Newest);
    let harness = Harness::new(&layer);
    let mut calls = Vec::new();
    // The granted moments are 1, 3, 4 and 7 s.
    for (name, cost) in [(0, 1), (1, 2), (2, 1), (3, 3), (4, 1)] {
        calls.push(harness.send_of(name, cost).await);
    }
    // The queue is full and no waiter has the cost of the new request, so it is denied.
    let late = harness.send_of(5, 4).await;
    assert_eq!(layer.handle().waiting(), 4);
    assert_eq!(layer.handle().counts().denied, 1);
    drop(late);
    pass(1_500).await;
    assert_eq!(harness.served(), [(0, 0), (1, 1_000)]);
    // The request of cost 3 is cancelled. The one behind it is released 3 s earlier.
    cancel(calls.remove(3)).await;
    pass(20_000).await;
    assert_eq!(
        harness.served(),
        [(0, 0), (1, 1_000), (4, 3_000), (2, 4_000)]
    );
}
