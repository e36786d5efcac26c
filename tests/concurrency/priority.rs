//! Requests of high priority go first, and get the permits that are reserved for them.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until};
use tokio_test::{assert_pending, assert_ready_err, task};
use tower::{BoxError, Layer, ServiceExt, service_fn};
use tower_throttle::concurrency::{ConcurrencyLimitLayer, Gradient2};
use tower_throttle::{AsError, Global, RateLimited};

const SECOND: Duration = Duration::from_secs(1);
const FOREVER: Duration = Duration::from_secs(1_000_000);

/// A request: its priority, and how long it takes.
type Job = (u8, Duration);

async fn serve((_, time): Job) -> Result<(), BoxError> {
    if time == FOREVER {
        std::future::pending::<()>().await;
    }
    sleep(time).await;
    Ok(())
}

/// A layer around `serve` with a limit by the priority of the job.
macro_rules! layer {
    ($limit:expr) => {
        layer!(of ConcurrencyLimitLayer::new(Global, $limit))
    };
    (of $layer:expr) => {
        $layer
            .priority(|job: &Job| job.0)
            .release_at_response()
            .respond(AsError)
    };
}

/// Shows promise 641.
#[tokio::test(start_paused = true)]
async fn reserved_permits_are_for_requests_of_at_least_their_priority() {
    let layer = layer!(10).reserve(80, 3);
    let service = layer.layer(service_fn(serve));
    let mut in_flight = Vec::new();
    for (priority, part) in [(50, 7), (79, 7), (80, 10), (100, 10)] {
        while in_flight.len() < part {
            let mut call = task::spawn(service.clone().oneshot((priority, FOREVER)));
            assert_pending!(call.poll(), "{priority:?}");
            in_flight.push(call);
        }
        let mut beyond = task::spawn(service.clone().oneshot((priority, FOREVER)));
        let error = assert_ready_err!(beyond.poll(), "{priority:?}");
        let denied = error.downcast_ref::<RateLimited>().unwrap();
        let decision = denied.decision().unwrap();
        assert_eq!((decision.limit, decision.remaining()), (part as u64, 0));
        assert_eq!(decision.retry_after, Some(SECOND));
    }
    assert_eq!(layer.handle().in_flight(&()), 10);
}

/// Shows promise 641.
#[tokio::test(start_paused = true)]
async fn a_cost_above_what_is_not_reserved_is_refused_for_good() {
    let layer = layer!(10).cost(|_: &Job| 6).reserve(100, 5);
    let service = layer.layer(service_fn(serve));
    let error = service.clone().oneshot((50, SECOND)).await;
    let error = error.unwrap_err();
    let denied = error.downcast_ref::<RateLimited>().unwrap();
    assert_eq!(denied.decision().unwrap().retry_after, None);
    assert!(service.oneshot((100, SECOND)).await.is_ok());
    let adaptive = ConcurrencyLimitLayer::adaptive(Gradient2::new().start_at(10));
    let adaptive = layer!(of adaptive).cost(|_: &Job| 6);
    let service = adaptive.reserve(100, 5).layer(service_fn(serve));
    assert!(service.oneshot((50, SECOND)).await.is_ok());
}

/// How many of the requests of each priority are served: 160 per second of each, by 20 workers that
/// take 100 ms for one.
async fn served_under_overload(
    layer: ConcurrencyLimitLayer<Global>,
    queue: u32,
    priorities: [u8; 2],
) -> [u64; 2] {
    let workers = std::sync::Arc::new(tokio::sync::Semaphore::new(20));
    let reserved = if queue == 0 { 10 } else { 0 };
    let layer = layer!(of layer).queue(queue).reserve(100, reserved);
    let service = layer.layer(service_fn(move |_: Job| {
        let workers = std::sync::Arc::clone(&workers);
        async move {
            let _worker = workers.acquire_owned().await?;
            sleep(SECOND / 10).await;
            Ok::<(), BoxError>(())
        }
    }));
    let (start, mut calls) = (tokio::time::Instant::now(), JoinSet::new());
    for n in 0..160 * 60 {
        sleep_until(start + SECOND * n / 160).await;
        for (index, priority) in priorities.into_iter().enumerate() {
            let call = service.clone().oneshot((priority, SECOND));
            calls.spawn(async move { call.await.is_ok().then_some(index) });
        }
    }
    let mut served = [0; 2];
    while let Some(ended) = calls.join_next().await {
        if let Some(index) = ended.unwrap() {
            served[index] += 1;
        }
    }
    served
}

/// The server can do 200 requests per second, and there are 320. Without a queue, permits are reserved.
///
/// Shows promises 189, 641.
#[tokio::test(start_paused = true)]
async fn under_overload_the_lowest_priority_is_denied_first() {
    let all = 160 * 60;
    for queue in [0, 10] {
        let fixed = || ConcurrencyLimitLayer::new(Global, 20);
        let adaptive = || ConcurrencyLimitLayer::adaptive(Gradient2::new().between(5, 60));
        for [low, high] in [
            served_under_overload(fixed(), queue, [50, 100]).await,
            served_under_overload(adaptive(), queue, [50, 100]).await,
        ] {
            assert!(high * 100 >= all * 97, "{high} of {all}, queue {queue}");
            assert!(low * 100 < all * 45, "{low} of {all}, queue {queue}");
        }
        // With the same priority both lose.
        for [first, second] in [
            served_under_overload(fixed(), queue, [100; 2]).await,
            served_under_overload(adaptive(), queue, [100; 2]).await,
        ] {
            assert!(second * 100 < all * 90, "{first} {second}, queue {queue}");
        }
    }
}
