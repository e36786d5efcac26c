//! Waiting without a tokio runtime, and in runtimes without timers.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use super::*;
use tower_throttle::clock::{MonotonicClock, Timer};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// A minimal executor: runs a future on this thread without tokio.
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

/// Paces six calls at 200 per second on both limiters, which takes at least 25 ms.
async fn check_pacing() {
    let bucket = TokenBucket::new(Quota::per_second(200).burst(1));
    let limiter = Limiter::new(bucket);
    let local = Local::new(bucket).capacity(10);
    let start = MonotonicClock.now();
    for _ in 0..6 {
        limiter.until_ready().await;
        local.until_ready("key").await;
    }
    assert!(MonotonicClock.now().since(start) >= Duration::from_millis(25));
    // An hour, so that a pause of this thread does not end the wait.
    let scarce = Local::new(TokenBucket::new(Quota::per_hour(1))).capacity(10);
    assert!(scarce.check("key").is_admitted());
    let denied = scarce.acquire("key", 1, Duration::from_micros(1)).await;
    assert!(denied.is_denied());
}

/// Shows promise 35.
#[test]
fn waiting_works_without_a_runtime() {
    block_on(check_pacing());
}

#[test]
fn several_threads_can_wait_at_the_same_time() {
    let limiter = Limiter::new(TokenBucket::new(Quota::per_second(1_000).burst(1)));
    let ready = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                block_on(limiter.until_ready());
                ready.fetch_add(1, Ordering::Relaxed);
            });
        }
    });
    assert_eq!(ready.into_inner(), 8);
}

#[test]
fn a_dropped_sleep_drops_its_waker() {
    struct NoopWake;
    impl Wake for NoopWake {
        fn wake(self: Arc<Self>) {}
    }

    fn check(timer: &impl Timer) {
        let count = Arc::new(NoopWake);
        let waker = Waker::from(Arc::clone(&count));
        let far = timer.now().plus(Duration::from_secs(1_000));
        for _ in 0..100 {
            let mut sleep = Box::pin(timer.sleep_until(far));
            for _ in 0..3 {
                let polled = sleep.as_mut().poll(&mut Context::from_waker(&waker));
                assert!(polled.is_pending());
            }
            assert!(Arc::strong_count(&count) > 2);
        }
        assert_eq!(Arc::strong_count(&count), 2, "{timer:?}");
    }
    check(&ManualClock::new());
    check(&MonotonicClock);
}
