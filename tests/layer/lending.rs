//! Important requests that borrow units of the time to come.

use std::time::Duration;

use tokio::time::{Instant, timeout};
use tower::{BoxError, Layer, Service, ServiceExt, service_fn};
use tower_throttle::algorithm::Lending;
use tower_throttle::key::Priority;
use tower_throttle::{
    AsError, FixedWindow, Global, Quota, RateLimitLayer, RateLimited, Settle, SlidingLog,
};

/// A request: whether it is important.
type Job = bool;

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "a layer reads the priority of a request that it borrows"
)]
fn priority(job: &Job) -> Priority {
    match job {
        true => Priority::HIGH,
        false => Priority::LOW,
    }
}

async fn done(_: Job) -> Result<(), BoxError> {
    Ok(())
}

/// Three per second from the first request on; two of the next second are lent.
fn limit() -> Lending<FixedWindow> {
    Lending::new(FixedWindow::new(Quota::per_second(3)).anchored(), 2)
}

/// When the request went on, in milliseconds, or what it was told.
async fn sent<S>(service: S, job: Job, begun: Instant) -> Result<u128, Option<Duration>>
where
    S: Service<Job, Response = (), Error = BoxError>,
{
    match service.oneshot(job).await {
        Ok(()) => Ok(begun.elapsed().as_millis()),
        Err(error) => {
            let limited = error.downcast::<RateLimited>().expect("a denial");
            Err(limited.retry_after())
        }
    }
}

/// Shows promises 380, 382.
#[tokio::test(start_paused = true)]
async fn important_requests_wait_for_the_next_window_where_others_are_denied() {
    let layer = RateLimitLayer::new(Global, limit()).respond(AsError);
    let layer = layer.priority(priority).lend_to(Priority::HIGH);
    let handle = layer.handle();
    let service = layer.layer(service_fn(done));
    let begun = Instant::now();
    for job in [false, true, false] {
        assert_eq!(sent(service.clone(), job, begun).await, Ok(0));
    }
    let second = Some(Duration::from_secs(1));
    assert_eq!(sent(service.clone(), false, begun).await, Err(second));
    // Two borrow, one of which leaves; a third one takes its place, and a fourth one is told when.
    let borrow = || tokio::spawn(sent(service.clone(), true, begun));
    let [first, leaves] = [borrow(), borrow()];
    tokio::task::yield_now().await;
    assert_eq!(sent(service.clone(), true, begun).await, Err(second));
    leaves.abort();
    let _ = leaves.await;
    let third = borrow();
    tokio::task::yield_now().await;
    assert_eq!(sent(service.clone(), true, begun).await, Err(second));
    assert_eq!(sent(service.clone(), false, begun).await, Err(second));
    assert_eq!(first.await.expect("no panic"), Ok(1_000));
    assert_eq!(third.await.expect("no panic"), Ok(1_000));
    // What they took is missing in the window that has begun.
    assert_eq!(sent(service.clone(), false, begun).await, Ok(1_000));
    assert_eq!(sent(service.clone(), false, begun).await, Err(second));
    assert_eq!(handle.counts().waited, 3);
}

/// Shows promise 381.
#[tokio::test(start_paused = true)]
async fn without_the_setting_and_beyond_the_longest_wait_nothing_is_lent() {
    let short = limit().max_wait(Duration::from_millis(999));
    for layer in [
        RateLimitLayer::new(Global, limit()).respond(AsError),
        RateLimitLayer::new(Global, short)
            .lend_to(Priority::HIGH)
            .respond(AsError),
    ] {
        let service = layer.priority(priority).layer(service_fn(done));
        let begun = Instant::now();
        for _ in 0..3 {
            assert_eq!(sent(service.clone(), true, begun).await, Ok(0));
        }
        let denied = sent(service.clone(), true, begun);
        let denied = timeout(Duration::from_millis(1), denied).await;
        assert_eq!(denied, Ok(Err(Some(Duration::from_secs(1)))));
    }
}

/// The refund of a request that went on concerns the window of its turn.
///
/// Shows promise 382.
#[tokio::test(start_paused = true)]
async fn what_was_lent_is_given_back_where_it_counts() {
    let log = Lending::new(SlidingLog::new(Quota::per_second(1)), 1);
    let layer = RateLimitLayer::new(Global, log).respond(AsError);
    let layer = layer.lend_to(Priority::HIGH);
    let handle = layer.handle();
    let service = layer
        .settle(|(): &()| Settle::Refund)
        .layer(service_fn(done));
    let begun = Instant::now();
    handle.charge(&(), 1).await.expect("it never fails");
    assert_eq!(sent(service.clone(), true, begun).await, Ok(1_000));
    assert_eq!(handle.peek_now(&(), 1).remaining(), 1);
}

/// Over a store the same.
///
/// Shows promise 380.
#[cfg(feature = "cas")]
#[tokio::test(start_paused = true)]
async fn a_store_lends_as_well() {
    use tower_throttle::store::cas::{Cas, MemoryStore};

    let machine = |store: &MemoryStore| {
        let layer = RateLimitLayer::new(Global, Cas::new(store.clone(), "api", limit()));
        let layer = layer.respond(AsError).lend_to(Priority::HIGH);
        layer.priority(priority).layer(service_fn(done))
    };
    let store = MemoryStore::new();
    let [here, there] = [machine(&store), machine(&store)];
    let begun = Instant::now();
    for service in [&here, &there, &here] {
        assert!(sent(service.clone(), false, begun).await.is_ok());
    }
    let borrow = |service: &_| {
        let service: &tower_throttle::RateLimit<_, _, _, _> = service;
        tokio::spawn(sent(service.clone(), true, begun))
    };
    let [first, second] = [borrow(&here), borrow(&there)];
    let waited = [first.await, second.await];
    for waited in waited {
        let at = waited.expect("no panic").expect("it goes on");
        assert!((990..1_010).contains(&at), "{at}");
    }
}
