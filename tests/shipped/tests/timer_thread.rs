//! The thread that wakes sleepers outside of a runtime. On Linux the threads of a process can be listed.
#![cfg(target_os = "linux")]

use std::fs::{read_dir, read_to_string};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{Thread, current, park};
use std::time::{Duration, Instant};

use tower_throttle::{Limiter, Quota, TokenBucket};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => park(),
        }
    }
}

fn timer_threads() -> usize {
    let tasks = read_dir("/proc/self/task").expect("the threads of this process");
    let names = tasks.filter_map(|task| read_to_string(task.ok()?.path().join("comm")).ok());
    // The kernel keeps 15 characters.
    names
        .filter(|name| name.starts_with("tower-throttle-"))
        .count()
}

/// Shows promise 35.
#[test]
fn the_timer_thread_starts_with_the_first_sleeper() {
    let limiter = Limiter::new(TokenBucket::new(Quota::per_second(1)));
    block_on(limiter.until_ready());
    assert_eq!(timer_threads(), 0, "the first call does not wait");
    let first = Instant::now();
    loop {
        let mut next = pin!(limiter.until_ready());
        let mut cx = Context::from_waker(Waker::noop());
        // After a stall of a second it does not wait.
        if next.as_mut().poll(&mut cx).is_pending() {
            block_on(next);
            break;
        }
        assert!(first.elapsed() < Duration::from_secs(60), "no call waits");
    }
    assert_eq!(timer_threads(), 1);
}
