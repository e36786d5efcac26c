//! Calls end by their deadline wherever they are polled.

use std::{
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread,
    time::Duration,
};

use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;
use tower_throttle::store::{Backend, redis::Redis};
use tower_throttle::{FixedWindow, Quota};

use crate::redis_server::RedisServer;

const DEADLINE: Duration = Duration::from_millis(50);
/// Much longer than a deadline, on a busy machine too.
const HANGS: Duration = Duration::from_secs(5);

fn runtime() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_all().build().expect("a runtime")
}

/// Polls a future on this thread, without a runtime.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    let begun = Instant::now();
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        thread::park_timeout(HANGS);
        assert!(begun.elapsed() < HANGS, "the call hangs");
    }
}

/// Shows promise 86.
#[test]
fn a_call_ends_by_its_deadline_without_a_runtime() {
    let server = RedisServer::start();
    let redis = Redis::open(&server.url()).expect("a url");
    let limiter = redis
        .deadline(DEADLINE)
        .limiter("none", FixedWindow::new(Quota::per_day(1_000)));
    let runtime = runtime();
    let _ = runtime.block_on(limiter.decide("key", 1));
    server.signal("STOP");
    let entered = runtime.enter();
    let calls: Vec<_> = (0..10).map(|_| limiter.decide("key", 1)).collect();
    drop(entered);
    for call in calls {
        let error = block_on(call).expect_err("the server is stopped");
        let is_late = error.to_string().contains("no decision within 50ms");
        assert!(is_late, "{error}");
    }
    server.signal("CONT");
}
