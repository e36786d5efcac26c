//! Whose timers a line goes by: those who wait may be on several runtimes, or on none.

use std::{
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use tokio::runtime::{Builder, Runtime};
use tower::{Layer, Service, ServiceExt};
use tower_throttle::{
    AsError, Global, Handle, LeakyBucket, Local, Quota, RateLimitLayer, RateLimited,
};

use crate::support::{Boxed, Desk, Job, Record, pass, settle};

const JOB: Job = Job { name: 1, cost: 1 };

type Layered =
    RateLimitLayer<Global, Local<LeakyBucket>, tower_throttle::respond::Responder<AsError>>;

/// So many a second.
fn layer(rate: u64) -> Layered {
    RateLimitLayer::new(Global, LeakyBucket::new(Quota::per_second(rate)).queue(100))
        .respond(AsError)
}

fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// One request goes, the next has to wait: what becomes of it, and how long the one after it would
/// have to.
fn second_of_three(
    layer: &Layered,
    handle: &Handle<(), Local<LeakyBucket>>,
) -> (Poll<Result<u32, Boxed>>, Duration) {
    let mut service = layer.layer(Record::idle());
    assert!(poll_once(&mut service.call(JOB)).is_ready());
    let polled = poll_once(&mut service.call(JOB));
    let Poll::Ready(Ok(third)) = poll_once(&mut handle.peek(&(), 1)) else {
        panic!("it decides at once");
    };
    (polled, third.wait().unwrap())
}

fn assert_denied(polled: Poll<Result<u32, Boxed>>, third: Duration) {
    let Poll::Ready(Err(error)) = polled else {
        panic!("it can not wait, but is neither let in nor left alone: {polled:?}");
    };
    let denied = error.downcast_ref::<RateLimited>().unwrap();
    let retry = denied.retry_after().unwrap();
    assert!(retry > Duration::ZERO && retry <= Duration::from_secs(1));
    assert!(third <= Duration::from_secs(1), "it has left no gap");
}

#[test]
fn who_would_wait_outside_of_a_runtime_is_denied() {
    let layer = layer(1);
    let (polled, third) = second_of_three(&layer, &layer.handle());
    assert_denied(polled, third);
}

#[test]
fn who_would_wait_on_a_runtime_without_timers_is_denied() {
    for mut builder in [Builder::new_current_thread(), Builder::new_multi_thread()] {
        let runtime = builder.worker_threads(1).build().unwrap();
        let layer = layer(1);
        let (polled, third) = runtime.block_on(async { second_of_three(&layer, &layer.handle()) });
        assert_denied(polled, third);
    }
}

#[test]
fn a_call_may_be_made_outside_and_waited_for_on_a_runtime() {
    let layer = layer(1);
    let mut service = layer.layer(Record::idle());
    let calls = [service.call(JOB), service.call(JOB)];
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let [mut first, mut second] = calls;
        assert!(poll_once(&mut first).is_ready());
        assert!(poll_once(&mut second).is_pending());
    });
    assert_eq!(layer.handle().waiting(), 0);
}

/// A call that waits on another runtime, has been polled once and is not polled again.
fn waits_elsewhere<S>(
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

#[tokio::test(start_paused = true)]
async fn a_runtime_that_nobody_drives_holds_up_nobody_on_another() {
    let desk = Desk::new(&layer(1));
    let _first = desk.send(0).await;
    let undriven = waits_elsewhere(&desk.service, Builder::new_current_thread());
    let _last = desk.send(2).await;
    pass(5_000).await;
    let went = desk.went();
    assert_eq!((went.len(), went[1].0), (2, 2));
    assert!((1_999..=2_001).contains(&went[1].1), "{went:?}");
    std::thread::spawn(move || drop(undriven)).join().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_goes_away_leaves_its_lines_to_others() {
    let desk = Desk::new(&layer(1));
    let _first = desk.send(0).await;
    // Its workers see to the line, and whoever comes later relies on that.
    let (runtime, call) = waits_elsewhere(&desk.service, Builder::new_multi_thread());
    let _last = desk.send(2).await;
    std::thread::spawn(move || drop(runtime)).join().unwrap();
    settle().await;
    pass(5_000).await;
    let went = desk.went();
    assert_eq!((went.len(), went[1].0), (2, 2));
    assert!((1_999..=2_001).contains(&went[1].1), "{went:?}");
    drop(call);
}

#[tokio::test(start_paused = true)]
async fn who_is_polled_once_and_never_again_keeps_nobody_behind_from_going() {
    // All of them within a millisecond, so that one alarm would do for them.
    let desk = Desk::new(&layer(10_000));
    let _first = desk.send(0).await;
    let mut held = Box::pin(desk.service.clone().oneshot(JOB));
    assert!(poll_once(&mut held).is_pending());
    let _rest = desk.send_all(2..6).await;
    pass(5).await;
    let names: Vec<_> = desk.went().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, [0, 2, 3, 4, 5]);
    drop(held);
}
