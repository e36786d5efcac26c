//! Limits that adapt, one per key.

use std::{sync::OnceLock, time::Duration};

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use tower::{BoxError, Layer, Service, ServiceExt, service_fn};
use tower_throttle::concurrency::{
    Aimd, ConcurrencyLimitLayer, Gradient2, InProcess, IntoLimit, PerKey, Permits, SystemGuard,
};
use tower_throttle::{AsError, Handle};

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

/// A request: its key, and how long it takes.
type Job = (u32, Duration);

trait JobService:
    Service<Job, Response = (), Error = BoxError, Future: Send> + Clone + Send + 'static
{
}

impl<S> JobService for S where
    S: Service<Job, Response = (), Error = BoxError, Future: Send> + Clone + Send + 'static
{
}

fn key(job: &Job) -> u32 {
    job.0
}

fn limited(limit: impl IntoLimit<Source = InProcess>) -> (impl JobService, Handle<u32, Permits>) {
    queued(limit, 0)
}

/// The same with a queue of at most so many requests.
fn queued(
    limit: impl IntoLimit<Source = InProcess>,
    most: u32,
) -> (impl JobService, Handle<u32, Permits>) {
    let layer = ConcurrencyLimitLayer::new(key, limit)
        .queue(most)
        .max_wait(SECOND * 1_000)
        .release_at_response()
        .respond(AsError);
    let handle = layer.handle();
    let service = layer.layer(service_fn(async |job: Job| {
        sleep(job.1).await;
        Ok::<(), BoxError>(())
    }));
    (service, handle)
}

/// Twelve requests of a key at once, in each of so many seconds. Returns how many were served.
async fn run(service: &impl JobService, seconds: u32, key: u32, latency: Duration) -> usize {
    let mut served = 0;
    for _ in 0..seconds {
        let end = Instant::now() + SECOND;
        let calls = (0..12).map(|_| service.clone().oneshot((key, latency)));
        let mut calls: JoinSet<_> = calls.collect();
        while let Some(ended) = calls.join_next().await {
            served += usize::from(ended.unwrap().is_ok());
        }
        sleep_until(end).await;
    }
    served
}

/// The limit of a key after 20 seconds of slow requests, which is low.
async fn lowered(service: &impl JobService, handle: &Handle<u32, Permits>, key: u32) -> u64 {
    run(service, 20, key, MS * 100).await;
    let low = handle.limit_of(&key);
    assert!(low < 10, "{low}");
    low
}

fn aimd() -> Aimd {
    Aimd::new(MS * 60).between(1, 40).start_at(16)
}

/// Shows promise 188.
#[tokio::test(start_paused = true)]
async fn the_limit_of_each_key_follows_its_own_latency() {
    let (service, handle) = limited(aimd());
    for _ in 0..10 {
        run(&service, 1, 1, MS * 50).await;
        run(&service, 1, 2, MS * 100).await;
    }
    let (fast, slow) = (handle.limit_of(&1), handle.limit_of(&2));
    assert!(fast >= 20, "{fast}");
    assert!(slow <= 8, "{slow}");
    assert_eq!((handle.limit_of(&3), handle.limit()), (16, 16));
    // And it is the limit of that key alone.
    assert_eq!(run(&service, 1, 1, MS * 50).await, 12);
    assert_eq!(
        run(&service, 1, 2, MS * 100).await,
        usize::try_from(slow).unwrap()
    );
    assert_eq!((handle.keys(), handle.kept_limits()), (0, 2));
}

/// Shows promise 188.
#[tokio::test(start_paused = true)]
async fn a_key_without_requests_is_forgotten_at_its_time() {
    let (service, handle) = limited(PerKey::new(aimd()).forget(SECOND * 100));
    let low = lowered(&service, &handle, 1).await;
    let used = Instant::now();
    assert!(service.clone().oneshot((1, Duration::ZERO)).await.is_ok());
    sleep_until(used + SECOND * 100 - MS).await;
    assert_eq!(handle.limit_of(&1), low);
    sleep_until(used + SECOND * 100).await;
    assert_eq!(handle.limit_of(&1), 16);
    // All that was learned is gone: the old samples do not end the window of the new key.
    assert_eq!(run(&service, 1, 1, MS * 100).await, 12);
}

/// Shows promise 188.
#[tokio::test(start_paused = true)]
async fn at_most_the_capacity_is_kept_and_a_key_in_use_is_not_displaced() {
    for capacity in [1, 63, 64, 128, 200, 1_000] {
        let (service, handle) = limited(PerKey::new(aimd()).capacity(capacity));
        lowered(&service, &handle, 0).await;
        for n in 1..5_000 {
            service.clone().oneshot((n, Duration::ZERO)).await.unwrap();
            if n % 20 == 0 {
                service.clone().oneshot((0, Duration::ZERO)).await.unwrap();
            }
            assert!(handle.kept_limits() <= capacity, "{capacity}");
        }
        assert!(handle.kept_limits() * 4 >= capacity * 3, "{capacity}");
        // 20 others do not displace it if there is room for 64.
        assert_eq!(handle.limit_of(&0) < 10, capacity > 20, "{capacity}");
    }
}

/// The limit of a key rises while requests of that key and of another wait.
///
/// Shows promise 188.
#[tokio::test(start_paused = true)]
async fn a_limit_that_rises_wakes_the_waiters_of_its_key_alone() {
    let (service, handle) = queued(Gradient2::new().start_at(1).between(1, 50), 200);
    let mut calls = JoinSet::new();
    for n in 0..200 {
        calls.spawn(service.clone().oneshot((1, MS * 100)));
        if n < 3 {
            calls.spawn(service.clone().oneshot((2, SECOND * 500)));
        }
    }
    let begun = Instant::now();
    for _ in 0..200 {
        calls.join_next().await.unwrap().unwrap().unwrap();
    }
    // One at a time would take 20 s.
    assert!(begun.elapsed() < SECOND * 10, "{:?}", begun.elapsed());
    assert!(handle.limit_of(&1) > 4);
    assert_eq!((handle.in_flight(&2), handle.waiting()), (1, 2));
    assert_eq!(handle.limit_of(&2), 1);
}

/// The only limit that is kept is displaced while requests of its key wait.
///
/// Shows promise 188.
#[tokio::test(start_paused = true)]
async fn a_key_that_begins_anew_wakes_those_who_wait() {
    let (service, handle) = queued(PerKey::new(aimd()).capacity(1), 20);
    let low = lowered(&service, &handle, 1).await;
    let call = |key| tokio_test::task::spawn(service.clone().oneshot((key, SECOND * 500)));
    let mut calls: Vec<_> = (0..low + 2).map(|_| call(1)).collect();
    for call in &mut calls {
        tokio_test::assert_pending!(call.poll());
    }
    assert_eq!((handle.in_flight(&1), handle.waiting()), (low, 2));
    let mut other = call(2);
    tokio_test::assert_pending!(other.poll());
    // The limit of the first key is 16 again, so nothing has to wait.
    let mut newcomer = call(1);
    tokio_test::assert_pending!(newcomer.poll());
    assert_eq!((handle.in_flight(&1), handle.waiting()), (low + 3, 0));
    assert!(
        calls
            .iter()
            .rev()
            .take(2)
            .all(tokio_test::task::Spawn::is_woken)
    );
}

/// Shows promise 188.
#[tokio::test(start_paused = true)]
async fn a_flood_of_new_keys_does_not_displace_what_was_learned() {
    let (service, handle) = limited(PerKey::new(aimd()).capacity(8));
    for key in 0..3 {
        run(&service, 20, key, MS * 100).await;
    }
    let mut slow = tokio_test::task::spawn(service.clone().oneshot((3, SECOND * 500)));
    tokio_test::assert_pending!(slow.poll());
    for key in 10..1_000 {
        service
            .clone()
            .oneshot((key, Duration::ZERO))
            .await
            .unwrap();
    }
    for key in 0..3 {
        assert!(handle.limit_of(&key) < 10, "{key}");
    }
    assert_eq!(handle.kept_limits(), 8);
}

/// Two keys with limits that have learned are in use, and only two are kept.
///
/// Shows promise 188.
#[tokio::test(start_paused = true)]
async fn the_least_recently_used_limit_of_an_idle_key_is_displaced() {
    for (last, busy) in [(1, false), (2, false), (2, true)] {
        let (service, handle) = limited(PerKey::new(aimd()).capacity(2));
        lowered(&service, &handle, 1).await;
        lowered(&service, &handle, 2).await;
        let mut slow = tokio_test::task::spawn(service.clone().oneshot((1, SECOND * 500)));
        tokio_test::assert_pending!(slow.poll());
        let _slow = busy.then_some(slow);
        for key in [last, 3] {
            let call = service.clone().oneshot((key, Duration::ZERO));
            call.await.unwrap();
        }
        let kept = [1, 2].map(|key| handle.limit_of(&key) < 10);
        let first = last == 1 || busy;
        assert_eq!(kept, [first, !first], "{last} {busy}");
    }
    // Too few requests for a window teach nothing.
    let (service, handle) = limited(PerKey::new(aimd()).capacity(2));
    lowered(&service, &handle, 1).await;
    for key in [2, 2, 2, 3] {
        let call = service.clone().oneshot((key, Duration::ZERO));
        call.await.unwrap();
        sleep(SECOND * 2).await;
    }
    assert!(handle.limit_of(&1) < 10);
}

/// Shows promise 188.
#[tokio::test(start_paused = true)]
async fn a_key_is_not_forgotten_while_a_request_is_in_flight() {
    let (service, handle) = limited(PerKey::new(aimd()).forget(SECOND * 100));
    let low = lowered(&service, &handle, 1).await;
    let mut slow = tokio_test::task::spawn(service.clone().oneshot((1, SECOND * 500)));
    tokio_test::assert_pending!(slow.poll());
    sleep(SECOND * 300).await;
    assert_eq!((handle.limit_of(&1), handle.keys()), (low, 1));
    assert!(service.clone().oneshot((1, Duration::ZERO)).await.is_ok());
    assert_eq!(handle.limit_of(&1), low);
    drop(slow);
    sleep(SECOND * 100).await;
    assert_eq!(handle.limit_of(&1), 16);
}

/// It would wait for a lock that its own thread holds.
///
/// Shows promise 188.
#[tokio::test(start_paused = true)]
async fn the_load_may_be_what_the_handle_says() {
    static HANDLE: OnceLock<Handle<u32, Permits>> = OnceLock::new();
    let load = || {
        HANDLE
            .get()
            .map_or(0, |own| own.limit_of(&1) + own.in_flight(&1))
    };
    let (service, handle) = limited(SystemGuard::new(1, load));
    assert!(HANDLE.set(handle.clone()).is_ok());
    run(&service, 5, 1, MS * 50).await;
    assert!(handle.limit_of(&1) < 100, "{}", handle.limit_of(&1));
}

#[test]
fn settings_without_meaning_are_refused() {
    let refused = |make: fn() -> PerKey<Aimd>| std::panic::catch_unwind(make).is_err();
    assert!(refused(|| PerKey::new(aimd()).capacity(0)));
    assert!(refused(|| PerKey::new(aimd()).capacity(usize::MAX)));
    assert!(!refused(|| PerKey::new(aimd()).capacity(1 << 24)));
    assert!(refused(|| PerKey::new(aimd()).forget(Duration::ZERO)));
    let (_, handle) = limited(PerKey::new(aimd()));
    assert!(handle.set_limit(3).is_err());
}
