//! What a handle changes while requests wait.

use tower_throttle::{AsError, LeakyBucket, Quota, RateLimitLayer, queue::Order};

use crate::support::{Desk, Job, cancel, key, pass, settle};

fn bucket() -> LeakyBucket {
    LeakyBucket::new(Quota::per_second(1).burst(10)).queue(50)
}

#[tokio::test(start_paused = true)]
async fn what_is_given_back_moves_the_line_up() {
    for (refund, expected) in [
        (1, [(0, 0), (1, 500), (2, 1_000), (3, 2_000), (9, 3_000)]),
        (2, [(0, 0), (1, 500), (2, 500), (3, 1_000), (9, 2_000)]),
    ] {
        let layer = RateLimitLayer::new(key, bucket()).respond(AsError);
        let desk = Desk::new(&layer);
        let _calls = desk.send_all(0..4).await;
        pass(500).await;
        layer.handle().refund(&0_u32, refund).await.unwrap();
        settle().await;
        let _newcomer = desk.send(9).await;
        pass(10_000).await;
        assert_eq!(desk.went(), expected, "{refund}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_given_back_to_another_key_moves_nobody() {
    let layer = RateLimitLayer::new(key, bucket()).respond(AsError);
    let desk = Desk::new(&layer);
    let _calls = desk.send_all(0..3).await;
    layer.handle().refund(&7_u32, 1).await.unwrap();
    pass(10_000).await;
    assert_eq!(desk.went(), [(0, 0), (1, 1_000), (2, 2_000)]);
}

#[tokio::test(start_paused = true)]
async fn where_several_limits_have_their_say_newcomers_bring_what_was_given_back() {
    let slow = LeakyBucket::new(Quota::per_second(2).burst(10)).queue(50);
    let layer = RateLimitLayer::new(key, (slow, bucket())).respond(AsError);
    let desk = Desk::new(&layer);
    let _calls = desk.send_all(0..4).await;
    layer.handle().refund(&0_u32, 2).await.unwrap();
    pass(500).await;
    // Its moment, 2 s, was that of the third one, who has it still: all are a moment better off.
    let _newcomer = desk.send(9).await;
    pass(10_000).await;
    let expected = [(0, 0), (1, 1_000), (2, 2_000), (3, 2_000), (9, 3_000)];
    assert_eq!(desk.went(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_penalty_is_for_newcomers() {
    let layer = RateLimitLayer::new(key, bucket()).respond(AsError);
    let desk = Desk::new(&layer);
    let _calls = desk.send_all(0..3).await;
    layer.handle().penalise(&0_u32, 2).await.unwrap();
    let _newcomer = desk.send(9).await;
    pass(10_000).await;
    assert_eq!(desk.went(), [(0, 0), (1, 1_000), (2, 2_000), (9, 5_000)]);
}

#[tokio::test(start_paused = true)]
async fn a_quota_that_is_set_behind_the_lines_back_is_for_newcomers() {
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
        let desk = Desk::new(&layer);
        let handle = layer.handle();
        let _calls = desk.send_all(0..3).await;
        let twice = Quota::per_second(2).burst(10);
        if how == "by the handle" {
            handle.set_quota(twice).unwrap();
        } else {
            handle.backend().set_quota(twice).unwrap();
        }
        let _newcomer = desk.send(9).await;
        pass(10_000).await;
        assert_eq!(desk.went(), expected, "{how}");
    }
}

#[tokio::test(start_paused = true)]
async fn where_costs_differ_nobody_takes_a_moment_that_was_granted_for_another_cost() {
    let bucket = LeakyBucket::new(Quota::per_second(1).burst(10)).queue(8);
    let layer = RateLimitLayer::new(key, bucket)
        .cost(|job: &Job| job.cost)
        .respond(AsError)
        .order(Order::Newest);
    let desk = Desk::new(&layer);
    let mut calls = Vec::new();
    // The moments that are granted are 1, 3, 4 and 7 s.
    for (name, cost) in [(0, 1), (1, 2), (2, 1), (3, 3), (4, 1)] {
        calls.push(desk.send_of(name, cost).await);
    }
    // The line is full: whoever comes is turned away, not somebody who waits.
    let late = desk.send_of(5, 4).await;
    assert_eq!(layer.handle().waiting(), 4);
    assert_eq!(layer.handle().counts().denied, 1);
    drop(late);
    pass(1_500).await;
    assert_eq!(desk.went(), [(0, 0), (1, 1_000)]);
    // One leaves, and takes what it cost along.
    cancel(calls.remove(3)).await;
    pass(20_000).await;
    assert_eq!(desk.went(), [(0, 0), (1, 1_000), (2, 3_000), (4, 4_000)]);
}
