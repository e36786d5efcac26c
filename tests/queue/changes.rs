//! Changes by a handle while requests are queued.

use tower_throttle::{AsError, LeakyBucket, Quota, RateLimitLayer, TokenBucket, queue::Order};

use crate::support::{Harness, Job, cancel, key, pass, settle};

fn bucket() -> LeakyBucket {
    LeakyBucket::new(Quota::per_second(1).burst(1))
}

#[tokio::test(start_paused = true)]
async fn a_refund_moves_the_queue_up() {
    // At most what is still taken is given back: those that wait hold nothing.
    for refund in [1, 2] {
        let expected = [(0, 0), (1, 500), (2, 1_500), (3, 2_500), (9, 3_500)];
        let layer = RateLimitLayer::new(key, bucket())
            .queue(50)
            .respond(AsError);
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
async fn a_penalty_delays_all_that_wait() {
    let layer = RateLimitLayer::new(key, bucket())
        .queue(50)
        .respond(AsError);
    let harness = Harness::new(&layer);
    let _calls = harness.send_all(0..3).await;
    layer.handle().charge(&0_u32, 2).await.unwrap();
    let _next = harness.send(9).await;
    pass(10_000).await;
    assert_eq!(
        harness.served(),
        [(0, 0), (1, 3_000), (2, 4_000), (9, 5_000)]
    );
}

/// Shows promise 70.
#[tokio::test(start_paused = true)]
async fn with_different_costs_each_waits_until_its_own_fits() {
    let bucket = TokenBucket::new(Quota::per_second(1).burst(4));
    let layer = RateLimitLayer::new(key, bucket)
        .queue(4)
        .cost(|job: &Job| job.cost)
        .respond(AsError)
        .order(Order::Newest);
    let harness = Harness::new(&layer);
    let mut calls = Vec::new();
    for (name, cost) in [(0, 4), (1, 2), (2, 1), (3, 3), (4, 1)] {
        calls.push(harness.send_of(name, cost).await);
    }
    // It could never pass.
    let never = harness.send_of(5, 5).await;
    assert!(never.is_finished());
    pass(1_500).await;
    assert_eq!(harness.served(), [(0, 0), (4, 1_000)]);
    // The head of cost 3 leaves, and the one behind it needs only what came back since.
    cancel(calls.remove(3)).await;
    pass(20_000).await;
    assert_eq!(
        harness.served(),
        [(0, 0), (4, 1_000), (2, 2_000), (1, 4_000)]
    );
}
