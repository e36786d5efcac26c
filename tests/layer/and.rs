//! Limits by two keys in one layer.

use std::time::Duration;

use axum::{Router, body::Body, extract::Request, routing::get};
use http::StatusCode;
use tokio_test::{assert_pending, assert_ready, task};
use tower::{BoxError, Layer, Service, ServiceExt, service_fn};
use tower_throttle::{
    AsError, ClientIp, FixedWindow, Global, HeaderKey, Quota, RateLimitLayer, RateLimited,
    StoreError, Verdict,
    key::{Missing, PeerAddr},
    layer::{And, KeyPair, OnStoreError},
    store::{Backend, Op, Receipt},
};

use crate::support::{Reply, Script, admit, deny, wait};

const NOW: Receipt = Receipt::NOW;

fn window(limit: u64) -> FixedWindow {
    FixedWindow::new(Quota::per_day(limit))
}

fn from(client: u8) -> Request {
    let mut request = Request::new(Body::empty());
    let address = PeerAddr(([192, 0, 2, client], 4711).into());
    request.extensions_mut().insert(address);
    request
}

async fn status(app: &Router, request: Request) -> StatusCode {
    app.clone().oneshot(request).await.unwrap().status()
}

#[tokio::test]
async fn neither_limit_counts_what_the_other_denies() {
    let clients = ClientIp::peer();
    let key = |client| clients.key([192, 0, 2, client].into());
    let layer = RateLimitLayer::new(clients.clone(), window(3)).and(Global, window(5));
    let handle = layer.handle();
    let app = Router::new().route("/", get(|| async {})).layer(layer);
    let left = |client| {
        (
            handle.first().peek_now(&key(client), 0).remaining(),
            handle.second().peek_now(&(), 0).remaining(),
        )
    };

    for _ in 0..3 {
        assert_eq!(status(&app, from(1)).await, StatusCode::OK);
    }
    assert_eq!(status(&app, from(1)).await, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(
        left(1),
        (0, 2),
        "the total does not count the denied request"
    );
    for _ in 0..2 {
        assert_eq!(status(&app, from(2)).await, StatusCode::OK);
    }
    for _ in 0..4 {
        assert_eq!(status(&app, from(2)).await, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(status(&app, from(3)).await, StatusCode::TOO_MANY_REQUESTS);
    }
    assert_eq!(
        left(2),
        (1, 0),
        "the limit per client does not count it either"
    );
    assert_eq!(left(3), (3, 0));

    handle.second().reset(&());
    handle.first().reset(&key(1));
    assert_eq!(status(&app, from(1)).await, StatusCode::OK);
    assert_eq!(left(1), (2, 4));
    let counts = handle.counts();
    assert_eq!((counts.admitted, counts.denied), (6, 9));
}

/// Two layers instead of `and`: the problem that `and` solves.
#[tokio::test]
async fn the_outer_of_two_layers_counts_what_the_inner_one_denies() {
    let outer = RateLimitLayer::new(ClientIp::peer(), window(3));
    let client = ClientIp::peer().key([192, 0, 2, 1].into());
    let handle = outer.handle();
    let app = Router::new()
        .route("/", get(|| async {}))
        .layer(RateLimitLayer::new(Global, window(1)))
        .layer(outer);
    assert_eq!(status(&app, from(1)).await, StatusCode::OK);
    assert_eq!(status(&app, from(1)).await, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(handle.peek_now(&client, 0).remaining(), 1);
}

#[tokio::test]
async fn concurrent_requests_take_from_both_limits_or_neither() {
    let layer = RateLimitLayer::new(|n: &u64| n % 8, window(700))
        .and(Global, window(3_000))
        .respond(AsError);
    let handle = layer.handle();
    let service = layer.layer(service_fn(async |n: u64| Ok::<_, BoxError>(n)));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let service = service.clone();
            std::thread::spawn(move || {
                let mut admitted = 0;
                for n in 0..2_000 {
                    let mut call = task::spawn(service.clone().oneshot(n));
                    admitted += u64::from(assert_ready!(call.poll()).is_ok());
                }
                admitted
            })
        })
        .collect();
    let admitted: u64 = threads.into_iter().map(|one| one.join().unwrap()).sum();
    assert!(admitted <= 3_000, "{admitted}");
    assert_eq!(
        3_000 - handle.second().peek_now(&(), 0).remaining(),
        admitted
    );
    let by_client: u64 = (0..8)
        .map(|client| 700 - handle.first().peek_now(&client, 0).remaining())
        .sum();
    assert_eq!(by_client, admitted);
}

#[tokio::test]
async fn a_request_with_one_key_is_counted_by_its_limit() {
    let by_name = HeaderKey::new("x-api-key").if_missing(Missing::Skip);
    let layer = RateLimitLayer::new(by_name, window(1))
        .and(
            |req: &Request| req.headers().get("tenant").cloned(),
            window(2),
        )
        .and(
            |req: &Request| (req.method() == "POST").then_some(()),
            window(1),
        )
        .name("three");
    let handle = layer.handle();
    let app = Router::new()
        .route("/", get(|| async {}).post(|| async {}))
        .layer(layer);
    let request = |headers: &[&'static str], method| {
        let mut request = http::Request::builder().method(method);
        for name in headers {
            request = request.header(*name, "x");
        }
        request.body(Body::empty()).unwrap()
    };
    assert_eq!(status(&app, request(&[], "GET")).await, 200);
    assert_eq!(status(&app, request(&["x-api-key"], "GET")).await, 200);
    assert_eq!(status(&app, request(&["x-api-key"], "GET")).await, 429);
    assert_eq!(status(&app, request(&["tenant"], "GET")).await, 200);
    // The limit that denies is named by its position among all limits.
    for (headers, method, expected) in [
        (&["x-api-key", "tenant"][..], "POST", "three-1"),
        (&["tenant"], "POST", ""),
        (&["tenant"], "GET", "three-2"),
        (&[], "POST", "three-3"),
    ] {
        let result = app.clone().oneshot(request(headers, method)).await.unwrap();
        let limited = result.extensions().get::<RateLimited>();
        let policy = limited.and_then(RateLimited::policy).unwrap_or_default();
        assert_eq!(policy, expected, "{headers:?} {method}");
    }
    assert_eq!(handle.counts().skipped, 1);
    handle
        .first()
        .second()
        .reset(&http::HeaderValue::from_static("x"));
    assert_eq!(status(&app, request(&["tenant"], "GET")).await, 200);
    handle.second().reset(&());
    assert_eq!(status(&app, request(&[], "POST")).await, 200);
}

#[tokio::test]
async fn the_cost_is_the_same_for_both_limits_and_settled_in_both() {
    let layer = RateLimitLayer::new(Global, window(10))
        .cost(|_: &u64| 3)
        .and(|n: &u64| *n, window(10))
        .settle(|left: &u64| tower_throttle::Settle::Charge(*left))
        .respond(AsError);
    let handle = layer.handle();
    let mut service = layer.layer(service_fn(async |n: u64| Ok::<_, BoxError>(n)));
    for (cost, left) in [(1, 9), (5, 4)] {
        service.ready().await.unwrap().call(cost).await.unwrap();
        assert_eq!(handle.first().peek_now(&(), 0).remaining(), left);
        assert_eq!(handle.second().peek_now(&cost, 0).remaining(), 10 - cost);
    }
    let both = KeyPair::new((), 5);
    handle.refund(&both, 2).await.unwrap();
    assert_eq!(handle.peek(&both, 0).await.unwrap().remaining(), 6);
    assert_eq!(handle.second().peek_now(&5, 0).remaining(), 7);
    handle.penalise(&both, 100).await.unwrap();
    assert!(handle.peek(&both, 1).await.unwrap().is_denied());
    handle.reset(&both).await.unwrap();
    assert_eq!(handle.peek(&both, 0).await.unwrap().remaining(), 10);
}

mod on_servers {
    //! Limits that are pending at first.

    use super::*;

    /// A pair and its two scripts.
    fn pair() -> (And<Script, Script>, Script, Script) {
        let (first, second) = (Script::default(), Script::default());
        (And::new(first.clone(), second.clone()), first, second)
    }

    const BOTH: KeyPair<u8, u8> = KeyPair::new(1, 2);

    #[tokio::test]
    async fn the_second_limit_decides_after_the_first_has_admitted() {
        let (both, first, second) = pair();
        let result = first.later();
        let mut deciding = task::spawn(both.decide(&BOTH, 3));
        assert_pending!(deciding.poll());
        assert_eq!((first.ops(), second.ops()), (vec![Op::Take(3)], vec![]));
        result.send(Ok(admit())).unwrap();
        let decision = assert_ready!(deciding.poll()).unwrap();
        assert!(decision.is_admitted());
        assert_eq!(second.ops(), [Op::Take(3)]);
        assert_eq!(first.ops(), [Op::Take(3)]);
    }

    #[tokio::test]
    async fn after_a_denial_by_the_first_limit_the_second_is_not_called() {
        let (both, first, second) = pair();
        first.later().send(Ok(deny())).unwrap();
        assert_eq!(both.decide(&BOTH, 3).await, Ok(deny()));
        assert_eq!(second.ops(), []);
    }

    #[tokio::test]
    async fn a_denial_by_the_second_limit_refunds_the_first() {
        let (both, first, second) = pair();
        second.later().send(Ok(deny())).unwrap();
        let decision = both.decide(&BOTH, 3).await.unwrap();
        assert!(decision.is_denied());
        assert_eq!(decision.policy, 1);
        assert_eq!(first.ops(), [Op::Take(3), Op::Cancel(3, NOW)]);
        assert_eq!(second.ops(), [Op::Take(3)]);
    }

    #[tokio::test]
    async fn other_operations_reach_both_limits() {
        let (both, first, second) = pair();
        for op in [
            Op::Peek(2),
            Op::Refund(2, NOW),
            Op::Cancel(2, NOW),
            Op::Charge(2),
            Op::Reset,
        ] {
            let _ = both.apply(&BOTH, op).await.unwrap();
            both.detach(&BOTH, op);
        }
        let ops = [
            Op::Peek(2),
            Op::Refund(2, NOW),
            Op::Cancel(2, NOW),
            Op::Charge(2),
            Op::Reset,
        ];
        let ops: Vec<_> = ops.into_iter().flat_map(|op| [op, op]).collect();
        assert_eq!(first.ops(), ops);
        assert_eq!(second.ops(), ops);
    }

    #[tokio::test]
    async fn requests_queue_for_the_limit_that_first_returns_a_wait() {
        let second = Duration::from_secs(1);
        for first_waits in [true, false] {
            let (both, first, other) = pair();
            let queue = if first_waits { &first } else { &other };
            queue.push(Reply::Now(Ok(wait(second))));
            let decision = both.decide(&BOTH, 3).await.unwrap();
            assert_eq!(decision.verdict, Verdict::Wait(second));
            // From now on a wait by the other limit is a denial.
            first.push(Reply::Now(Ok(wait(2 * second))));
            other.push(Reply::Now(Ok(wait(3 * second))));
            let decision = both.decide(&BOTH, 3).await.unwrap();
            assert!(decision.is_denied());
            let taken = [Op::Take(3), Op::Take(3), Op::Cancel(3, NOW)];
            assert_eq!(first.ops(), taken);
            if first_waits {
                assert_eq!(decision.retry_after, Some(3 * second));
                assert_eq!(other.ops(), taken);
            } else {
                assert_eq!(decision.retry_after, Some(2 * second));
                assert_eq!(other.ops(), [Op::Take(3)]);
            }
        }
    }

    #[tokio::test]
    async fn a_request_with_one_key_does_not_queue_for_the_wrong_limit() {
        let (both, first, second) = pair();
        let only = KeyPair {
            first: None,
            ..BOTH
        };
        first.push(Reply::Now(Ok(wait(Duration::from_secs(1)))));
        assert!(both.decide(&BOTH, 1).await.unwrap().wait().is_some());
        second.push(Reply::Now(Ok(wait(Duration::from_secs(1)))));
        let decision = both.decide(&only, 1).await.unwrap();
        assert!(decision.is_denied());
        assert_eq!(decision.policy, 1);
        assert_eq!(second.ops(), [Op::Take(1), Op::Take(1), Op::Cancel(1, NOW)]);
    }

    #[tokio::test]
    async fn an_outage_of_one_limit_does_not_disable_the_other() {
        let outage = || StoreError::new("timed out", true);
        let layer = |first: &Script, second: &Script| {
            RateLimitLayer::new(Global, first.clone())
                .and(Global, second.clone())
                .on_store_error(OnStoreError::Allow)
                .respond(AsError)
                .layer(service_fn(async |n: u8| Ok::<_, BoxError>(n)))
        };
        for (denied, passes) in [(false, true), (true, false)] {
            let second_answer = || if denied { deny() } else { admit() };
            let (first, second) = (Script::default(), Script::now([second_answer()]));
            first.push(Reply::Now(Err(outage())));
            let result = layer(&first, &second).oneshot(1).await;
            assert_eq!(result.is_ok(), passes, "outage of the first");
            assert_eq!(
                first.ops(),
                [Op::Take(1)],
                "nothing was taken, so nothing is refunded"
            );

            let (first, second) = (Script::now([second_answer()]), Script::default());
            second.push(Reply::Now(Err(outage())));
            let result = layer(&first, &second).oneshot(1).await;
            assert_eq!(result.is_ok(), passes, "outage of the second");
            assert_eq!(first.ops(), [Op::Take(1)], "the cost stays taken");
        }
    }

    #[tokio::test]
    async fn a_configuration_error_takes_precedence_over_an_outage() {
        let misconfigured = StoreError::new("wrong password", false);
        for first_is_wrong in [true, false] {
            let (both, first, second) = pair();
            let outage = StoreError::new("timed out", true);
            let errors = if first_is_wrong {
                [misconfigured.clone(), outage]
            } else {
                [outage, misconfigured.clone()]
            };
            let [a, b] = errors.map(|error| Reply::Now(Err(error)));
            first.push(a);
            second.push(b);
            assert_eq!(both.decide(&BOTH, 1).await, Err(misconfigured.clone()));
        }
    }
}

#[cfg(feature = "tokio")]
mod queued {
    //! One of the limits queues requests.

    use std::sync::{Arc, Mutex};

    use tokio::time::Instant;
    use tower_throttle::{AnyAlgorithm, LeakyBucket, Local, ManualClock, Tiers};

    use super::*;

    type Served = Arc<Mutex<Vec<(u32, u64)>>>;

    fn queue() -> LeakyBucket {
        LeakyBucket::new(Quota::per_second(1)).queue(10)
    }

    /// A service that records each request and the second of its arrival.
    fn record(
        served: &Served,
    ) -> impl Service<u32, Response = (), Error = BoxError, Future: Send> + Clone + Send + 'static
    {
        let (begun, served) = (Instant::now(), Arc::clone(served));
        service_fn(move |n: u32| {
            served.lock().unwrap().push((n, begun.elapsed().as_secs()));
            std::future::ready(Ok(()))
        })
    }

    /// Between the look at both limits and this, other requests may have used the window up.
    #[tokio::test]
    async fn the_line_replaces_no_waiter_for_a_request_that_the_other_limit_denies() {
        let limits = || {
            let line = Local::new(queue()).with_clock(ManualClock::new());
            (line, Local::new(window(3)).with_clock(ManualClock::new()))
        };
        let key = KeyPair {
            first: Some(()),
            second: Some(()),
        };
        let ((line, other), (own, last)) = (limits(), limits());
        let first = And::new(line.clone(), other);
        let second = And::new(last, own.clone());
        for n in 0..3 {
            let decided = [first.decide(&key, 1).await, second.decide(&key, 1).await];
            let waits = decided.map(|decision| decision.unwrap().wait());
            assert_eq!(waits, [Some(Duration::from_secs(n)); 2]);
        }
        for line in [&line, &own] {
            let before = line.peek(&()).reset_after;
            for limits in [
                first.decide_after_refund(&key, 2, 1, false),
                second.decide_after_refund(&key, 2, 1, false),
            ] {
                assert!(limits.is_some_and(|decision| decision.is_denied()));
            }
            assert_eq!(line.peek(&()).reset_after, before);
        }
    }

    async fn after_a_cancelled_waiter(layer_first: bool) -> Vec<(u32, u64)> {
        let served = Served::default();
        let service = record(&served);
        let client = |n: &u32| *n;
        let run = |service: tower::util::BoxCloneService<u32, (), BoxError>| async move {
            let mut calls = Vec::new();
            for n in 0..4 {
                calls.push(tokio::spawn(service.clone().oneshot(n)));
                tokio::task::yield_now().await;
            }
            // The first waiter is cancelled; a new request takes the free position.
            calls.remove(1).abort();
            tokio::task::yield_now().await;
            calls.push(tokio::spawn(service.clone().oneshot(4)));
            for call in calls {
                call.await.unwrap().unwrap();
            }
        };
        if layer_first {
            let layer = RateLimitLayer::new(Global, queue()).and(client, window(1));
            let handle = layer.handle();
            let layered = layer.respond(AsError).layer(service);
            run(tower::util::BoxCloneService::new(layered)).await;
            assert_eq!(
                handle.second().peek_now(&1, 0).remaining(),
                1,
                "its unit was refunded"
            );
        } else {
            let layer = RateLimitLayer::new(client, window(1)).and(Global, queue());
            let handle = layer.handle();
            let layered = layer.respond(AsError).layer(service);
            run(tower::util::BoxCloneService::new(layered)).await;
            assert_eq!(
                handle.first().peek_now(&1, 0).remaining(),
                1,
                "its unit was refunded"
            );
        }
        let served = served.lock().unwrap();
        served.clone()
    }

    #[tokio::test(start_paused = true)]
    async fn requests_of_different_keys_wait_in_one_queue() {
        let expected = [(0, 0), (2, 1), (3, 2), (4, 3)];
        assert_eq!(after_a_cancelled_waiter(true).await, expected);
        assert_eq!(after_a_cancelled_waiter(false).await, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn if_both_limits_have_queues_only_one_queues_requests() {
        let layer = RateLimitLayer::new(|n: &u32| n % 2, queue())
            .and(Global, queue())
            .respond(AsError);
        let handle = layer.handle();
        let service = layer.layer(service_fn(async |_: u32| Ok::<_, BoxError>(())));
        service.clone().oneshot(0).await.unwrap();
        // The global limit returns the first wait.
        let mut waits = task::spawn(service.clone().oneshot(1));
        assert_pending!(waits.poll());
        let error = service.oneshot(0).await.unwrap_err();
        let limited = error.downcast_ref::<RateLimited>().unwrap();
        assert_eq!(limited.retry_after(), Some(Duration::from_secs(1)));
        let next = handle.first().peek_now(&0, 1).wait();
        assert_eq!(next, Some(Duration::from_secs(1)), "nothing was taken");
        let next = handle.second().peek_now(&(), 1).wait();
        assert_eq!(next, Some(Duration::from_secs(2)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_refund_releases_waiters_of_its_limit() {
        let layer = RateLimitLayer::new(|n: &u32| *n, window(10))
            .and(Global, queue())
            .respond(AsError);
        let handle = layer.handle();
        let served = Served::default();
        let service = layer.layer(record(&served));
        let mut calls = Vec::new();
        for n in 0..3 {
            calls.push(tokio::spawn(service.clone().oneshot(n)));
            tokio::task::yield_now().await;
        }
        handle.first().refund(&1, 1);
        handle.second().refund(&(), 1);
        for call in calls {
            call.await.unwrap().unwrap();
        }
        assert_eq!(*served.lock().unwrap(), [(0, 0), (1, 0), (2, 1)]);
    }

    /// A tier's queue is identified by the tier and the key.
    #[tokio::test(start_paused = true)]
    async fn a_refund_releases_waiters_of_its_tier() {
        let limits = Tiers::new(window(10)).tier(1, window(10));
        let tiers = Tiers::new(AnyAlgorithm::from(window(1))).tier(1, AnyAlgorithm::from(queue()));
        let layer = RateLimitLayer::new(|n: &u32| (1, *n), limits)
            .and(|_: &u32| (1, ()), tiers)
            .respond(AsError);
        let handle = layer.handle();
        let served = Served::default();
        let service = layer.layer(record(&served));
        let mut calls = Vec::new();
        for n in 0..3 {
            calls.push(tokio::spawn(service.clone().oneshot(n)));
            tokio::task::yield_now().await;
        }
        handle.second().tier(&1).refund(&(), 1);
        for call in calls {
            call.await.unwrap().unwrap();
        }
        assert_eq!(*served.lock().unwrap(), [(0, 0), (1, 0), (2, 1)]);
    }
}
