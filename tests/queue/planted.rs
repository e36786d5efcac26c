//! Checks of the queue, and services with planted bugs that each fail one check.

use std::{
    future::Future,
    mem,
    pin::Pin,
    task::{Context, Poll, Waker},
};

use tokio_test::task;
use tower::{Layer, Service};
use tower_throttle::{AsError, Global, LeakyBucket, Quota, RateLimitLayer};

use crate::support::{Boxed, Harness, Job, Record, cancel, pass, poll_ready};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// A dropped service keeps its seat.
    SeatKept,
    /// A seat waiter is not woken when a seat is free.
    NoWake,
    /// Each poll for readiness joins the seat waiters again, behind the others.
    Barging,
    /// A dropped call stays in the queue.
    SlotLost,
}

struct Faulty<S> {
    inner: Option<S>,
    fault: Fault,
}

impl<S: Clone> Clone for Faulty<S> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            fault: self.fault,
        }
    }
}

impl<S> Drop for Faulty<S> {
    fn drop(&mut self) {
        if self.fault == Fault::SeatKept {
            mem::forget(self.inner.take());
        }
    }
}

impl<S> Service<Job> for Faulty<S>
where
    S: Service<Job, Response = u32, Error = Boxed, Future: Send + 'static> + Clone,
{
    type Response = u32;
    type Error = Boxed;
    type Future = FaultyCall;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Boxed>> {
        if self.fault == Fault::Barging {
            self.inner = self.inner.clone();
        }
        let inner = self.inner.as_mut().unwrap();
        if self.fault == Fault::NoWake {
            inner.poll_ready(&mut Context::from_waker(Waker::noop()))
        } else {
            inner.poll_ready(cx)
        }
    }

    fn call(&mut self, job: Job) -> FaultyCall {
        let call = self.inner.as_mut().unwrap().call(job);
        FaultyCall {
            call: Some(Box::pin(call)),
            fault: self.fault,
        }
    }
}

type BoxedCall = Pin<Box<dyn Future<Output = Result<u32, Boxed>> + Send>>;

struct FaultyCall {
    call: Option<BoxedCall>,
    fault: Fault,
}

impl Future for FaultyCall {
    type Output = Result<u32, Boxed>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.call.as_mut().unwrap().as_mut().poll(cx)
    }
}

impl Drop for FaultyCall {
    fn drop(&mut self) {
        if self.fault == Fault::SlotLost {
            mem::forget(self.call.take());
        }
    }
}

/// One request per second and `seats` seats, with `fault`.
fn harness(
    fault: Fault,
    seats: u32,
) -> Harness<impl Service<Job, Response = u32, Error = Boxed, Future: Send> + Clone + Send + 'static>
{
    let bucket = LeakyBucket::new(Quota::per_second(1)).queue(100);
    let layer = RateLimitLayer::new(Global, bucket)
        .respond(AsError)
        .seats(seats);
    Harness::new(&tower::layer::layer_fn(move |record: Record| Faulty {
        inner: Some(layer.layer(record)),
        fault,
    }))
}

/// A service that is dropped while it is ready releases its seat.
fn a_dropped_service_releases_its_seat(fault: Fault) -> bool {
    let harness = harness(fault, 1);
    let mut first = task::spawn(harness.service.clone());
    assert!(poll_ready(&mut first).is_ready());
    drop(first);
    poll_ready(&mut task::spawn(harness.service.clone())).is_ready()
}

/// A call that is dropped while it waits wakes the first seat waiter.
async fn a_cancelled_call_wakes_a_seat_waiter(fault: Fault) -> bool {
    let harness = harness(fault, 1);
    let _first = harness.send(0).await;
    let waits = harness.send(1).await;
    let mut next = task::spawn(harness.service.clone());
    assert!(poll_ready(&mut next).is_pending());
    cancel(waits).await;
    next.is_woken()
}

/// The first seat waiter gets the first seat.
fn seats_are_given_in_order(fault: Fault) -> bool {
    let harness = harness(fault, 1);
    let mut holder = task::spawn(harness.service.clone());
    assert!(poll_ready(&mut holder).is_ready());
    let [mut first, mut second] = [(); 2].map(|()| task::spawn(harness.service.clone()));
    assert!(poll_ready(&mut first).is_pending());
    assert!(poll_ready(&mut second).is_pending());
    drop(holder);
    let second = poll_ready(&mut second).is_ready();
    poll_ready(&mut first).is_ready() && !second
}

/// A cancelled call frees the last slot.
async fn a_cancelled_call_leaves_no_gap(fault: Fault) -> bool {
    let harness = harness(fault, 100);
    let mut calls = harness.send_all(0..4).await;
    cancel(calls.remove(1)).await;
    pass(10_000).await;
    harness.served() == [(0, 0), (2, 1_000), (3, 2_000)]
}

/// Shows promise 62.
#[tokio::test(start_paused = true)]
async fn checks_pass_and_each_planted_bug_fails_one() {
    for (fault, expected) in [
        (Fault::None, [true; 4]),
        // Calling also drops a service.
        (Fault::SeatKept, [false, true, false, true]),
        (Fault::NoWake, [true, false, true, true]),
        (Fault::Barging, [true, true, false, true]),
        (Fault::SlotLost, [true, false, true, false]),
    ] {
        let holds = [
            a_dropped_service_releases_its_seat(fault),
            a_cancelled_call_wakes_a_seat_waiter(fault).await,
            seats_are_given_in_order(fault),
            a_cancelled_call_leaves_no_gap(fault).await,
        ];
        assert_eq!(holds, expected, "{fault:?}");
    }
}
