//! Waiting outside a runtime, and in runtimes without timers.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use tokio::runtime::Builder;
use tower::{BoxError, Layer, ServiceExt, service_fn};
use tower_throttle::respond::AsError;
use tower_throttle::{Global, LeakyBucket, Limiter, Local, Quota, RateLimitLayer, TokenBucket};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread, as an executor other than tokio does.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// Paces six calls and three requests at 200 per second.
async fn pace() {
    let bucket = TokenBucket::new(Quota::per_second(200).burst(1));
    let limiter = Limiter::new(bucket);
    let local = Local::new(bucket).capacity(10);
    let start = Instant::now();
    for _ in 0..6 {
        limiter.until_ready().await;
        local.until_ready("key").await;
    }
    // The clock may be 0.1 ms ahead.
    assert!(start.elapsed() >= Duration::from_micros(24_900));
    // Requests that wait in a layer.
    let bucket = LeakyBucket::new(Quota::per_second(200).burst(1));
    let layer = RateLimitLayer::new(Global, bucket)
        .queue(5)
        .respond(AsError);
    let service = layer.layer(service_fn(async |()| Ok::<_, BoxError>(())));
    let start = Instant::now();
    for _ in 0..3 {
        service.clone().oneshot(()).await.unwrap();
    }
    assert!(start.elapsed() >= Duration::from_micros(9_900));
    // An hour, so that a pause of this thread does not end the wait.
    let scarce = Local::new(TokenBucket::new(Quota::per_hour(1))).capacity(10);
    assert!(scarce.check("key", 1).is_admitted());
    let denied = scarce.acquire("key", 1, Duration::from_micros(1)).await;
    assert!(denied.is_denied());
}

/// A hundred waits of 1 ms, one after the other. On a busy machine some of them end late, but not most.
///
/// Shows promise 35.
#[test]
fn a_sleeper_is_woken_soon_after_its_time() {
    let limiter = Limiter::new(TokenBucket::new(Quota::per_second(1_000).burst(1)));
    let start = Instant::now();
    let mut waits: Vec<_> = (0..100)
        .map(|_| {
            let begun = Instant::now();
            block_on(limiter.until_ready());
            std::thread::park_timeout(Duration::ZERO);
            begun.elapsed()
        })
        .collect();
    let elapsed = start.elapsed();
    assert!(elapsed >= Duration::from_micros(98_900), "{elapsed:?}");
    waits.sort_unstable();
    assert!(waits[50] < Duration::from_millis(40), "{waits:?}");
}

/// Shows promise 35.
#[test]
fn without_a_runtime() {
    block_on(pace());
}

/// Shows promise 35.
#[test]
fn in_a_runtime_without_timers() {
    Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(pace());
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    runtime.block_on(async { tokio::spawn(pace()).await.unwrap() });
}

#[test]
fn in_a_runtime_with_timers() {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(pace());
}

/// Shows promise 35.
#[test]
fn a_sleeper_outlives_the_runtime_it_was_polled_in() {
    let limiter = Arc::new(Limiter::new(LeakyBucket::new(
        Quota::per_second(1).burst(1),
    )));
    assert!(limiter.check(1).is_admitted());
    let mut waiting = Box::pin({
        let limiter = Arc::clone(&limiter);
        async move { limiter.until_ready().await }
    });
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(std::future::poll_fn(|cx| {
        assert!(waiting.as_mut().poll(cx).is_pending());
        Poll::Ready(())
    }));
    drop(runtime);
    block_on(waiting);
}

/// Shows promise 35.
#[test]
fn many_sleepers_are_woken_in_time() {
    let limiter = Limiter::new(TokenBucket::new(Quota::per_second(2_000).burst(1)));
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..64 {
            scope.spawn(|| block_on(limiter.until_ready()));
        }
    });
    let elapsed = start.elapsed();
    assert!(elapsed >= Duration::from_micros(31_400), "{elapsed:?}");
    assert!(elapsed < Duration::from_secs(10), "{elapsed:?}");
}
