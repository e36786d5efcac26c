//! A cost is given back only as far as it is still taken, by the clock of the server.

use std::sync::Arc;

use tokio::sync::Notify;
use tower::{BoxError, Layer, Service, ServiceExt, service_fn};
use tower_throttle::algorithm::AnyAlgorithm;
use tower_throttle::store::{Backend, Fallback, Op, Receipt};
use tower_throttle::store::{cas::Cas, redis::Redis};
use tower_throttle::{
    AsError, FixedWindow, Global, LeakyBucket, Local, Quota, RateLimitLayer, Settle, SlidingGrid,
    SlidingLog, TokenBucket,
};

use crate::redis::open;
use crate::redis_server::RedisServer;

/// Takes ten as soon as all of them are available. Returns the receipt.
async fn take_ten(limit: &Cas<Redis, AnyAlgorithm>) -> Receipt {
    let begun = tokio::time::Instant::now();
    loop {
        let decision = limit.decide("key", 10).await.expect("a decision");
        if decision.is_admitted() {
            return decision.receipt();
        }
        assert!(begun.elapsed().as_secs() < 30, "{decision:?}");
    }
}

/// What is left, and when that was by the clock of the server.
async fn remaining(limit: &Cas<Redis, AnyAlgorithm>) -> (u64, u64) {
    let decision = limit.apply("key", Op::Peek(0)).await;
    let decision = decision.expect("a decision");
    (decision.remaining(), decision.receipt().moment())
}

/// The most that time has returned by `now` of ten units per second that were taken at `taken`.
fn returned(taken: Receipt, now: u64) -> u64 {
    (now - taken.moment()) / 100_000
}

/// Shows promise 12.
#[tokio::test]
async fn a_cost_that_time_has_returned_is_not_given_back_again() {
    let server = RedisServer::start();
    let redis = open(&server.url()).await.without_deny_cache();
    let quota = Quota::per_second(10);
    for (name, algorithm) in [
        (
            "window",
            AnyAlgorithm::new(FixedWindow::new(quota).anchored()),
        ),
        ("log", AnyAlgorithm::new(SlidingLog::new(quota))),
        ("grid", AnyAlgorithm::new(SlidingGrid::new(quota).strict())),
        ("bucket", AnyAlgorithm::new(TokenBucket::new(quota))),
        ("meter", AnyAlgorithm::new(LeakyBucket::new(quota))),
    ] {
        let limit = redis.limiter(name, algorithm);
        let first = take_ten(&limit).await;
        let second = take_ten(&limit).await;
        assert!(second.moment() >= first.moment() + 1_000_000, "{name}");
        for op in [Op::Refund(10, first), Op::Cancel(10, first)] {
            let _ = limit.apply("key", op).await.expect("done");
        }
        let (left, now) = remaining(&limit).await;
        assert!(left <= returned(second, now), "{name}: {left}");
        let _ = limit
            .apply("key", Op::Refund(10, second))
            .await
            .expect("done");
        assert_eq!(remaining(&limit).await.0, 10, "{name}");
    }
}

/// Shows promise 12.
#[tokio::test]
async fn a_cost_that_redis_took_is_not_given_back_by_the_fallback() {
    let mut server = RedisServer::start();
    let redis = open(&server.url()).await.without_deny_cache();
    let fleet = redis.limiter("fleet", FixedWindow::new(Quota::per_day(10)));
    let machine = Local::new(FixedWindow::new(Quota::per_day(10)));
    let limit = Fallback::new(fleet, machine.clone());
    let (end, ended) = tokio::sync::watch::channel(false);
    // Called once the cost is taken.
    let called = Arc::new(Notify::new());
    let begins = Arc::clone(&called);
    let inner = service_fn(move |_: u64| {
        let mut ended = ended.clone();
        begins.notify_one();
        async move {
            ended.wait_for(|ended| *ended).await?;
            Ok::<_, BoxError>(Settle::Refund)
        }
    });
    let layer = RateLimitLayer::new(Global, limit.clone())
        .respond(AsError)
        .cost(|cost: &u64| *cost)
        .settle(|settle: &Settle| *settle);
    let mut service = layer.layer(inner);
    let slow = tokio::spawn(service.ready().await.expect("ready").call(6));
    called.notified().await;
    server.kill();
    let taken = limit.decide(&(), 3).await.expect("the fallback decides");
    assert_eq!(machine.peek(&(), 1).remaining(), 7);
    end.send(true).expect("a service");
    slow.await.expect("a response").expect("a response");
    assert_eq!(machine.peek(&(), 1).remaining(), 7);
    // What the fallback took, it gives back, also after the server is up again.
    server.restart();
    let _ = limit.apply(&(), Op::Refund(3, taken.receipt())).await;
    assert_eq!(machine.peek(&(), 1).remaining(), 10);
}
