//! A queue whose turns Redis grants and in which requests wait in this process.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::store::{cas::Cas, redis::Redis};
use tower_throttle::{AsError, Global, Handle, LeakyBucket, Quota, RateLimitLayer, RateLimited};

use crate::redis::open;
use crate::redis_server::RedisServer;
use crate::wait::until;

type Layered =
    RateLimitLayer<Global, Cas<Redis, LeakyBucket>, tower_throttle::respond::Responder<AsError>>;

async fn layer(server: &RedisServer, quota: Quota) -> Layered {
    let redis = open(&server.url()).await;
    let bucket = LeakyBucket::new(quota.burst(1));
    RateLimitLayer::new(Global, redis.limiter("line", bucket))
        .queue(50)
        .respond(AsError)
}

#[derive(Debug)]
enum Failed {
    Limited,
}

impl From<RateLimited> for Failed {
    fn from(_: RateLimited) -> Self {
        Self::Limited
    }
}

impl From<Infallible> for Failed {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

/// How long the next request would wait.
async fn next(handle: &Handle<(), Cas<Redis, LeakyBucket>>) -> Duration {
    let decision = handle.peek(&(), 1).await.expect("a decision");
    let wait = decision.wait().or(decision.retry_after);
    wait.expect("it is no more than the capacity")
}

/// Shows promise 100.
#[tokio::test]
async fn two_machines_release_in_turn_and_never_early() {
    let server = RedisServer::start();
    let went = Arc::new(Mutex::new(Vec::new()));
    let mut calls = Vec::new();
    // Two machines that share only the server.
    let quota = Quota::per_second(20);
    let machines = [layer(&server, quota).await, layer(&server, quota).await];
    let begun = Instant::now();
    for name in 0..6_u32 {
        let machine = &machines[name as usize % 2];
        let (handle, went) = (machine.handle(), Arc::clone(&went));
        let service = machine.layer(service_fn(move |name: u32| {
            went.lock().unwrap().push((name, begun.elapsed()));
            std::future::ready(Ok::<_, Failed>(()))
        }));
        calls.push(tokio::spawn(service.oneshot(name)));
        // It has taken the next turn.
        until("it has its turn", async || {
            let counts = handle.counts();
            counts.admitted + counts.waited == u64::from(name / 2 + 1)
        })
        .await;
    }
    for call in calls {
        call.await.expect("no panic").expect("it is let in");
    }
    let went = went.lock().unwrap().clone();
    assert_eq!(went.len(), 6);
    for (name, time) in &went {
        // On a busy machine two that are late may change places. The server counts microseconds.
        let due = Duration::from_millis(50) * *name;
        assert!(*time + Duration::from_micros(2) >= due, "{went:?}");
    }
}

/// Shows promise 100.
#[tokio::test]
async fn a_cancelled_request_gives_its_turn_back_if_it_is_the_last() {
    const HOUR: Duration = Duration::from_secs(3_600);
    let server = RedisServer::start();
    let layer = layer(&server, Quota::per_hour(1)).await;
    let layer = layer.seats(2).deny_when_full();
    let handle = layer.handle();
    let service = layer.layer(service_fn(|_: u32| std::future::ready(Ok::<_, Failed>(()))));
    service.clone().oneshot(0).await.expect("it does not wait");
    let mut calls = Vec::new();
    for name in 1..=2 {
        calls.push(tokio::spawn(service.clone().oneshot(name)));
        until("it waits", async || handle.waiting() == u64::from(name)).await;
    }
    assert!(next(&handle).await > 2 * HOUR);
    // There is no third seat: its units are refunded as well.
    let denied = tokio::spawn(service.clone().oneshot(3))
        .await
        .expect("no panic");
    assert!(matches!(denied, Err(Failed::Limited)));
    until("the denied request is refunded", async || {
        next(&handle).await <= 3 * HOUR
    })
    .await;
    // The last one first: a turn before another one passes unused.
    for left in [2, 1] {
        let call = calls.remove(left - 1);
        call.abort();
        assert!(call.await.expect_err("it was told to").is_cancelled());
        assert_eq!(handle.waiting(), left as u64 - 1);
        until("its units are refunded", async || {
            let wait = next(&handle).await;
            wait <= HOUR * u32::try_from(left).unwrap()
        })
        .await;
    }
}
