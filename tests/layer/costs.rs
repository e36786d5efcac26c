//! A cost that is said while the request is served is settled once, however the request ends.

use std::{
    collections::VecDeque,
    future::{Future, pending},
    pin::{Pin, pin},
    task::{Context, Poll},
    thread,
    time::Duration,
};

use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::{Body, Bytes, Frame};
use tokio_test::task;
use tower::{BoxError, Layer, Service, ServiceExt, service_fn};
use tower_throttle::{
    FixedWindow, Global, Headers, Local, ManualClock, Quota, RateLimitLayer, TokenBucket,
    respond::{AtEnd, CostHandle},
    store::{Op, Receipt},
};

use crate::support::{Script, deny};

const LIMIT: u64 = 100;
const ESTIMATE: u64 = 20;

/// How a request ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Body,
    BodyDropped,
    BodyFails,
    NoBody,
    Commit,
    Error,
    Panic,
    Cancelled,
}

const ENDS: [End; 8] = [
    End::Body,
    End::BodyDropped,
    End::BodyFails,
    End::NoBody,
    End::Commit,
    End::Error,
    End::Panic,
    End::Cancelled,
];

const SAID: [Option<u64>; 5] = [None, Some(0), Some(6), Some(50), Some(u64::MAX)];

type Asked = (End, Option<u64>);

/// A body of frames, which holds a handle.
#[derive(Debug, Default)]
struct Frames {
    left: VecDeque<Result<Frame<Bytes>, BoxError>>,
    cost: CostHandle,
}

impl Body for Frames {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Poll::Ready(self.left.pop_front())
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_empty()
    }
}

fn handle_of<B>(request: &Request<B>) -> CostHandle {
    let handle = request.extensions().get().cloned();
    handle.expect("a request has a handle")
}

/// Says the cost in two parts, and ends as it is asked to.
async fn serve(request: Request<Asked>) -> Result<Response<Frames>, BoxError> {
    let cost = handle_of(&request);
    let (end, said) = *request.body();
    if let Some(said) = said {
        cost.set(said / 2);
        cost.add(said - said / 2);
    }
    let mut frames = Frames::default();
    let frame = || Ok(Frame::data(Bytes::from("word")));
    match end {
        End::NoBody => return Ok(Response::new(frames)),
        End::Error => return Err("broken".into()),
        End::Panic => panic!("as asked"),
        End::Cancelled => pending().await,
        End::Commit => {
            cost.commit();
            cost.add(7);
        }
        End::BodyFails => frames.left.extend([frame(), Err("broken".into())]),
        End::Body | End::BodyDropped => {}
    }
    frames.left.extend([frame(), frame()]);
    frames.cost = cost;
    Ok(Response::new(frames))
}

async fn run<S, B>(service: S, asked: Asked)
where
    S: Service<Request<Asked>, Response = Response<B>, Error = BoxError> + Send + 'static,
    S::Future: Send,
    B: Body<Data = Bytes, Error = BoxError> + Send + 'static,
{
    let (end, _) = asked;
    let call = service.oneshot(Request::new(asked));
    if end == End::Cancelled {
        assert!(task::spawn(call).poll().is_pending());
        return;
    }
    let Ok(Ok(response)) = tokio::spawn(call).await else {
        assert!([End::Error, End::Panic].contains(&end), "{end:?}");
        return;
    };
    let mut body = pin!(response.into_body());
    if end == End::BodyDropped {
        assert!(body.frame().await.is_some());
    } else {
        let _ = body.collect().await;
    }
}

/// What is taken after a request, if that is wrong.
async fn fault(asked: Asked) -> Option<u64> {
    let window = Local::new(FixedWindow::new(Quota::per_day(LIMIT))).with_clock(ManualClock::new());
    let layer = RateLimitLayer::new(Global, window)
        .cost(|_: &Request<Asked>| ESTIMATE)
        .settle(AtEnd);
    let handle = layer.handle();
    run(layer.layer(service_fn(serve)), asked).await;
    let left = handle.peek(&(), 0).await.unwrap().remaining();
    let expected = asked.1.unwrap_or(ESTIMATE).min(LIMIT);
    (LIMIT - left != expected).then_some(LIMIT - left)
}

/// Shows promise 321.
#[tokio::test]
async fn however_a_request_ends_what_was_said_is_taken_and_else_the_estimate() {
    for end in ENDS {
        for said in SAID {
            assert_eq!(fault((end, said)).await, None, "{end:?} {said:?}");
        }
    }
}

/// A handle that is never dropped is the only way to leave a cost unsettled.
///
/// Shows promise 321.
#[tokio::test]
async fn the_cost_stays_an_estimate_until_the_last_handle_is_dropped() {
    let script = Script::default();
    let layer = RateLimitLayer::new(Global, script.clone())
        .cost(|_: &Request<Asked>| ESTIMATE)
        .settle(AtEnd)
        .headers(Headers::Draft11);
    let request = Request::new((End::Body, Some(6)));
    let service = layer.layer(service_fn(serve));
    let response = service.oneshot(request).await.unwrap();
    let policy = response.headers()["ratelimit-policy"].to_str().unwrap();
    assert_eq!(policy, r#""default";q=10;w=60"#);
    let mut body = response.into_body();
    assert!(body.frame().await.is_some());
    let another = body.cost.clone();
    drop(body);
    assert_eq!(script.ops(), [Op::Take(ESTIMATE)]);
    drop(another);
    let settled = [Op::Take(ESTIMATE), Op::Refund(14, Receipt::NOW)];
    assert_eq!(script.ops(), settled);
}

/// Shows promise 321.
#[cfg(feature = "tokio")]
#[tokio::test(start_paused = true)]
async fn what_a_request_has_not_used_moves_the_waiters_up() {
    use tokio_test::assert_pending;

    let bucket = TokenBucket::new(Quota::per_second(1).burst(3));
    let layer = RateLimitLayer::new(Global, bucket).queue(20);
    let layer = layer.cost(|_: &Request<Asked>| 3).settle(AtEnd);
    let service = layer.layer(service_fn(serve));
    let call = |said| service.clone().oneshot(Request::new((End::Body, said)));
    let first = call(Some(1)).await.unwrap();
    let mut next = task::spawn(call(None));
    assert_pending!(next.poll());
    drop(first);
    let start = tokio::time::Instant::now();
    next.await.unwrap();
    assert_eq!(start.elapsed().as_millis(), 1_000);
}

/// Shows promise 321.
#[cfg(feature = "tokio")]
#[tokio::test(start_paused = true)]
async fn what_a_request_has_used_beyond_its_estimate_is_taken_while_others_wait() {
    use tokio_test::assert_pending;

    let bucket = || TokenBucket::new(Quota::per_second(1).burst(1));
    let layer = RateLimitLayer::new(Global, (bucket(), bucket()))
        .queue(20)
        .settle(AtEnd);
    let service = layer.layer(service_fn(serve));
    let call = |said| service.clone().oneshot(Request::new((End::Body, said)));
    let first = call(Some(5)).await.unwrap();
    let mut next = task::spawn(call(None));
    assert_pending!(next.poll());
    let reset_after = || layer.handle().peek_now(&(), 0).reset_after;
    let before = reset_after();
    drop(first);
    assert_eq!(reset_after(), before + Duration::from_secs(4));
}

/// Shows promise 321.
#[tokio::test]
async fn each_of_several_limits_is_told_by_its_name() {
    let (tokens, bytes, requests) = (Script::default(), Script::default(), Script::default());
    let limit = |script: &Script| RateLimitLayer::new(Global, script.clone());
    let estimated = |script, name, estimate: u64| {
        limit(script)
            .cost(move |_: &Request<()>| estimate)
            .settle(AtEnd)
            .name(name)
    };
    let layer = limit(&requests)
        .name("requests")
        .and(estimated(&tokens, "tokens", 10))
        .and(estimated(&bytes, "bytes", 500));
    let serve = |request: Request<()>| async move {
        let cost = handle_of(&request);
        assert_eq!(format!("{cost:?}"), r#"{"tokens", "bytes"}"#);
        cost.add(1);
        cost.of("tokens").unwrap().set(30);
        cost.of("bytes").unwrap().add(199);
        assert!(cost.of("requests").is_none() && cost.of("").is_none());
        Ok::<_, BoxError>(Response::new(Frames::default()))
    };
    let service = layer.layer(service_fn(serve));
    service.oneshot(Request::new(())).await.unwrap();
    assert_eq!(requests.ops(), [Op::Take(1)]);
    assert_eq!(tokens.ops(), [Op::Take(10), Op::Charge(20)]);
    assert_eq!(bytes.ops(), [Op::Take(500), Op::Refund(300, Receipt::NOW)]);
}

/// Shows promise 321.
#[tokio::test]
async fn what_another_limit_denies_costs_nothing() {
    let script = Script::default();
    let other = || RateLimitLayer::new(Global, Script::now([deny()]));
    let layer = RateLimitLayer::new(Global, script.clone())
        .cost(|_: &Request<Asked>| ESTIMATE)
        .settle(AtEnd);
    let request = || Request::new((End::Body, Some(6)));
    // Whatever was said before.
    let says = |request: Request<Asked>| {
        handle_of(&request).set(6);
        request
    };
    let inside = other().layer(service_fn(serve)).map_request(says);
    let service = layer.layer(inside);
    assert_eq!(service.oneshot(request()).await.unwrap().status(), 429);
    let given_back = [Op::Take(ESTIMATE), Op::Refund(ESTIMATE, Receipt::NOW)];
    assert_eq!(script.ops(), given_back, "inside of it");
    let service = layer.and(other()).layer(service_fn(serve));
    assert_eq!(service.oneshot(request()).await.unwrap().status(), 429);
    assert_eq!(script.ops()[2..], given_back);
}

/// What time has returned is not given back again.
///
/// Shows promise 321.
#[tokio::test]
async fn a_long_stream_gives_back_only_what_is_still_taken() {
    let clock = ManualClock::new();
    let bucket = Local::new(TokenBucket::new(Quota::per_second(10).burst(LIMIT)));
    let layer = RateLimitLayer::new(Global, bucket.with_clock(clock.clone()))
        .cost(|_: &Request<Asked>| ESTIMATE)
        .settle(AtEnd);
    let handle = layer.handle();
    let request = Request::new((End::Body, Some(0)));
    let service = layer.layer(service_fn(serve));
    let response = service.oneshot(request).await.unwrap();
    clock.advance(Duration::from_secs(2));
    drop(handle.charge(&(), 50));
    assert_eq!(handle.peek_now(&(), 0).remaining(), 50);
    drop(response);
    assert_eq!(handle.peek_now(&(), 0).remaining(), 50);
}

/// Handles are told by many threads.
///
/// Shows promise 321.
#[test]
fn costs_of_many_threads_are_added() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let script = Script::default();
    let layer = RateLimitLayer::new(Global, script.clone())
        .cost(|_: &Request<()>| ESTIMATE)
        .settle(AtEnd);
    let serve = |request: Request<()>| async move {
        let cost = handle_of(&request);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1_000).for_each(|_| cost.add(1)));
            }
        });
        Ok::<_, BoxError>(Response::new(Frames::default()))
    };
    let call: Pin<Box<dyn Future<Output = _>>> =
        Box::pin(layer.layer(service_fn(serve)).oneshot(Request::new(())));
    drop(runtime.block_on(call).unwrap());
    let found = script.ops();
    assert_eq!(found, [Op::Take(ESTIMATE), Op::Charge(4_000 - ESTIMATE)]);
}
