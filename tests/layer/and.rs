//! Limits by two keys in one layer.

#[cfg(feature = "tokio")]
use std::time::Duration;

use axum::{Extension, Router, body::Body, extract::Request, routing::get};
use http::StatusCode;
use tokio_test::{assert_pending, assert_ready, task};
use tower::{BoxError, Layer, Service, ServiceExt, service_fn};
use tower_throttle::{
    AsError, ClientIp, ConcurrencyLimitLayer, Decision, FixedWindow, Global, Headers, LeakyBucket,
    Quota, RateLimitLayer, RateLimited, StoreError,
    key::PeerAddr,
    store::{Op, Receipt},
};

use crate::support::{Reply, Script, admit, deny};

const NOW: Receipt = Receipt::NOW;

fn window(limit: u64) -> FixedWindow {
    FixedWindow::new(Quota::per_day(limit)).anchored()
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

/// Shows promise 53.
#[tokio::test]
async fn neither_limit_counts_what_the_other_denies() {
    let clients = ClientIp::peer();
    let key = |client| clients.key([192, 0, 2, client].into());
    let layer =
        RateLimitLayer::new(clients.clone(), window(3)).and(RateLimitLayer::new(Global, window(5)));
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
    // The total does not count the denied request.
    assert_eq!(left(1), (0, 2));
    for _ in 0..2 {
        assert_eq!(status(&app, from(2)).await, StatusCode::OK);
    }
    for _ in 0..4 {
        assert_eq!(status(&app, from(2)).await, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(status(&app, from(3)).await, StatusCode::TOO_MANY_REQUESTS);
    }
    // The limit per client does not count it either.
    assert_eq!(left(2), (1, 0));
    assert_eq!(left(3), (3, 0));

    drop(handle.second().reset(&()));
    drop(handle.first().reset(&key(1)));
    assert_eq!(status(&app, from(1)).await, StatusCode::OK);
    assert_eq!(left(1), (2, 4));
    let counts = handle.counts();
    assert_eq!((counts.admitted, counts.denied), (6, 9));
}

/// Shows promise 53.
#[tokio::test]
async fn concurrent_requests_take_from_both_limits_or_neither() {
    // Of each 8 requests the first 5 have key 0, so it reaches its limit before all reach theirs.
    let layer = RateLimitLayer::new(|n: &u64| n % 8 / 5, window(1_500))
        .and(RateLimitLayer::new(Global, window(2_500)))
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
    assert_eq!(admitted, 2_500);
    assert_eq!(handle.second().peek_now(&(), 0).remaining(), 0);
    let left = [0, 1].map(|client| handle.first().peek_now(&client, 0).remaining());
    assert_eq!(left[0] + left[1], 500, "{left:?}");
    // A thread may have held the last of key 0 until the second limit was used up.
    assert!(left[0] < 4, "{left:?}");
}

/// Shows promise 54.
#[tokio::test]
async fn each_limit_has_a_cost_of_its_own_and_a_cost_set_afterwards_is_for_both() {
    let layer = || {
        let second = RateLimitLayer::new(|n: &u64| *n, window(10)).cost(|_: &u64| 2);
        RateLimitLayer::new(Global, window(10)).and(second)
    };
    let service = service_fn(async |n: u64| Ok::<_, BoxError>(n));
    let own = layer().respond(AsError);
    own.layer(service).oneshot(5).await.unwrap();
    assert_eq!(own.handle().first().peek_now(&(), 0).remaining(), 9);
    assert_eq!(own.handle().second().peek_now(&5, 0).remaining(), 8);
    let both = layer()
        .cost(|_: &u64| 3)
        .settle(|left: &u64| tower_throttle::Settle::Charge(*left))
        .respond(AsError);
    let handle = both.handle();
    let mut service = both.layer(service);
    for (cost, left) in [(1, 9), (5, 4)] {
        service.ready().await.unwrap().call(cost).await.unwrap();
        assert_eq!(handle.first().peek_now(&(), 0).remaining(), left);
        assert_eq!(handle.second().peek_now(&cost, 0).remaining(), 10 - cost);
    }
}

#[tokio::test]
async fn a_limit_in_shadow_mode_denies_nothing_and_takes_nothing_of_a_denied_request() {
    let clients = |n: &u8| *n;
    let shadow = RateLimitLayer::new(clients, window(2)).shadow();
    let layer = shadow
        .and(RateLimitLayer::new(Global, window(4)))
        .respond(AsError);
    let handle = layer.handle();
    let service = layer.layer(service_fn(async |n: u8| Ok::<_, BoxError>(n)));
    for n in 0..6 {
        assert_eq!(service.clone().oneshot(1).await.is_ok(), n < 4, "{n}");
    }
    let counts = handle.first().counts();
    assert_eq!((counts.admitted, counts.denied), (2, 0));
    assert_eq!(handle.second().counts().denied, 2);
    assert!(service.clone().oneshot(2).await.is_err());
    assert_eq!(handle.first().peek_now(&2, 0).remaining(), 2);

    // With both in shadow mode, a request that one would deny is counted by neither.
    let layer = RateLimitLayer::new(clients, window(2))
        .and(RateLimitLayer::new(Global, window(1)))
        .shadow()
        .respond(AsError);
    let handle = layer.handle();
    let service = layer.layer(service_fn(async |n: u8| Ok::<_, BoxError>(n)));
    for _ in 0..3 {
        service.clone().oneshot(1).await.unwrap();
    }
    assert_eq!(handle.first().peek_now(&1, 0).remaining(), 1);
    let counts = handle.counts();
    assert_eq!((counts.admitted, counts.shadow_denied), (1, 2));

    // Nor does a request wait that one would let wait.
    let queue = LeakyBucket::new(Quota::per_day(1).burst(1));
    let layer = RateLimitLayer::new(clients, window(9))
        .and(RateLimitLayer::new(Global, queue).queue(5))
        .shadow()
        .respond(AsError);
    let service = layer.layer(service_fn(async |n: u8| Ok::<_, BoxError>(n)));
    for _ in 0..3 {
        service.clone().oneshot(1).await.unwrap();
    }
    let counts = layer.handle().counts();
    assert_eq!((counts.admitted, counts.shadow_waited), (1, 2));
}

/// Shows promise 53.
#[tokio::test]
async fn a_request_that_a_concurrency_limit_denies_is_counted_by_no_rate_limit() {
    let layer = RateLimitLayer::new(Global, window(10))
        .and(ConcurrencyLimitLayer::new(Global, 1))
        .and(RateLimitLayer::new(Global, window(10)));
    let handle = layer.handle();
    let app = Router::new().route("/", get(async || "body")).layer(layer);
    let held = app.clone().oneshot(from(1)).await.unwrap();
    for _ in 0..5 {
        assert_eq!(status(&app, from(1)).await, StatusCode::TOO_MANY_REQUESTS);
    }
    assert_eq!(handle.first().first().peek_now(&(), 0).remaining(), 9);
    assert_eq!(handle.second().peek_now(&(), 0).remaining(), 9);
    assert_eq!(handle.first().second().in_flight(&()), 1);
    // A request that both deny is counted by both.
    drop(handle.second().charge(&(), 9));
    assert_eq!(status(&app, from(1)).await, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(handle.first().second().counts().denied, 6);
    drop(held);
    assert_eq!(handle.first().second().in_flight(&()), 0);
    // And a request that a rate limit denies is not in flight.
    let service = app.clone().oneshot(from(1)).await.unwrap();
    assert_eq!(service.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(handle.first().second().in_flight(&()), 0);
    assert_eq!(handle.first().first().peek_now(&(), 0).remaining(), 9);
}

/// Shows promise 53.
#[tokio::test]
async fn requests_that_a_server_denies_do_not_starve_a_limit_in_process() {
    let script = Script::default();
    let replies = [(); 3].map(|()| script.later());
    let layer = RateLimitLayer::new(Global, window(1))
        .and(RateLimitLayer::new(Global, script))
        .respond(AsError);
    let service = layer.layer(service_fn(async |call: u8| Ok::<_, BoxError>(call)));
    for reply in replies {
        let mut denied = task::spawn(service.clone().oneshot(1));
        assert_pending!(denied.poll());
        reply.send(Ok(deny())).unwrap();
        assert!(assert_ready!(denied.poll()).is_err());
    }
    assert_eq!(service.oneshot(2).await.unwrap(), 2);
}

/// Shows promise 53.
#[cfg(feature = "tokio")]
#[tokio::test(start_paused = true)]
async fn a_request_that_waits_in_line_has_taken_nothing_from_the_other_limits() {
    let line = LeakyBucket::new(Quota::per_second(1).burst(1));
    let script = Script::now([admit(), deny()]);
    let layer = RateLimitLayer::new(Global, script.clone())
        .and(RateLimitLayer::new(Global, line).queue(9))
        .and(RateLimitLayer::new(Global, window(3)))
        .respond(AsError);
    let windows = layer.handle().second();
    let service = layer.layer(service_fn(async |call: u8| Ok::<_, BoxError>(call)));
    let [mut first, mut left, mut denied, mut last] =
        [0, 1, 2, 3].map(|call| task::spawn(service.clone().oneshot(call)));
    assert!(assert_ready!(first.poll()).is_ok());
    for waiting in [&mut left, &mut denied, &mut last] {
        assert_pending!(waiting.poll());
    }
    assert_eq!(script.ops(), [Op::Take(1)]);
    assert_eq!(windows.peek_now(&(), 0).remaining(), 2);
    drop(left);
    assert_eq!(script.ops(), [Op::Take(1)]);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(assert_ready!(denied.poll()).is_err());
    assert_eq!(script.ops(), [Op::Take(1); 2]);
    // Its turn is given back.
    assert!(assert_ready!(last.poll()).is_ok());
    assert_eq!(windows.peek_now(&(), 0).remaining(), 1);
}

/// Limits of tuples, and layers in layers, are counted in their order.
///
/// Shows promise 53.
#[tokio::test]
async fn a_decision_says_by_its_index_which_of_all_limits_has_made_it() {
    for (strictest, name) in ["pair-1", "pair-2", "third", "fourth"].iter().enumerate() {
        let quota = |at| window(if at == strictest { 1 } else { 9 });
        let layer = RateLimitLayer::new(Global, (quota(0), quota(1)))
            .name("pair")
            .and(RateLimitLayer::new(Global, quota(2)).name("third"))
            .and(RateLimitLayer::new(Global, quota(3)).name("fourth"))
            .share_decision()
            .headers(Headers::Draft11);
        let named = layer.clone().name("all").respond(AsError);
        let index = async |Extension(decision): Extension<Decision>| decision.policy.to_string();
        let app = Router::new().route("/", get(index)).layer(layer);
        let admitted = app.clone().oneshot(from(1)).await.unwrap();
        let told = admitted.headers()["ratelimit"].to_str().unwrap();
        assert!(told.starts_with(&format!("\"{name}\";r=0")), "{told}");
        let body = axum::body::to_bytes(admitted.into_body(), 9).await.unwrap();
        assert_eq!(body, strictest.to_string());
        let denied = app.oneshot(from(1)).await.unwrap();
        let limited = denied.extensions().get::<RateLimited>().unwrap();
        assert_eq!(limited.policy(), Some(*name));
        assert_eq!(limited.decision().unwrap().policy, strictest);
        let told = denied.headers()["ratelimit"].to_str().unwrap();
        assert!(told.starts_with(&format!("\"{name}\";r=0")), "{told}");
        let unit = service_fn(async |_: Request| Ok::<_, BoxError>(http::Response::new(())));
        let denied = named.layer(unit).oneshot(from(1)).await.unwrap_err();
        let limited = denied.downcast_ref::<RateLimited>().unwrap();
        let all = ["all-1-1", "all-1-2", "all-2", "all-3"];
        assert_eq!(limited.policy(), Some(all[strictest]));
    }
}

mod on_servers {
    //! Limits that are pending at first.

    use super::*;

    /// The first limit gives back what the second one denies, or does not decide before the client leaves.
    ///
    /// Shows promise 53.
    #[tokio::test]
    async fn what_the_second_limit_does_not_admit_is_given_back_to_the_first() {
        const TAKEN: &[Op] = &[Op::Take(3)];
        const GIVEN_BACK: &[Op] = &[Op::Take(3), Op::Refund(3, NOW)];
        for (replies, asked, in_shadow) in [
            ([Some(deny()), None], [TAKEN, &[]], false),
            ([Some(admit()), Some(deny())], [GIVEN_BACK, TAKEN], false),
            ([Some(admit()), Some(deny())], [GIVEN_BACK, TAKEN], true),
            ([Some(admit()), None], [GIVEN_BACK, TAKEN], false),
        ] {
            let scripts = [Script::default(), Script::default()];
            let senders = scripts.each_ref().map(Script::later);
            let [first, second] = scripts
                .clone()
                .map(|script| RateLimitLayer::new(Global, script));
            let mut layer = first.and(second).cost(|_: &u8| 3).respond(AsError);
            if in_shadow {
                layer = layer.shadow();
            }
            let service = layer.layer(service_fn(async |n: u8| Ok::<_, BoxError>(n)));
            let mut call = task::spawn(service.oneshot(1));
            let is_decided = replies[0] == Some(deny()) || replies[1].is_some();
            let _open: Vec<_> = senders
                .into_iter()
                .zip(replies)
                .filter_map(|(sender, reply)| match reply {
                    Some(reply) => sender.send(Ok(reply)).err().map(|_| None),
                    None => Some(Some(sender)),
                })
                .collect();
            if in_shadow {
                assert_ready!(call.poll()).unwrap();
            } else if is_decided {
                let error = assert_ready!(call.poll()).unwrap_err();
                let by = error.downcast_ref::<RateLimited>().unwrap().policy();
                assert_eq!(by == Some("default-2"), replies[1].is_some());
            } else {
                assert_pending!(call.poll());
            }
            drop(call);
            assert_eq!(scripts.map(|script| script.ops()), asked);
        }
    }

    /// Shows promise 53.
    #[tokio::test]
    async fn an_outage_of_one_limit_does_not_disable_the_other() {
        let outage = || StoreError::new("timed out", true);
        let layer = |first: &Script, second: &Script| {
            RateLimitLayer::new(Global, first.clone())
                .and(RateLimitLayer::new(Global, second.clone()))
                .respond(AsError)
                .layer(service_fn(async |n: u8| Ok::<_, BoxError>(n)))
        };
        for (denied, passes) in [(false, true), (true, false)] {
            let second_answer = || if denied { deny() } else { admit() };
            let (first, second) = (Script::default(), Script::now([second_answer()]));
            first.push(Reply::Now(Err(outage())));
            let result = layer(&first, &second).oneshot(1).await;
            assert_eq!(result.is_ok(), passes, "outage of the first");
            // Nothing was taken, so nothing is refunded.
            assert_eq!(first.ops(), [Op::Take(1)]);

            let (first, second) = (Script::now([second_answer()]), Script::default());
            second.push(Reply::Now(Err(outage())));
            let result = layer(&first, &second).oneshot(1).await;
            assert_eq!(result.is_ok(), passes, "outage of the second");
            assert_eq!(first.ops(), [Op::Take(1)], "the cost stays taken");
            let asked: &[Op] = if denied { &[] } else { &[Op::Take(1)] };
            assert_eq!(second.ops(), asked, "after a denial none is asked");
        }
    }
}

#[cfg(feature = "tokio")]
mod queued {
    //! One of the limits queues requests.

    use tower_throttle::LeakyBucket;

    use super::*;

    /// Shows promise 53.
    #[tokio::test(start_paused = true)]
    async fn a_request_dropped_in_the_queue_of_a_concurrency_limit_gives_back_its_turn() {
        use http::Response;

        for its_turn_came in [false, true] {
            let bucket = LeakyBucket::new(Quota::per_second(1).burst(1));
            let layer = RateLimitLayer::new(Global, window(10))
                .and(RateLimitLayer::new(Global, bucket).queue(10))
                .and(ConcurrencyLimitLayer::new(Global, 1).queue(5))
                .respond(AsError);
            let handle = layer.handle();
            let (window, line) = (handle.first().first(), handle.first().second());
            let inner = service_fn(async |n: u32| {
                tokio::time::sleep(Duration::from_secs(n.into())).await;
                Ok::<_, BoxError>(Response::new(String::new()))
            });
            let service = layer.layer(inner);
            let mut busy = task::spawn(service.clone().oneshot(100));
            assert_pending!(busy.poll());
            let mut waits = task::spawn(service.clone().oneshot(0));
            assert_pending!(waits.poll());
            assert_eq!(window.peek_now(&(), 0).remaining(), 9);
            if its_turn_came {
                tokio::time::advance(Duration::from_secs(1)).await;
                assert_pending!(waits.poll());
                assert_eq!(window.peek_now(&(), 0).remaining(), 8);
            }
            let waiting = || (line.waiting(), handle.second().waiting());
            let expected = if its_turn_came { (0, 1) } else { (1, 0) };
            assert_eq!(waiting(), expected);
            drop(waits);
            assert_eq!(waiting(), (0, 0));
            assert_eq!(window.peek_now(&(), 0).remaining(), 9);
            let next = Duration::from_secs(u64::from(!its_turn_came));
            let wait = line.peek_now(&(), 1).retry_after.unwrap_or_default();
            assert_eq!(wait.as_millis(), next.as_millis());
        }
    }
}

/// Shows promise 641.
#[tokio::test]
async fn each_limit_of_several_has_priorities_of_its_own() {
    let by_path = |req: &Request| match req.uri().path() {
        "/low" => 50,
        _ => 100,
    };
    let ask = |path: &str| {
        let mut request = from(1);
        *request.uri_mut() = path.parse().unwrap();
        request
    };
    let busy = || ConcurrencyLimitLayer::new(Global, 2).reserve(100, 1);
    let rate = || RateLimitLayer::new(Global, window(9));
    // How many of three requests to a path are admitted, with their responses held.
    macro_rules! held {
        ($layer:expr, $path:expr) => {{
            let app: Router = Router::new()
                .fallback(get(|| async { "done" }))
                .layer($layer);
            let mut held = Vec::new();
            for _ in 0..3 {
                held.push(app.clone().oneshot(ask($path)).await.unwrap());
            }
            let admitted = held.iter().filter(|one| one.status() == StatusCode::OK);
            admitted.count()
        }};
    }
    for (path, expected) in [("/low", 1), ("/high", 2)] {
        assert_eq!(held!(busy().priority(by_path).and(rate()), path), expected);
        assert_eq!(held!(rate().and(busy()).priority(by_path), path), expected);
        // Of the other limit.
        let found = held!(busy().and(rate()).and(busy().priority(by_path)), path);
        assert_eq!(found, expected);
        let low = |_: &Request| 50;
        assert_eq!(
            held!(
                busy().and(RateLimitLayer::new(Global, window(9)).priority(low)),
                path
            ),
            2
        );
        // The lowest one counts.
        let found = held!(busy().priority(by_path).and(rate()).priority(low), path);
        assert_eq!(found, 1);
    }
}
