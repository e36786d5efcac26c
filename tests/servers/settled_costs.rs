//! Costs that are known at the end of a response, in a store on a server.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_throttle::store::{Backend, IntoBackend};
use tower_throttle::{
    Global, RateLimitLayer,
    respond::{AtEnd, CostHandle},
};

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The whole body is read.
    Read,
    /// Its client goes away after two words.
    Left,
    /// Its handler panics after it has said what was done until then.
    Panicked,
    /// The cost is never said, so the estimate stays.
    Silent,
}

/// Algorithm that cost 3 each.
#[derive(Default)]
struct Algorithm {
    left: u32,
    cost: Option<CostHandle>,
}

impl Body for Algorithm {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.left -= 1;
        if let Some(cost) = &self.cost {
            cost.add(3);
        }
        Poll::Ready(Some(Ok(Frame::data(Bytes::from("word ")))))
    }
}

async fn respond(request: Request<End>) -> Result<Response<Algorithm>, Infallible> {
    let cost = request.extensions().get::<CostHandle>().cloned();
    let cost = cost.expect("a handle");
    if *request.body() == End::Panicked {
        cost.set(5);
        panic!("as asked");
    }
    Ok(Response::new(Algorithm {
        left: 10,
        cost: (*request.body() != End::Silent).then_some(cost),
    }))
}

/// Sends a request, and reads its body to its end. Returns whether it was admitted.
async fn serve<S, B>(service: S, end: End) -> bool
where
    S: Service<Request<End>, Response = Response<B>, Error = Infallible, Future: Send>,
    S: Send + 'static,
    B: Body<Data = Bytes, Error: Send> + Send + Unpin + 'static,
{
    let served = tokio::spawn(async move {
        let Ok(response) = service.oneshot(Request::new(end)).await;
        let (head, mut body) = response.into_parts();
        let most = if end == End::Left { 2 } else { usize::MAX };
        let mut read = 0;
        while read < most && body.frame().await.is_some() {
            read += 1;
        }
        head.status.is_success()
    });
    served.await.unwrap_or(true)
}

/// Waits until so much is left. Else returns what is.
pub(crate) async fn settles<T: PartialEq>(
    expected: T,
    mut left: impl AsyncFnMut() -> T,
) -> Option<T> {
    let settled = async {
        while left().await != expected {
            // A limit in memory replies at once.
            tokio::task::yield_now().await;
        }
    };
    let settled = tokio::time::timeout(Duration::from_secs(10), settled).await;
    match settled {
        Ok(()) => None,
        Err(_) => Some(left().await),
    }
}

/// What is wrong with the costs that `limit` has in the end; it is new, of 100 per day or more.
pub(crate) async fn fault<L>(limit: L) -> Option<String>
where
    L: IntoBackend<Backend: Backend<()>> + 'static,
{
    let layer = RateLimitLayer::new(Global, limit)
        .cost(|_: &Request<End>| 20)
        .settle(AtEnd);
    let handle = layer.handle();
    let service = layer.layer(service_fn(respond));
    let remaining = async || {
        let peeked = handle.peek(&(), 0).await;
        peeked.ok().map(|decision| decision.remaining())
    };
    let mut left = connected(remaining).await;
    for (end, cost) in [
        (End::Read, 30),
        (End::Left, 6),
        (End::Panicked, 5),
        (End::Silent, 20),
    ] {
        serve(service.clone(), end).await;
        left -= cost;
        if let Some(wrong) = settles(Some(left), remaining).await {
            return Some(format!("{end:?}: {wrong:?} in place of {left}"));
        }
    }
    None
}

/// What is wrong with two limits of one layer: 30 requests per minute, and 700 tokens per day, which are known
/// at the end.
pub(crate) async fn fault_of_two<R, T>(requests: R, tokens: T) -> Option<String>
where
    R: IntoBackend<Backend: Backend<()>> + 'static,
    T: IntoBackend<Backend: Backend<()>> + 'static,
{
    let tokens = RateLimitLayer::new(Global, tokens)
        .cost(|_: &Request<End>| 20)
        .settle(AtEnd);
    let layer = RateLimitLayer::new(Global, requests).and(tokens);
    let handle = layer.handle();
    let service = layer.layer(service_fn(respond));
    let (requests, tokens) = (handle.first(), handle.second());
    let left = async || {
        let (requests, tokens) = (requests.peek(&(), 0).await, tokens.peek(&(), 0).await);
        Some((requests.ok()?.remaining(), tokens.ok()?.remaining()))
    };
    assert_eq!(connected(left).await, (30, 700), "they are new");
    let last = (0, 670);
    for (end, at_once, is_admitted, expected) in [
        (End::Read, 1, true, (29, 670)),
        (End::Left, 1, true, (28, 664)),
        (End::Panicked, 1, true, (27, 659)),
        (End::Silent, 1, true, (26, 639)),
        (End::Read, 20, true, (6, 39)),
        (End::Read, 1, true, (5, 9)),
        // The tokens deny it, and none of the requests is taken.
        (End::Read, 3, false, (5, 9)),
        (End::Left, 5, true, last),
        // The requests deny it, and none of the tokens is taken.
        (End::Read, 3, false, last),
    ] {
        if expected == last && is_admitted {
            tokens.reset(&()).await.expect("the store is there");
        }
        let requests = (0..at_once).map(|_| tokio::spawn(serve(service.clone(), end)));
        for request in requests.collect::<Vec<_>>() {
            if request.await.expect("no panic") != is_admitted {
                return Some(format!("{end:?}: admitted is not {is_admitted}"));
            }
        }
        if let Some(wrong) = settles(Some(expected), left).await {
            return Some(format!("{end:?}: {wrong:?} in place of {expected:?}"));
        }
    }
    None
}

/// What is left, once the store is there.
async fn connected<T>(mut left: impl AsyncFnMut() -> Option<T>) -> T {
    let connected = async {
        loop {
            if let Some(left) = left().await {
                return left;
            }
        }
    };
    let connected = tokio::time::timeout(Duration::from_secs(30), connected).await;
    connected.expect("the store is there")
}
