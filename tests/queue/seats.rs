//! Seats: a service is ready while one is free.

use std::{
    future::{Ready, ready},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use tokio_test::{assert_pending, assert_ready_ok, task};
use tower::{Layer, Service, ServiceExt, limit::ConcurrencyLimit};
use tower_throttle::{AsError, Global, LeakyBucket, Local, Quota, RateLimitLayer};

use crate::random::Random;
use crate::support::{Boxed, Harness, Job, cancel, pass, poll_ready, settle};

/// One request per second, and at most `seats` queued requests in total.
fn layer(seats: u32) -> RateLimitLayer<Global, Local<LeakyBucket>, AsErrors> {
    let bucket = LeakyBucket::new(Quota::per_second(1).burst(1));
    RateLimitLayer::new(Global, bucket)
        .queue(100)
        .respond(AsError)
        .seats(seats)
}

type AsErrors = tower_throttle::respond::Responder<AsError>;

/// Shows promise 68.
#[tokio::test(start_paused = true)]
async fn a_service_is_ready_while_there_is_a_seat() {
    let harness = Harness::new(&layer(2));
    let mut services = [(); 3].map(|()| task::spawn(harness.service.clone()));
    assert_ready_ok!(poll_ready(&mut services[0]));
    assert_ready_ok!(poll_ready(&mut services[1]));
    assert_ready_ok!(poll_ready(&mut services[1]), "it already has a seat");
    assert_pending!(poll_ready(&mut services[2]));
    let [first, second, mut third] = services;
    drop(first);
    assert!(third.is_woken());
    assert_ready_ok!(poll_ready(&mut third));
    drop(second);
}

/// Shows promise 68.
#[tokio::test(start_paused = true)]
async fn dropping_a_response_wakes_exactly_one_seat_waiter() {
    let harness = Harness::new(&layer(1));
    let _first = harness.send(0).await;
    let waits = harness.send(1).await;
    let mut services = [(); 3].map(|()| task::spawn(harness.service.clone()));
    for service in &mut services {
        assert_pending!(poll_ready(service));
    }
    cancel(waits).await;
    assert_eq!(
        services.each_ref().map(task::Spawn::is_woken),
        [true, false, false]
    );
    // It is dropped too, so the next one gets the seat.
    let [first, second, third] = services;
    drop(first);
    assert!(second.is_woken() && !third.is_woken());
    drop(second);
    assert!(third.is_woken());
}

/// Shows promise 68.
#[tokio::test(start_paused = true)]
async fn a_seat_waiter_is_not_overtaken() {
    let harness = Harness::new(&layer(1));
    let mut holder = harness.service.clone();
    let _ = ServiceExt::<Job>::ready(&mut holder).await.unwrap();
    let mut first = task::spawn(harness.service.clone());
    assert_pending!(poll_ready(&mut first));
    drop(holder);
    let mut barges = task::spawn(harness.service.clone());
    assert_pending!(poll_ready(&mut barges));
    assert_ready_ok!(poll_ready(&mut first));
}

/// A service that is ready while it is set so.
#[derive(Clone, Debug)]
struct Switched(Arc<AtomicBool>);

impl Service<Job> for Switched {
    type Response = ();
    type Error = Boxed;
    type Future = Ready<Result<(), Boxed>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Boxed>> {
        if self.0.load(Ordering::Relaxed) {
            Poll::Ready(Ok(()))
        } else {
            Poll::Pending
        }
    }

    fn call(&mut self, _: Job) -> Self::Future {
        ready(Ok(()))
    }
}

/// Shows promise 68.
#[tokio::test(start_paused = true)]
async fn a_waiting_request_holds_no_readiness_of_the_service() {
    let one = ConcurrencyLimit::new(Switched(Arc::new(true.into())), 1);
    let service = layer(9).layer(one.clone());
    let call = |name| task::spawn(service.clone().oneshot(Job { name, cost: 1 }));
    let (mut first, mut second) = (call(0), call(1));
    assert_ready_ok!(first.poll());
    assert_pending!(second.poll());
    assert_ready_ok!(poll_ready(&mut task::spawn(one)));
}

/// Shows promise 68.
#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_the_service_alone_has_no_seat() {
    let is_ready = Arc::new(AtomicBool::new(true));
    let service = layer(1).layer(Switched(Arc::clone(&is_ready)));
    let call = |name| task::spawn(service.clone().oneshot(Job { name, cost: 1 }));
    let (mut first, mut second) = (call(0), call(1));
    assert_ready_ok!(first.poll());
    assert_pending!(second.poll());
    is_ready.store(false, Ordering::Relaxed);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_pending!(second.poll());
    is_ready.store(true, Ordering::Relaxed);
    assert_ready_ok!(poll_ready(&mut task::spawn(service.clone())));
}

/// Shows promise 68.
#[tokio::test(start_paused = true)]
async fn the_number_of_seats_is_constant() {
    let layer = layer(4);
    let handle = layer.handle();
    let harness = Harness::new(&layer);
    let mut random = Random::new(7);
    let mut calls = Vec::new();
    for name in 0..500 {
        match random.below(4) {
            0 | 1 => calls.push(harness.send(name).await),
            2 if !calls.is_empty() => {
                let call = calls.swap_remove(random.index(calls.len()));
                call.abort();
                settle().await;
            }
            _ => pass(700).await,
        }
        // Every seat without a queued request is free.
        let mut services = [(); 5].map(|()| task::spawn(harness.service.clone()));
        let polled = services.each_mut().map(|it| poll_ready(it).is_ready());
        let free = polled.iter().filter(|ready| **ready).count();
        assert_eq!(free as u64 + handle.waiting(), 4, "{polled:?}");
    }
    calls.iter().for_each(tokio::task::JoinHandle::abort);
    settle().await;
    // Four seats are free, and there is no fifth.
    let mut services = [(); 5].map(|()| task::spawn(harness.service.clone()));
    let polled = services.each_mut().map(|it| poll_ready(it).is_ready());
    assert_eq!(polled, [true, true, true, true, false]);
}
