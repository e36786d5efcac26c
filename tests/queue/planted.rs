//! Checks of what is promised, and services with a mistake planted in them, on which they fail.

use std::{
    future::Future,
    mem,
    pin::Pin,
    task::{Context, Poll, Waker},
};

use tokio_test::task;
use tower::{Layer, Service};
use tower_throttle::{AsError, Global, LeakyBucket, Quota, RateLimitLayer};

use crate::support::{Boxed, Desk, Job, Record, cancel, pass, poll_ready};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// The seat of a service that was dropped is not given back.
    SeatKept,
    /// Who waits for a seat is not woken when there is one.
    NoWake,
    /// Whoever asks again does so as a newcomer, so that others may be before it.
    Barging,
    /// A call that was dropped stays in line.
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
    type Future = Stays;

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

    fn call(&mut self, job: Job) -> Stays {
        let call = self.inner.as_mut().unwrap().call(job);
        Stays {
            call: Some(Box::pin(call)),
            fault: self.fault,
        }
    }
}

type Answer = Pin<Box<dyn Future<Output = Result<u32, Boxed>> + Send>>;

struct Stays {
    call: Option<Answer>,
    fault: Fault,
}

impl Future for Stays {
    type Output = Result<u32, Boxed>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.call.as_mut().unwrap().as_mut().poll(cx)
    }
}

impl Drop for Stays {
    fn drop(&mut self) {
        if self.fault == Fault::SlotLost {
            mem::forget(self.call.take());
        }
    }
}

/// One a second and one seat, or as many as may be, with `fault`.
fn desk(
    fault: Fault,
    seats: u32,
) -> Desk<impl Service<Job, Response = u32, Error = Boxed, Future: Send> + Clone + Send + 'static> {
    let bucket = LeakyBucket::new(Quota::per_second(1)).queue(100);
    let layer = RateLimitLayer::new(Global, bucket)
        .respond(AsError)
        .seats(seats);
    Desk::new(&tower::layer::layer_fn(move |record: Record| Faulty {
        inner: Some(layer.layer(record)),
        fault,
    }))
}

/// A service that is dropped while it is ready leaves its seat to another.
fn a_dropped_service_gives_its_seat_back(fault: Fault) -> bool {
    let desk = desk(fault, 1);
    let mut first = task::spawn(desk.service.clone());
    assert!(poll_ready(&mut first).is_ready());
    drop(first);
    poll_ready(&mut task::spawn(desk.service.clone())).is_ready()
}

/// A call that is dropped while it waits wakes the one who waits for its seat.
async fn a_cancelled_call_wakes_who_waits_for_its_seat(fault: Fault) -> bool {
    let desk = desk(fault, 1);
    let _first = desk.send(0).await;
    let waits = desk.send(1).await;
    let mut next = task::spawn(desk.service.clone());
    assert!(poll_ready(&mut next).is_pending());
    cancel(waits).await;
    next.is_woken()
}

/// Who waited first for a seat has the first one.
fn seats_are_given_in_order(fault: Fault) -> bool {
    let desk = desk(fault, 1);
    let mut holder = task::spawn(desk.service.clone());
    assert!(poll_ready(&mut holder).is_ready());
    let [mut first, mut second] = [(); 2].map(|()| task::spawn(desk.service.clone()));
    assert!(poll_ready(&mut first).is_pending());
    assert!(poll_ready(&mut second).is_pending());
    drop(holder);
    let second = poll_ready(&mut second).is_ready();
    poll_ready(&mut first).is_ready() && !second
}

/// Who leaves the line is missed by nobody but the last slot.
async fn a_cancelled_call_leaves_no_gap(fault: Fault) -> bool {
    let desk = desk(fault, 100);
    let mut calls = desk.send_all(0..4).await;
    cancel(calls.remove(1)).await;
    pass(10_000).await;
    desk.went() == [(0, 0), (2, 1_000), (3, 2_000)]
}

#[tokio::test(start_paused = true)]
async fn what_is_promised_holds_and_each_planted_mistake_is_found() {
    for (fault, expected) in [
        (Fault::None, [true; 4]),
        // While it is called, a service is dropped as well.
        (Fault::SeatKept, [false, true, false, true]),
        (Fault::NoWake, [true, false, true, true]),
        (Fault::Barging, [true, true, false, true]),
        (Fault::SlotLost, [true, false, true, false]),
    ] {
        let holds = [
            a_dropped_service_gives_its_seat_back(fault),
            a_cancelled_call_wakes_who_waits_for_its_seat(fault).await,
            seats_are_given_in_order(fault),
            a_cancelled_call_leaves_no_gap(fault).await,
        ];
        assert_eq!(holds, expected, "{fault:?}");
    }
}
