//! Very many queued requests: rates, cancels and the shutdown of a runtime.

use std::{
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use tokio_test::task;
use tower::{Layer, ServiceExt};
use tower_throttle::{AsError, Global, LeakyBucket, Quota, RateLimitLayer};

use crate::computed::{computed, growth};
use crate::random::Random;
use crate::support::{Harness, Job, Record, pass, settle};

const JOB: Job = Job { name: 1, cost: 1 };

/// Shows promise 25.
#[tokio::test(start_paused = true)]
async fn the_rate_is_reached_in_the_long_run_and_never_exceeded() {
    for (rate, count) in [
        (1_u32, 50_u32),
        (100, 2_000),
        (2_000, 4_000),
        (10_000, 20_000),
    ] {
        let bucket = LeakyBucket::new(Quota::per_second(rate.into()).burst(1));
        let layer = RateLimitLayer::new(Global, bucket)
            .queue(1_000_000)
            .respond(AsError);
        let harness = Harness::new(&layer);
        for name in 0..count {
            tokio::spawn(harness.service.clone().oneshot(Job { name, cost: 1 }));
        }
        settle().await;
        let whole = u64::from(count / rate) * 1_000 + 1_000;
        pass(whole).await;
        let times = harness.times();
        assert_eq!(times.len(), usize::try_from(count).unwrap());
        for (turn, (name, time)) in (0_u32..).zip(&times) {
            assert_eq!(*name, turn, "first come, first served");
            let due = u64::from(turn) * 1_000_000 / u64::from(rate);
            // Never early, and at most a millisecond late.
            assert!(
                (due..=due + 2_000).contains(time),
                "request {turn} at {rate}/s: released at {time}, due at {due}"
            );
        }
        let (_, last) = times[times.len() - 1];
        let ideal = u64::from(count - 1) * 1_000_000 / u64::from(rate);
        assert!(
            last - ideal <= ideal / 1_000,
            "{rate}/s: last at {last}, expected {ideal}"
        );
    }
}

/// Shows promise 62.
#[tokio::test(start_paused = true)]
async fn of_those_that_leave_at_random_none_takes_a_turn() {
    let bucket = LeakyBucket::new(Quota::per_hour(1).burst(1));
    let layer = RateLimitLayer::new(Global, bucket)
        .queue(u32::MAX)
        .respond(AsError);
    let (harness, handle) = (Harness::new(&layer), layer.handle());
    let call = |name| tokio::spawn(harness.service.clone().oneshot(Job { name, cost: 1 }));
    let mut calls: Vec<_> = (0..100_000).map(|name| (name, call(name))).collect();
    pass(1).await;
    assert_eq!(handle.waiting(), 99_999);
    let mut random = Random::new(5);
    while calls.len() > 20_000 {
        let left = 1 + random.index(calls.len() - 1);
        calls.swap_remove(left).1.abort();
        if calls.len() % 10_000 == 0 {
            pass(1).await;
            assert_eq!(handle.waiting(), calls.len() as u64 - 1);
        }
    }
    let faster = Quota::per_second(1_000_000).burst(1);
    handle.set_quota(faster).unwrap();
    pass(100).await;
    calls.sort_unstable_by_key(|call| call.0);
    let served: Vec<_> = harness.times().iter().map(|time| time.0).collect();
    assert!(calls.iter().map(|call| call.0).eq(served));
}

#[tokio::test(start_paused = true)]
async fn each_turn_wakes_the_request_whose_turn_it_is() {
    let bucket = LeakyBucket::new(Quota::per_second(1_000).burst(1));
    let layer = RateLimitLayer::new(Global, bucket)
        .queue(9)
        .respond(AsError);
    let service = Harness::new(&layer).service;
    let mut calls = [(); 9].map(|()| task::spawn(service.clone().oneshot(JOB)));
    let waits = calls.iter_mut().map(|call| call.poll().is_pending());
    assert_eq!(waits.filter(|waits| *waits).count(), 8);
    for turn in 1..9 {
        pass(1).await;
        let woken = (turn..9).filter(|at| calls[*at].is_woken());
        assert_eq!(woken.collect::<Vec<_>>(), [turn]);
        assert!(calls[turn].poll().is_ready());
    }
}

/// Lets `count` requests wait on a runtime and drops it. Returns how long that computes, on this thread
/// alone if there is no other.
fn shut_down(runtime: &mut tokio::runtime::Builder, count: usize) -> Duration {
    let runtime = runtime.enable_time().build().unwrap();
    let bucket = LeakyBucket::new(Quota::per_minute(1).burst(1));
    let layer = RateLimitLayer::new(Global, bucket)
        .queue(1_000_000)
        .respond(AsError);
    let handle = layer.handle();
    let service = layer.layer(Record::idle());
    runtime.block_on(async {
        let calls: Vec<_> = (0..=count)
            .map(|_| tokio::spawn(service.clone().oneshot(JOB)))
            .collect();
        while handle.counts().waited < count as u64 {
            tokio::task::yield_now().await;
        }
        drop(calls);
    });
    let took = computed(|| drop(runtime));
    // All have left the queue, and took nothing.
    let look = handle.peek(&(), 1);
    let mut look = pin!(look);
    let Poll::Ready(Ok(decision)) = look.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    else {
        panic!("the decision is not pending");
    };
    assert!(decision.retry_after.unwrap() <= Duration::from_secs(60));
    assert_eq!(handle.waiting(), 0);
    took
}

/// Leaving a line takes logarithmic time.
#[test]
fn shutting_down_a_runtime_takes_no_longer_per_request_if_more_wait() {
    use tokio::runtime::Builder;
    let grown = growth(5_000, |count| {
        shut_down(&mut Builder::new_current_thread(), count)
    });
    assert!(grown < 24, "{grown}");
    shut_down(Builder::new_multi_thread().worker_threads(2), 10_000);
}
