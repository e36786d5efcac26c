//! The timers of a queue whose requests wait on several runtimes, or on none.

use std::{
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::Thread,
    time::Duration,
};

use tokio::runtime::{Builder, Runtime};
use tower::{Layer, Service, ServiceExt};
use tower_throttle::{
    AsError, Global, LeakyBucket, Local, Quota, RateLimitLayer,
    clock::{Clock, MonotonicClock},
};

use crate::support::{Boxed, Harness, Job, Record, pass, settle};

const JOB: Job = Job { name: 1, cost: 1 };

type Layered =
    RateLimitLayer<Global, Local<LeakyBucket>, tower_throttle::respond::Responder<AsError>>;

fn layer(quota: Quota) -> Layered {
    RateLimitLayer::new(Global, LeakyBucket::new(quota.burst(1)))
        .queue(100)
        .respond(AsError)
}

fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Sends a request that passes and one that waits for a millisecond.
async fn wait_for_a_millisecond() {
    let layer = layer(Quota::per_second(1_000));
    let mut service = layer.layer(Record::idle());
    let start = MonotonicClock.now();
    assert!(poll_once(&mut service.call(JOB)).is_ready());
    service.call(JOB).await.unwrap();
    let waited = MonotonicClock.now().since(start);
    assert!(waited >= Duration::from_millis(1), "{waited:?}");
    assert_eq!(layer.handle().waiting(), 0);
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Shows promise 35.
#[test]
fn a_request_waits_outside_a_runtime() {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut waits = pin!(wait_for_a_millisecond());
    while waits
        .as_mut()
        .poll(&mut Context::from_waker(&waker))
        .is_pending()
    {
        std::thread::park();
    }
}

/// A call that was polled once on another runtime and is not polled again.
fn wait_on_another_runtime<S>(
    service: &S,
    mut builder: Builder,
) -> (
    Runtime,
    impl Future<Output = Result<u32, Boxed>> + Send + use<S>,
)
where
    S: Service<Job, Response = u32, Error = Boxed, Future: Send> + Clone + Send + 'static,
{
    let service = service.clone();
    let begun = std::thread::spawn(move || {
        let runtime = builder.enable_time().build().unwrap();
        let mut call = Box::pin(service.oneshot(JOB));
        runtime.block_on(async {
            assert!(poll_once(&mut call).is_pending());
        });
        (runtime, call)
    });
    begun.join().unwrap()
}

/// Shows promise 62.
#[tokio::test(start_paused = true)]
async fn a_runtime_that_is_not_driven_does_not_block_another() {
    let harness = Harness::new(&layer(Quota::per_minute(1)));
    let _first = harness.send(0).await;
    let undriven = wait_on_another_runtime(&harness.service, Builder::new_current_thread());
    let _last = harness.send(2).await;
    pass(300_000).await;
    let served = harness.served();
    assert_eq!((served.len(), served[1].0), (2, 2));
    assert!((119_999..=120_001).contains(&served[1].1), "{served:?}");
    std::thread::spawn(move || drop(undriven)).join().unwrap();
}

/// Shows promise 62.
#[tokio::test(start_paused = true)]
async fn after_a_runtime_shuts_down_others_drive_its_queues() {
    let harness = Harness::new(&layer(Quota::per_minute(1)));
    let _first = harness.send(0).await;
    // Its workers drive the timer of the queue, for later requests too.
    let (runtime, call) = wait_on_another_runtime(&harness.service, Builder::new_multi_thread());
    let _last = harness.send(2).await;
    std::thread::spawn(move || drop(runtime)).join().unwrap();
    settle().await;
    pass(300_000).await;
    let served = harness.served();
    assert_eq!((served.len(), served[1].0), (2, 2));
    assert!((119_999..=120_001).contains(&served[1].1), "{served:?}");
    drop(call);
}
