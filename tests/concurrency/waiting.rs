//! Requests that wait for a permit, in paused time.

use std::{future::pending, time::Duration};

use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok, task};
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::{AsError, Global, RateLimited, concurrency::ConcurrencyLimitLayer};

type Boxed = Box<dyn std::error::Error + Send + Sync>;

const SECOND: Duration = Duration::from_secs(1);

/// Requests of 0 never end.
async fn serve(request: u8) -> Result<u8, Boxed> {
    if request == 0 {
        pending::<()>().await;
    }
    Ok(request)
}

/// Shows promise 181.
#[tokio::test(start_paused = true)]
async fn if_the_newest_goes_first_the_oldest_is_denied_when_the_line_is_full() {
    let layer = ConcurrencyLimitLayer::new(Global, 1)
        .queue(2)
        .newest_first()
        .release_at_response()
        .respond(AsError);
    let service = layer.layer(service_fn(serve));
    let mut calls = [0, 7, 8, 9].map(|n| task::spawn(service.clone().oneshot(n)));
    for call in &mut calls {
        assert_pending!(call.poll());
    }
    let [first, mut oldest, mut newer, mut newest] = calls;
    assert!(oldest.is_woken());
    assert!(assert_ready_err!(oldest.poll()).is::<RateLimited>());
    drop(first);
    assert!(newest.is_woken() && !newer.is_woken());
    assert_eq!(assert_ready_ok!(newest.poll()), 9);
    assert!(newer.is_woken());
    assert_eq!(assert_ready_ok!(newer.poll()), 8);
}

/// Shows promise 181.
#[tokio::test(start_paused = true)]
async fn a_waiter_is_denied_when_its_time_is_over_and_leaves_the_line() {
    let layer = ConcurrencyLimitLayer::new(Global, 1)
        .queue(1)
        .max_wait(SECOND * 3)
        .release_at_response()
        .respond(AsError);
    let handle = layer.handle();
    let service = layer.layer(service_fn(serve));
    let mut first = task::spawn(service.clone().oneshot(0));
    assert_pending!(first.poll());
    let mut second = task::spawn(service.clone().oneshot(1));
    assert_pending!(second.poll());
    tokio::time::advance(Duration::from_millis(2_999)).await;
    assert_pending!(second.poll());
    let mut third = task::spawn(service.clone().oneshot(1));
    let full = assert_ready_err!(third.poll());
    assert!(full.is::<RateLimited>(), "the line is full");
    tokio::time::advance(Duration::from_millis(2)).await;
    assert!(second.is_woken());
    let late = assert_ready_err!(second.poll());
    let late = late.downcast_ref::<RateLimited>().unwrap();
    assert_eq!(late.to_string(), "too many requests at once, retry in 1 s");
    assert_eq!(handle.waiting(), 0);
    let counts = handle.counts();
    assert_eq!((counts.admitted, counts.waited, counts.denied), (1, 1, 2));
}

/// Shows promise 181.
#[tokio::test(start_paused = true)]
async fn seats_bound_the_waiting_requests_of_all_keys() {
    let layer = ConcurrencyLimitLayer::new(|key: &u8| *key, 1)
        .queue(5)
        .seats(2)
        .deny_when_full()
        .release_at_response()
        .respond(AsError);
    let never = service_fn(|_: u8| pending::<Result<(), Boxed>>());
    let mut calls = [1, 2, 3, 1, 2, 3].map(|key| task::spawn(layer.layer(never).oneshot(key)));
    let denied = calls.iter_mut().map(|call| call.poll().is_ready());
    assert_eq!(
        denied.collect::<Vec<_>>(),
        [false, false, false, false, false, true]
    );
    assert_eq!(layer.handle().waiting(), 2);
    // A seat is free again when a request leaves the line.
    let [first, .., fourth, _, _] = calls;
    drop((first, fourth));
    let mut again = task::spawn(layer.layer(never).oneshot(3));
    assert_pending!(again.poll());
}

/// Shows promise 181.
#[tokio::test(start_paused = true)]
async fn a_waiter_whose_time_is_over_has_no_permit() {
    let layer = ConcurrencyLimitLayer::new(Global, 1)
        .queue(1)
        .release_at_response()
        .respond(AsError);
    let handle = layer.handle();
    let service = layer.layer(service_fn(serve));
    let mut first = task::spawn(service.clone().oneshot(0));
    assert_pending!(first.poll());
    let mut second = task::spawn(service.oneshot(1));
    assert_pending!(second.poll());
    tokio::time::advance(SECOND * 2).await;
    drop(first);
    assert_eq!(handle.in_flight(&()), 0);
    assert_ready_err!(second.poll());
}
