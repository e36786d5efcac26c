//! Queued requests, in paused time.

use std::time::Duration;

use tokio_test::{assert_pending, assert_ready_ok, task};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_throttle::{
    AnyAlgorithm, AsError, FixedWindow, Global, Headers, LeakyBucket, Lockout, Quota,
    RateLimitLayer, RateLimited,
    store::{Op, Receipt},
};

use crate::support::{Script, admit, deny, wait};

type Boxed = Box<dyn std::error::Error + Send + Sync>;

async fn echo(request: u8) -> Result<u8, Boxed> {
    Ok(request)
}

async fn unit(_: http::Request<()>) -> Result<http::Response<()>, Boxed> {
    Ok(http::Response::new(()))
}

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn the_response_to_a_request_that_has_waited_states_the_limit() {
    let layer = RateLimitLayer::new(Global, LeakyBucket::new(Quota::per_second(1).burst(1)));
    let service = layer.queue(1).headers(Headers::Draft11);
    let service = service.layer(service_fn(unit));
    for _ in 0..2 {
        let response = service.clone().oneshot(http::Request::new(()));
        assert!(response.await.unwrap().headers().contains_key("ratelimit"));
    }
}

/// Shows promise 61.
#[tokio::test(start_paused = true)]
async fn the_time_until_the_decision_counts_as_a_part_of_the_timeout() {
    let script = Script::default();
    let reply = script.later();
    let service = RateLimitLayer::new(Global, script.clone())
        .queue(9)
        .layer(service_fn(unit));
    let request = http::Request::builder()
        .header("grpc-timeout", "1S")
        .body(());
    let mut response = task::spawn(service.oneshot(request.unwrap()));
    assert_pending!(response.poll());
    tokio::time::advance(Duration::from_millis(500)).await;
    reply.send(Ok(wait(Duration::from_millis(900)))).unwrap();
    let denied = assert_ready_ok!(response.poll());
    let reason = denied.extensions().get::<RateLimited>().unwrap();
    assert_eq!(reason.retry_after(), Some(Duration::from_millis(400)));
    assert_eq!(script.ops()[1..], [Op::Cancel(1, Receipt::NOW)]);
}

/// Shows promises 56, 62.
#[tokio::test(start_paused = true)]
async fn those_that_wait_go_on_when_an_operator_gives_something_back() {
    let day = FixedWindow::new(Quota::per_day(1)).anchored();
    let layer = RateLimitLayer::new(Global, day).queue(9).respond(AsError);
    let (handle, service) = (layer.handle(), layer.layer(service_fn(echo)));
    let mut calls = [0, 1, 2, 3].map(|n| task::spawn(service.clone().oneshot(n)));
    let mut done = [false; 4];
    let mut ready = || {
        for (done, call) in done.iter_mut().zip(&mut calls) {
            *done = *done || call.poll().is_ready();
        }
        done
    };
    assert_eq!(ready(), [true, false, false, false]);
    handle.reset(&()).await.unwrap();
    assert_eq!(ready(), [true, true, false, false]);
    handle.refund(&(), 1).await.unwrap();
    assert_eq!(ready(), [true, true, true, false]);
    handle.set_quota(Quota::per_day(2)).unwrap();
    assert_eq!(ready(), [true; 4]);
}

/// Shows promise 62.
#[tokio::test(start_paused = true)]
async fn the_cost_of_a_cancelled_waiter_is_refunded() {
    let script = Script::now([wait(SECOND), wait(SECOND)]);
    let layer = RateLimitLayer::new(Global, script.clone())
        .respond(AsError)
        .cost(|cost: &u8| u64::from(*cost));
    let mut service = layer.layer(service_fn(echo));
    let mut response = task::spawn(service.ready().await.unwrap().call(3));
    assert_pending!(response.poll());
    assert_eq!(script.ops(), [Op::Take(3)]);
    drop(response);
    let refunded = [Op::Take(3), Op::Cancel(3, Receipt::NOW)];
    assert_eq!(script.ops(), refunded);
    // One that costs nothing gives nothing back.
    let mut response = task::spawn(service.ready().await.unwrap().call(0));
    assert_pending!(response.poll());
    drop(response);
    assert_eq!(script.ops(), [refunded[0], refunded[1], Op::Take(0)]);
}

/// Shows promise 62.
#[tokio::test(start_paused = true)]
async fn a_request_that_has_waited_keeps_its_cost() {
    let script = Script::now([wait(SECOND), admit(), deny()]);
    let layer = RateLimitLayer::new(Global, script.clone()).respond(AsError);
    for request in 0..3 {
        let _ = layer.layer(service_fn(echo)).oneshot(request).await;
    }
    assert_eq!(script.ops(), [Op::Take(1); 3], "nothing was refunded");
}

/// Shows promise 62.
#[tokio::test(start_paused = true)]
async fn an_admitted_request_that_is_dropped_keeps_its_cost() {
    let script = Script::default();
    let layer = RateLimitLayer::new(Global, script.clone()).respond(AsError);
    let never = service_fn(|(): ()| std::future::pending::<Result<(), Boxed>>());
    let mut response = task::spawn(layer.layer(never).oneshot(()));
    assert_pending!(response.poll());
    drop(response);
    assert_eq!(script.ops(), [Op::Take(1)]);
}

/// Shows promises 17, 317.
#[tokio::test(start_paused = true)]
async fn those_that_wait_keep_their_turns_if_the_limit_becomes_a_lockout_of_denials() {
    let bucket = || LeakyBucket::new(Quota::per_second(1).burst(1));
    let layer = RateLimitLayer::new(Global, AnyAlgorithm::new(bucket())).queue(5);
    let handle = layer.handle();
    let service = layer.respond(AsError).layer(service_fn(echo));
    let mut calls = [1, 2, 3].map(|n| task::spawn(service.clone().oneshot(n)));
    let ready = calls.each_mut().map(|call| call.poll().is_ready());
    assert_eq!(ready, [true, false, false]);
    let start = tokio::time::Instant::now();
    let lockout = Lockout::new(Quota::per_minute(100)).after_denials_of(bucket());
    handle.set_algorithm(AnyAlgorithm::new(lockout)).unwrap();
    let [_, second, third] = calls;
    assert_eq!((second.await.unwrap(), third.await.unwrap()), (2, 3));
    assert_eq!(start.elapsed(), 2 * SECOND);
    // A limit that was one, and becomes another, has a line.
    let layer = RateLimitLayer::new(Global, AnyAlgorithm::new(lockout)).queue(1);
    let window = AnyAlgorithm::new(FixedWindow::new(Quota::per_second(1)));
    layer.handle().set_algorithm(window).unwrap();
    let service = layer.respond(AsError).layer(service_fn(echo));
    for n in [4, 5] {
        assert_eq!(service.clone().oneshot(n).await.unwrap(), n);
    }
}
