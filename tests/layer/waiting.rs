//! Queued requests, in paused time.

use std::{
    cell::RefCell,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;
use tokio_test::{assert_pending, assert_ready_ok, task};
use tower::{Layer, Service, ServiceExt, limit::ConcurrencyLimit, service_fn};
use tower_throttle::{
    AsError, Decision, Global, LeakyBucket, Quota, RateLimitLayer, RateLimited, Settle,
    TokenBucket, Verdict,
    respond::{Protocol, Respond},
    store::{Backend, IntoBackend, Op, Plan, Quotas, Receipt},
};

use crate::support::{Reply, Script, admit, deny, wait};

type Boxed = Box<dyn std::error::Error + Send + Sync>;

async fn echo(request: u8) -> Result<u8, Boxed> {
    Ok(request)
}

const SECOND: Duration = Duration::from_secs(1);

/// Shows promise 61.
#[tokio::test(start_paused = true)]
async fn the_time_until_the_decision_counts_as_a_part_of_the_timeout() {
    let script = Script::default();
    let reply = script.later();
    let service =
        RateLimitLayer::new(Global, script).layer(service_fn(|_: http::Request<()>| async {
            Ok::<_, Boxed>(http::Response::new(()))
        }));
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
}

#[tokio::test(start_paused = true)]
async fn a_queued_request_proceeds_at_its_turn() {
    let layer = RateLimitLayer::new(Global, Script::now([wait(SECOND)])).respond(AsError);
    let start = Instant::now();
    assert_eq!(layer.layer(service_fn(echo)).oneshot(5).await.unwrap(), 5);
    assert_eq!(start.elapsed().as_millis(), 1_000);
    assert_eq!(layer.handle().counts().waited, 1);
}

#[tokio::test(start_paused = true)]
async fn a_waiting_request_does_not_hold_the_services_readiness() {
    let shared = ConcurrencyLimit::new(service_fn(echo), 1);
    let mut others = shared.clone();
    let layer = RateLimitLayer::new(Global, Script::now([wait(SECOND)])).respond(AsError);
    let mut service = layer.layer(shared);
    let mut response = task::spawn(service.ready().await.unwrap().call(1));
    assert_pending!(response.poll());
    // The service and the waiting request are alive, but the only permit is free.
    assert_eq!(others.ready().await.unwrap().call(2).await.unwrap(), 2);
    drop(others);
    assert_eq!(response.await.unwrap(), 1);
    drop(service);
}

thread_local! {
    /// The decisions that the services of this test saw.
    static SHOWN: RefCell<Vec<Decision>> = const { RefCell::new(Vec::new()) };
}

#[derive(Clone)]
struct Shown;

impl Protocol<u8, u8> for Shown {
    fn share(_: &mut u8, decision: &Decision) {
        SHOWN.with_borrow_mut(|shown| shown.push(*decision));
    }
}

impl Respond<u8, u8, Boxed> for Shown {
    type Protocol = Self;

    fn deny(&self, _: u8, denied: RateLimited) -> Result<u8, Boxed> {
        Err(denied.into())
    }
}

#[tokio::test(start_paused = true)]
async fn a_decision_after_a_wait_has_the_figures_at_its_end() {
    let bucket = LeakyBucket::new(Quota::per_second(1)).queue(20);
    let layer = RateLimitLayer::new(Global, bucket)
        .respond(Shown)
        .share_decision();
    let calls = (0..3).map(|n| layer.layer(service_fn(echo)).oneshot(n));
    let mut calls: Vec<_> = calls.map(task::spawn).collect();
    assert_eq!(assert_ready_ok!(calls[0].poll()), 0);
    assert_pending!(calls[1].poll());
    assert_pending!(calls[2].poll());
    // Another request arrives while they wait.
    tokio::time::advance(SECOND).await;
    assert_eq!(assert_ready_ok!(calls[1].poll()), 1);
    let mut late = task::spawn(layer.layer(service_fn(echo)).oneshot(3));
    assert_pending!(late.poll());
    tokio::time::advance(SECOND).await;
    assert_eq!(assert_ready_ok!(calls[2].poll()), 2);
    let shown = SHOWN.take();
    let verdicts: Vec<_> = shown.iter().map(|shown| shown.verdict).collect();
    assert_eq!(
        verdicts,
        [
            Verdict::Admit,
            Verdict::Wait(SECOND),
            Verdict::Wait(SECOND * 2)
        ]
    );
    // Those behind it hold nothing.
    let resets: Vec<_> = shown.iter().map(|shown| shown.reset_after).collect();
    assert_eq!(resets, [SECOND; 3]);
}

#[tokio::test(start_paused = true)]
async fn the_policy_of_a_tier_is_the_same_after_a_wait() {
    let bucket = || LeakyBucket::new(Quota::per_second(1)).queue(20);
    let one = LeakyBucket::new(Quota::per_second(1));
    let limits = Quotas::new(one, |_: &u64| Plan::Tier("two")).tier("two", (bucket(), bucket()));
    let layer = RateLimitLayer::new(|of: &u8| u64::from(*of), limits)
        .respond(Shown)
        .share_decision();
    for customer in [7, 7] {
        let service = layer.layer(service_fn(echo));
        service.oneshot(customer).await.unwrap();
    }
    let shown = SHOWN.take();
    let shown: Vec<_> = shown.iter().map(|one| (one.verdict, one.policy)).collect();
    let (now, later) = (Verdict::Admit, Verdict::Wait(SECOND));
    assert_eq!(shown, [(now, 0), (later, 0)]);
}

#[tokio::test(start_paused = true)]
async fn a_backend_with_io_is_not_called_again_after_a_wait() {
    let script = Script::default();
    let reply = script.later();
    let layer = RateLimitLayer::new(Global, script.clone())
        .respond(Shown)
        .share_decision();
    let mut call = task::spawn(layer.layer(service_fn(echo)).oneshot(1));
    assert_pending!(call.poll());
    reply.send(Ok(wait(SECOND))).unwrap();
    call.await.unwrap();
    assert_eq!(SHOWN.take(), [wait(SECOND)], "the decision is unchanged");
    assert_eq!(script.ops(), [Op::Take(1)]);
}

/// A backend with I/O that sends nothing if its future is dropped.
#[derive(Clone, Default)]
struct Distant {
    script: Script,
    detached: Arc<Mutex<Vec<Op>>>,
}

impl<K: ?Sized> Backend<K> for Distant {
    type Future = Reply;

    fn apply(&self, key: &K, op: Op) -> Reply {
        self.script.apply(key, op)
    }

    fn detach(&self, _: &K, op: Op) {
        self.detached.lock().unwrap().push(op);
    }

    fn quotas(&self) -> Vec<Quota> {
        Backend::<()>::quotas(&self.script)
    }
}

impl IntoBackend for Distant {
    type Backend = Self;

    fn into_backend(self) -> Self {
        self
    }
}

#[tokio::test(start_paused = true)]
async fn the_refund_of_a_cancelled_waiter_is_detached() {
    let limiter = Distant {
        script: Script::now([wait(SECOND)]),
        ..Distant::default()
    };
    let layer = RateLimitLayer::new(Global, limiter.clone()).respond(AsError);
    let mut service = layer.layer(service_fn(echo));
    let mut response = task::spawn(service.ready().await.unwrap().call(1));
    assert_pending!(response.poll());
    drop(response);
    assert_eq!(
        *limiter.detached.lock().unwrap(),
        [Op::Cancel(1, Receipt::NOW)]
    );
    assert_eq!(
        limiter.script.ops(),
        [Op::Take(1)],
        "the refund does not depend on a future"
    );
}

/// Decides at once, but needs I/O for a refund.
#[derive(Clone)]
struct SlowRefund {
    script: Script,
    refund: Arc<Mutex<Option<Reply>>>,
}

impl<K: ?Sized> Backend<K> for SlowRefund {
    type Future = Reply;

    fn apply(&self, key: &K, op: Op) -> Reply {
        let refund = || self.refund.lock().unwrap().take();
        let slow = matches!(op, Op::Refund(..)).then(refund).flatten();
        slow.unwrap_or_else(|| self.script.apply(key, op))
    }

    fn quotas(&self) -> Vec<Quota> {
        Backend::<()>::quotas(&self.script)
    }
}

impl IntoBackend for SlowRefund {
    type Backend = Self;

    fn into_backend(self) -> Self {
        self
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_is_returned_after_its_refund_while_others_wait() {
    let (finish, refund) = tokio::sync::oneshot::channel();
    let limiter = SlowRefund {
        script: Script::now([admit(), wait(SECOND)]),
        refund: Arc::new(Mutex::new(Some(Reply::Later(refund, true)))),
    };
    let layer = RateLimitLayer::new(|n: &u8| *n, limiter)
        .respond(AsError)
        .settle(|_: &u8| Settle::Refund);
    let mut service = layer.layer(service_fn(echo));
    let mut settled = task::spawn(service.ready().await.unwrap().call(1));
    let mut waiting = task::spawn(service.ready().await.unwrap().call(2));
    assert_pending!(waiting.poll());
    assert_pending!(settled.poll(), "the refund is not finished");
    finish.send(Ok(admit())).unwrap();
    assert!(settled.is_woken());
    assert_eq!(assert_ready_ok!(settled.poll()), 1);
}

#[tokio::test]
async fn a_response_of_several_limits_is_returned_after_the_refunds_of_all() {
    let (finish, refund) = tokio::sync::oneshot::channel();
    let limiter = SlowRefund {
        script: Script::default(),
        refund: Arc::new(Mutex::new(Some(Reply::Later(refund, true)))),
    };
    let layer = RateLimitLayer::new(Global, limiter)
        .and(RateLimitLayer::new(Global, Script::default()))
        .respond(AsError)
        .settle(|_: &u8| Settle::Refund);
    let mut response = task::spawn(layer.layer(service_fn(echo)).oneshot(1));
    assert_pending!(response.poll(), "the refund is not finished");
    assert_pending!(response.poll());
    finish.send(Ok(admit())).unwrap();
    assert!(response.is_woken());
    assert_eq!(assert_ready_ok!(response.poll()), 1);
}

#[tokio::test(start_paused = true)]
async fn a_backend_with_io_gets_a_refund_while_others_wait() {
    let script = Script::default();
    let decide = script.later();
    script.push(Reply::Now(Ok(wait(SECOND))));
    let layer = RateLimitLayer::new(Global, script.clone())
        .respond(AsError)
        .settle(|_: &u8| Settle::Refund);
    let (finish, finished) = tokio::sync::oneshot::channel::<()>();
    let finished = Mutex::new(Some(finished));
    let slow = Arc::new(move |request: u8| {
        let first = finished.lock().unwrap().take();
        async move {
            if let Some(finished) = first {
                finished.await.unwrap();
            }
            Ok::<_, Boxed>(request)
        }
    });
    let mut service = layer.layer(service_fn(move |request| slow(request)));
    let mut first = task::spawn(service.ready().await.unwrap().call(1));
    decide.send(Ok(admit())).unwrap();
    assert_pending!(first.poll(), "in the service");
    let mut waiting = task::spawn(service.ready().await.unwrap().call(2));
    assert_pending!(waiting.poll());
    finish.send(()).unwrap();
    assert_eq!(assert_ready_ok!(first.poll()), 1);
    let refund = Op::Refund(1, Receipt::NOW);
    assert_eq!(script.ops(), [Op::Take(1), Op::Take(1), refund]);
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

/// Shows promise 54.
#[tokio::test(start_paused = true)]
async fn requests_in_shadow_mode_do_not_wait() {
    let layer = RateLimitLayer::new(Global, Script::now([wait(SECOND)]))
        .respond(AsError)
        .shadow();
    let start = Instant::now();
    layer.layer(service_fn(echo)).oneshot(1).await.unwrap();
    assert_eq!(start.elapsed(), Duration::ZERO);
    let counts = layer.handle().counts();
    assert_eq!((counts.waited, counts.shadow_waited), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn the_service_is_polled_for_readiness_again_after_a_wait() {
    // Only one of the two queued requests may be in the service at a time.
    let inside = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let (at, peak) = (inside.clone(), most.clone());
    let slow = service_fn(move |(): ()| {
        let (at, peak) = (at.clone(), peak.clone());
        async move {
            peak.fetch_max(at.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(SECOND).await;
            at.fetch_sub(1, Ordering::SeqCst);
            Ok::<_, Boxed>(())
        }
    });
    let shared = ConcurrencyLimit::new(slow, 1);
    let script = Script::now([wait(SECOND), wait(SECOND)]);
    let service = RateLimitLayer::new(Global, script)
        .respond(AsError)
        .layer(shared);
    let (a, b) = tokio::join!(service.clone().oneshot(()), service.oneshot(()));
    assert!(a.is_ok() && b.is_ok());
    assert_eq!(most.load(Ordering::SeqCst), 1);
}

/// Shows promise 62.
#[tokio::test(start_paused = true)]
async fn the_queue_position_of_a_cancelled_waiter_is_free() {
    let bucket = TokenBucket::new(Quota::per_second(1).burst(1)).queue(1);
    let layer = RateLimitLayer::new(Global, bucket).respond(AsError);
    let mut service = layer.layer(service_fn(echo));
    service.ready().await.unwrap().call(0).await.unwrap();
    let mut waits = task::spawn(service.ready().await.unwrap().call(1));
    assert_pending!(waits.poll());
    assert!(
        service.ready().await.unwrap().call(2).await.is_err(),
        "the queue is full"
    );
    drop(waits);
    assert!(service.ready().await.unwrap().call(3).await.is_ok());
}
