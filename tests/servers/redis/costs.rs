//! Costs that are known at the end of a response.

use std::time::Duration;

use tower_throttle::store::{Backend, IntoBackend, Op};
use tower_throttle::store::{cas::Cas, redis::Redis};
use tower_throttle::{FixedWindow, Quota, TokenBucket};

use crate::redis_server::RedisServer;
use crate::settled_costs::{fault, fault_of_two};

fn redis(server: &RedisServer) -> Redis {
    let redis = Redis::open(&server.url()).expect("a url");
    redis.deadline(Duration::from_secs(10))
}

/// A limit that gives nothing back.
struct Keeps(Cas<Redis, FixedWindow>);

impl IntoBackend for Keeps {
    type Backend = Self;

    fn into_backend(self) -> Self {
        self
    }
}

impl Backend<()> for Keeps {
    type Future = <Cas<Redis, FixedWindow> as Backend<()>>::Future;

    fn apply(&self, key: &(), op: Op) -> Self::Future {
        self.0.apply(key, kept(op))
    }

    fn detach(&self, key: &(), op: Op) {
        self.0.detach(key, kept(op));
    }

    fn quotas(&self) -> Vec<Quota> {
        Backend::<()>::quotas(&self.0)
    }
}

fn kept(op: Op) -> Op {
    match op {
        Op::Refund(..) => Op::Peek(0),
        op => op,
    }
}

fn window(server: &RedisServer, name: &str) -> Cas<Redis, FixedWindow> {
    let window = FixedWindow::new(Quota::per_day(200)).anchored();
    redis(server).limiter(name, window)
}

/// Shows promise 321.
#[tokio::test]
async fn a_cost_that_is_known_at_the_end_is_taken_however_the_request_ends() {
    let server = RedisServer::start();
    assert_eq!(fault(window(&server, "window")).await, None);
    let bucket = TokenBucket::new(Quota::per(1, Duration::from_secs(1_000_000)).burst(200));
    assert_eq!(fault(redis(&server).limiter("bucket", bucket)).await, None);
    let keeps = fault(Keeps(window(&server, "keeps"))).await;
    assert!(
        keeps
            .as_ref()
            .is_some_and(|fault| fault.starts_with("Left: ")),
        "{keeps:?}"
    );
}

fn requests() -> FixedWindow {
    FixedWindow::new(Quota::per_minute(30)).anchored()
}

fn tokens() -> FixedWindow {
    FixedWindow::new(Quota::per_day(700)).anchored()
}

/// Shows promises 53, 321.
#[tokio::test]
async fn a_limit_of_requests_beside_one_of_tokens_takes_one_for_each() {
    let server = RedisServer::start();
    let limiter = |name, window| redis(&server).limiter(name, window);
    let keeps = |name, window| Keeps(limiter(name, window));
    let (both, one_here, requests_kept, tokens_kept) = tokio::join!(
        fault_of_two(limiter("requests", requests()), limiter("tokens", tokens())),
        fault_of_two(requests(), limiter("tokens2", tokens())),
        fault_of_two(keeps("requests3", requests()), limiter("tokens3", tokens())),
        fault_of_two(limiter("requests4", requests()), keeps("tokens4", tokens())),
    );
    assert_eq!((both, one_here), (None, None));
    let kept = requests_kept.expect("the denied requests stay taken");
    assert!(kept.ends_with("in place of (5, 9)"), "{kept}");
    let kept = tokens_kept.expect("the estimate stays taken");
    assert!(kept.starts_with("Left: "), "{kept}");
}

/// Shows promise 321.
#[cfg(feature = "cas")]
#[tokio::test]
async fn so_it_is_in_a_fleet_and_by_swaps() {
    use tower_throttle::store::{
        cas::CasBuilder,
        fleet::{Leased, Synced},
    };

    let server = RedisServer::start();
    let bucket = TokenBucket::new(Quota::per(1, Duration::from_secs(1_000_000)).burst(200));
    let builder = CasBuilder::new(redis(&server)).deadline(Duration::from_secs(10));
    let swaps = builder.build("cas", bucket).expect("a limit");
    assert_eq!(fault(swaps).await, None);
    let synced = Synced::new(redis(&server), "synced", bucket);
    assert_eq!(fault(synced).await, None);
    let leased = Leased::new(redis(&server), "leased", bucket);
    assert_eq!(fault(leased).await, None);
}
