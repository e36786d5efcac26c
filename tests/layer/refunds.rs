//! A settled cost is given back only as far as it is still taken, by the limit that took it.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::sync::oneshot;
use tokio_test::{assert_pending, assert_ready, task};
use tower::{BoxError, Layer, Service, service_fn, util::BoxService};
use tower_throttle::{
    AsError, Decision, FixedWindow, Global, LeakyBucket, Local, ManualClock, Quota, RateLimitLayer,
    Settle, SlidingGrid, SlidingLog, SlidingWindow, StoreError, TokenBucket,
    algorithm::AnyAlgorithm,
    store::{Backend, Fallback, IntoBackend, Op},
};

const SECOND: Duration = Duration::from_secs(1);

/// A request of a cost, which ends with the settlement that is sent.
struct Call {
    cost: u64,
    end: oneshot::Receiver<Settle>,
}

type Slow = BoxService<Call, Settle, BoxError>;

/// A service behind a limit, with responses that settle the cost.
fn slow<L: Backend<()>>(limit: impl IntoBackend<Backend = L> + 'static) -> Slow {
    counted(limit, 0).0
}

/// The same, and how often it was called.
fn counted<L: Backend<()>>(
    limit: impl IntoBackend<Backend = L> + 'static,
    queue: u32,
) -> (Slow, Arc<Mutex<u32>>) {
    let calls = Arc::new(Mutex::new(0));
    let counter = Arc::clone(&calls);
    let inner = service_fn(move |call: Call| {
        *counter.lock().unwrap() += 1;
        async { Ok::<Settle, BoxError>(call.end.await?) }
    });
    let layer = RateLimitLayer::new(Global, limit)
        .queue(queue)
        .respond(AsError)
        .cost(|call: &Call| call.cost)
        .settle(|settle: &Settle| *settle);
    (BoxService::new(layer.layer(inner)), calls)
}

/// A request that is on its way.
struct Sent {
    response: task::Spawn<<Slow as Service<Call>>::Future>,
    end: oneshot::Sender<Settle>,
}

impl Sent {
    fn new(service: &mut Slow, cost: u64) -> Self {
        let (end, ended) = oneshot::channel();
        let mut response = task::spawn(service.call(Call { cost, end: ended }));
        assert_pending!(response.poll());
        Self { response, end }
    }

    fn settle(mut self, settle: Settle) {
        self.end
            .send(settle)
            .expect("the request is in the service");
        assert_ready!(self.response.poll()).expect("a response");
    }
}

/// Ten per minute by every algorithm whose limit is available again after a while.
fn ten_per_minute() -> Vec<AnyAlgorithm> {
    let quota = Quota::per_minute(10);
    vec![
        AnyAlgorithm::new(FixedWindow::new(quota)),
        AnyAlgorithm::new(FixedWindow::new(quota).anchored()),
        AnyAlgorithm::new(SlidingLog::new(quota)),
        AnyAlgorithm::new(SlidingWindow::new(quota)),
        AnyAlgorithm::new(SlidingGrid::new(quota).strict()),
        AnyAlgorithm::new(TokenBucket::new(quota)),
        AnyAlgorithm::new(LeakyBucket::new(quota)),
        AnyAlgorithm::new((FixedWindow::new(quota), SlidingLog::new(quota))),
    ]
}

/// Shows promise 12.
#[tokio::test]
async fn a_cost_that_time_has_returned_is_not_given_back_after_a_slow_response() {
    for algorithm in ten_per_minute() {
        let clock = ManualClock::new();
        let limit = Local::new(algorithm.clone()).with_clock(clock.clone());
        let mut service = slow(limit.clone());
        clock.advance(59 * SECOND);
        let first = Sent::new(&mut service, 10);
        clock.advance(limit.peek(&(), 10).retry_after.expect("it is full"));
        let _second = Sent::new(&mut service, 10);
        let left = limit.peek(&(), 1).remaining();
        clock.advance(SECOND);
        let before = limit.peek(&(), 1).remaining();
        first.settle(Settle::Refund);
        assert_eq!(limit.peek(&(), 1).remaining(), before, "{algorithm:?}");
        assert!(before <= left + 1, "{algorithm:?}");
    }
}

/// Shows promise 12.
#[tokio::test]
async fn each_limit_of_two_keys_counts_by_its_own_clock() {
    let clocks = [ManualClock::new(), ManualClock::new()];
    let limits = clocks
        .clone()
        .map(|clock| Local::new(FixedWindow::new(Quota::per_minute(10))).with_clock(clock));
    let inner = service_fn(async |call: Call| Ok::<Settle, BoxError>(call.end.await?));
    let layer = RateLimitLayer::new(Global, limits[0].clone())
        .and(RateLimitLayer::new(Global, limits[1].clone()))
        .cost(|call: &Call| call.cost)
        .respond(AsError)
        .settle(|settle: &Settle| *settle);
    let mut service = BoxService::new(layer.layer(inner));
    clocks[1].advance(1_000 * SECOND);
    let first = Sent::new(&mut service, 10);
    // The window of the first limit ends, that of the second one does not.
    clocks[0].advance(60 * SECOND);
    assert!(limits[0].check(&(), 7).is_admitted());
    first.settle(Settle::Refund);
    let remaining = limits.map(|limit| limit.peek(&(), 1).remaining());
    assert_eq!(remaining, [3, 10]);
}

/// A limit on a server that can be switched off.
#[derive(Clone)]
struct Server {
    limit: Local<FixedWindow, ManualClock>,
    is_down: Arc<AtomicBool>,
}

impl Backend<()> for Server {
    type Future = std::future::Ready<Result<Decision, StoreError>>;

    fn apply(&self, key: &(), op: Op) -> Self::Future {
        if self.is_down.load(Ordering::Relaxed) {
            return std::future::ready(Err(StoreError::new("down", true)));
        }
        self.limit.apply(key, op)
    }

    fn quotas(&self) -> Vec<Quota> {
        Backend::<()>::quotas(&self.limit)
    }
}

impl IntoBackend for Server {
    type Backend = Self;

    fn into_backend(self) -> Self {
        self
    }
}

/// Shows promise 12.
#[tokio::test]
async fn a_fallback_gives_a_cost_back_only_to_the_backend_that_took_it() {
    for (down_at_first, cancels) in [(false, false), (true, false), (false, true), (true, true)] {
        let window =
            || Local::new(FixedWindow::new(Quota::per_day(10))).with_clock(ManualClock::new());
        let server = Server {
            limit: window(),
            is_down: Arc::new(AtomicBool::new(down_at_first)),
        };
        let machine = window();
        let both = Fallback::new(server.clone(), machine.clone());
        let left = || {
            (
                server.limit.peek(&(), 1).remaining(),
                machine.peek(&(), 1).remaining(),
            )
        };
        let mut service = slow(both.clone());
        let sent = Sent::new(&mut service, 4);
        let receipt = both.decide(&(), 1).await.unwrap().receipt();
        assert_eq!(left(), if down_at_first { (10, 5) } else { (5, 10) });
        server.is_down.store(!down_at_first, Ordering::Relaxed);
        // Both are used after the switch.
        assert!(both.decide(&(), 3).await.unwrap().is_admitted());
        let before = left();
        sent.settle(Settle::Refund);
        if cancels {
            both.detach(&(), Op::Cancel(1, receipt));
        } else {
            let _ = both.apply(&(), Op::Refund(1, receipt)).await;
        }
        // The server is up again, or down and cannot give anything back.
        let expected = if down_at_first {
            (before.0, before.1 + 5)
        } else {
            before
        };
        assert_eq!(left(), expected, "{down_at_first}, {cancels}");
        both.detach(&(), Op::Charge(1));
        let charged = match expected {
            (server, machine) if down_at_first => (server - 1, machine),
            (server, machine) => (server, machine - 1),
        };
        assert_eq!(left(), charged, "{down_at_first}, {cancels}");
    }
}

/// Shows promise 12.
#[tokio::test]
async fn of_three_backends_the_one_that_took_a_cost_gets_it_back() {
    let window = || Local::new(FixedWindow::new(Quota::per_day(10))).with_clock(ManualClock::new());
    let down = Server {
        limit: window(),
        is_down: Arc::new(AtomicBool::new(true)),
    };
    let (second, third) = (window(), window());
    let all = Fallback::new(Fallback::new(down, second.clone()), third.clone());
    let taken = all.decide(&(), 4).await.unwrap();
    assert!(third.check(&(), 4).is_admitted());
    let refund = Op::Refund(4, taken.receipt());
    let _ = all.apply(&(), refund).await.unwrap();
    let left = [second, third].map(|limit| limit.peek(&(), 0).remaining());
    assert_eq!(left, [10, 6]);
}

/// Polls all requests, every tenth of a second, and returns in which tenths `calls` has grown.
async fn tenths(waiting: &mut [Sent], calls: &Mutex<u32>, from: u64, to: u64) -> Vec<u64> {
    let mut grown = Vec::new();
    for tenth in from..to {
        let before = *calls.lock().unwrap();
        for sent in &mut *waiting {
            assert_pending!(sent.response.poll());
        }
        for _ in before..*calls.lock().unwrap() {
            grown.push(tenth);
        }
        tokio::time::advance(SECOND / 10).await;
    }
    grown
}

/// Shows promise 12.
#[tokio::test(start_paused = true)]
async fn waiters_move_up_by_what_a_late_refund_gives_back() {
    for algorithm in [
        AnyAlgorithm::new(LeakyBucket::new(Quota::per_second(1).burst(1))),
        AnyAlgorithm::new(TokenBucket::new(Quota::per_second(1))),
    ] {
        let (mut service, calls) = counted(Local::new(algorithm), 10);
        let first = Sent::new(&mut service, 1);
        let mut waiting: Vec<_> = (0..3).map(|_| Sent::new(&mut service, 1)).collect();
        tokio::time::advance(9 * SECOND / 10).await;
        // A tenth of a second is left of its turn.
        first.settle(Settle::Refund);
        assert_eq!(tenths(&mut waiting, &calls, 9, 40).await, [9, 19, 29]);
    }
}
