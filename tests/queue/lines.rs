//! When each queued request is released.

use std::{
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use tower::{Service, ServiceBuilder, layer::layer_fn};
use tower_throttle::{AsError, LeakyBucket, Lockout, Quota, RateLimitLayer, RateLimited, WarmUp};

use crate::support::{Boxed, Call, Harness, Job, Record, cancel, key, pass};

/// A harness whose layer has the key `key` and the cost `job.cost`.
macro_rules! harness {
    ($limit:expr, $queue:expr) => {
        Harness::new(
            &RateLimitLayer::new(key, $limit)
                .queue($queue)
                .cost(|job: &crate::support::Job| job.cost)
                .respond(AsError),
        )
    };
}

async fn denied(call: Call) -> RateLimited {
    let error = call.await.unwrap().unwrap_err();
    error.downcast_ref::<RateLimited>().unwrap().clone()
}

/// Shows promises 25, 59.
#[tokio::test(start_paused = true)]
async fn a_leaky_bucket_releases_one_per_interval() {
    let harness = harness!(LeakyBucket::new(Quota::per_second(2).burst(1)), 20);
    let _calls = harness.send_all(0..5).await;
    pass(5_000).await;
    assert_eq!(
        harness.served(),
        [(0, 0), (1, 500), (2, 1_000), (3, 1_500), (4, 2_000)]
    );
}

/// Shows promise 26.
#[tokio::test(start_paused = true)]
async fn a_warm_up_releases_faster_and_faster() {
    let warm = WarmUp::new(Quota::per_second(2), Duration::from_secs(4));
    let harness = harness!(warm, 20);
    let _calls = harness.send_all(0..5).await;
    pass(10_000).await;
    let expected = [(0, 0), (1, 1_375), (2, 2_500), (3, 3_375), (4, 4_000)];
    assert_eq!(harness.served(), expected);
}

/// Shows promise 62.
#[tokio::test(start_paused = true)]
async fn a_cancelled_request_frees_the_last_slot() {
    let harness = harness!(LeakyBucket::new(Quota::per_second(1).burst(1)), 20);
    let mut calls = harness.send_all(0..6).await;
    pass(1_500).await;
    assert_eq!(harness.served(), [(0, 0), (1, 1_000)]);
    // The third request was due at 2 s. All behind it are released a second earlier.
    cancel(calls.remove(2)).await;
    // A new request is released after them.
    let _last = harness.send(9).await;
    pass(10_000).await;
    let expected = [
        (0, 0),
        (1, 1_000),
        (3, 2_000),
        (4, 3_000),
        (5, 4_000),
        (9, 5_000),
    ];
    assert_eq!(harness.served(), expected);
}

/// Shows promise 10.
#[tokio::test(start_paused = true)]
async fn thirds_of_a_nanosecond_are_not_lost_by_refunds() {
    let harness = harness!(LeakyBucket::new(Quota::per_second(3).burst(2)), 1_000);
    let _first = harness.send_of(0, 2).await;
    let calls = harness.send_all(1..301).await;
    let _last = harness.send(999).await;
    for call in calls {
        cancel(call).await;
    }
    pass(10_000).await;
    let served = harness.times();
    assert_eq!(served.len(), 2);
    // 333,333,333 and a third; timers fire at whole milliseconds.
    assert_eq!(served[1], (999, 334_000));
}

/// Shows promise 59.
#[tokio::test(start_paused = true)]
async fn each_key_has_its_own_queue() {
    let harness = harness!(LeakyBucket::new(Quota::per_second(1).burst(1)), 20);
    let _a = harness.send_all(0..3).await;
    let mut b = harness.send_all(1_000..1_003).await;
    cancel(b.remove(1)).await;
    pass(10_000).await;
    let expected = [(0, 0), (1_000, 0), (1, 1_000), (1_002, 1_000), (2, 2_000)];
    let mut served = harness.served();
    served.sort_unstable_by_key(|(name, time)| (*time, *name));
    assert_eq!(served, expected);
}

/// Shows promise 59.
#[tokio::test(start_paused = true)]
async fn a_new_request_does_not_overtake_even_if_the_limiter_would_admit_it() {
    let layer = RateLimitLayer::new(key, LeakyBucket::new(Quota::per_second(1).burst(1)))
        .queue(20)
        .respond(AsError);
    let harness = Harness::new(&layer);
    let _calls = harness.send_all(0..3).await;
    // The limiter forgets the key and would admit the next request at once.
    layer.handle().reset(&0_u32).await.unwrap();
    let _next = harness.send(9).await;
    // Its moment is passed to the first waiter.
    assert_eq!(harness.served(), [(0, 0), (1, 0)]);
    pass(10_000).await;
    assert_eq!(harness.served(), [(0, 0), (1, 0), (2, 1_000), (9, 2_000)]);
}

/// Shows promise 61.
#[tokio::test(start_paused = true)]
async fn a_request_that_would_wait_too_long_is_denied_at_once() {
    let bucket = LeakyBucket::new(Quota::per_second(1).burst(1));
    let layer = RateLimitLayer::new(key, bucket).queue(50).respond(AsError);
    let harness = Harness::new(&layer.max_wait(Duration::from_millis(2_500)));
    let _calls = harness.send_all(0..3).await;
    pass(100).await;
    let late = harness.send(3).await;
    assert!(late.is_finished(), "denied at once");
    // It would be released at 3 s, and is accepted once that is 2.5 s away.
    assert_eq!(
        denied(late).await.retry_after(),
        Some(Duration::from_millis(400))
    );
    pass(399).await;
    assert!(harness.send(4).await.is_finished());
    pass(1).await;
    assert!(!harness.send(5).await.is_finished());
    pass(10_000).await;
    assert_eq!(
        harness.served(),
        [(0, 0), (1, 1_000), (2, 2_000), (5, 3_000)]
    );
}

/// The future of a call that has joined its queue and was not polled.
macro_rules! call_without_polling {
    ($harness:expr) => {
        tower::Service::call(
            &mut $harness.service.clone(),
            crate::support::Job { name: 1, cost: 1 },
        )
    };
}

/// Shows promise 62.
#[tokio::test(start_paused = true)]
async fn a_call_that_is_never_polled_passes_its_turn_on() {
    let harness = harness!(LeakyBucket::new(Quota::per_second(1).burst(1)), 20);
    let _first = harness.send(0).await;
    let held = call_without_polling!(harness);
    let _next = harness.send(2).await;
    // Its turn comes, but it is never polled.
    pass(1_200).await;
    assert_eq!(harness.served(), [(0, 0)]);
    drop(held);
    pass(10).await;
    assert_eq!(harness.served(), [(0, 0), (2, 1_200)]);
}

/// Shows promise 59.
#[tokio::test(start_paused = true)]
async fn a_call_polled_without_a_wake_up_does_not_proceed_early() {
    let harness = harness!(LeakyBucket::new(Quota::per_second(1).burst(1)), 20);
    let _first = harness.send(0).await;
    let mut calls: Vec<_> = (1..4)
        .map(|name| {
            let job = crate::support::Job { name, cost: 1 };
            let mut service = harness.service.clone();
            tokio_test::task::spawn(tower::Service::call(&mut service, job))
        })
        .collect();
    for seconds in 0..4 {
        for (call, turn) in calls
            .iter_mut()
            .skip(seconds.max(1) - 1)
            .zip(seconds.max(1)..)
        {
            assert_eq!(
                call.poll().is_ready(),
                turn == seconds,
                "{turn} at {seconds}"
            );
        }
        pass(1_000).await;
    }
    assert_eq!(
        harness.served(),
        [(0, 0), (1, 1_000), (2, 2_000), (3, 3_000)]
    );
}

/// The result of the service's `poll_ready`.
#[derive(Clone, Default)]
enum Readiness {
    #[default]
    Ready,
    FailsOnce,
}

#[derive(Clone)]
struct Flaky {
    inner: Record,
    readiness: Arc<Mutex<Readiness>>,
}

impl Service<Job> for Flaky {
    type Response = u32;
    type Error = Boxed;
    type Future = <Record as Service<Job>>::Future;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Boxed>> {
        let mut readiness = self.readiness.lock().unwrap();
        match &mut *readiness {
            Readiness::Ready => Poll::Ready(Ok(())),
            Readiness::FailsOnce => {
                *readiness = Readiness::Ready;
                Poll::Ready(Err("not ready".into()))
            }
        }
    }

    fn call(&mut self, job: Job) -> Self::Future {
        self.inner.call(job)
    }
}

/// One request per second to a service whose readiness changes.
macro_rules! flaky {
    ($readiness:expr) => {{
        let readiness = Arc::clone(&$readiness);
        let flaky_layer = layer_fn(move |inner| Flaky {
            inner,
            readiness: Arc::clone(&readiness),
        });
        let bucket = LeakyBucket::new(Quota::per_second(1).burst(1));
        let limit = RateLimitLayer::new(key, bucket).queue(20).respond(AsError);
        Harness::new(&ServiceBuilder::new().layer(limit).layer(flaky_layer))
    }};
}

/// Shows promise 62.
#[tokio::test(start_paused = true)]
async fn a_turn_is_used_up_by_a_request_whose_service_then_fails() {
    let readiness = Arc::<Mutex<Readiness>>::default();
    let harness = flaky!(readiness);
    let mut calls = harness.send_all(0..4).await;
    pass(900).await;
    *readiness.lock().unwrap() = Readiness::FailsOnce;
    pass(5_000).await;
    let error = calls.remove(1).await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "not ready");
    assert_eq!(harness.served(), [(0, 0), (2, 2_000), (3, 3_000)]);
}

/// Shows promise 224.
#[tokio::test(start_paused = true)]
async fn a_lockout_counts_the_denials_of_a_full_queue() {
    let bucket = LeakyBucket::new(Quota::per_second(1).burst(1));
    let lockout = Lockout::new(Quota::per_minute(2)).after_denials_of(bucket);
    let layer = RateLimitLayer::new(key, lockout).queue(1).respond(AsError);
    let harness = Harness::new(&layer);
    let _calls = harness.send_all(0..2).await;
    for call in harness.send_all(2..4).await {
        denied(call).await;
    }
    pass(20_000).await;
    let blocked = denied(harness.send(4).await).await;
    assert_eq!(blocked.retry_after(), Some(Duration::from_secs(40)));
    assert_eq!(harness.served(), [(0, 0), (1, 1_000)]);
}
