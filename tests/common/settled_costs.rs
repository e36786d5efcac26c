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
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::store::{Backend, IntoBackend};
use tower_throttle::{Global, RateLimitLayer, respond::CostHandle};

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

/// Words that cost 3 each.
#[derive(Default)]
struct Words {
    left: u32,
    cost: Option<CostHandle>,
}

impl Body for Words {
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

async fn respond(request: Request<End>) -> Result<Response<Words>, Infallible> {
    let cost = request.extensions().get::<CostHandle>().cloned();
    let cost = cost.expect("a handle");
    if *request.body() == End::Panicked {
        cost.set(5);
        panic!("as asked");
    }
    Ok(Response::new(Words {
        left: 10,
        cost: (*request.body() != End::Silent).then_some(cost),
    }))
}

/// What is wrong with the costs that `limit` has in the end; it is new, of 100 per day or more.
pub(crate) async fn fault<L>(limit: L) -> Option<String>
where
    L: IntoBackend<Backend: Backend<()>> + 'static,
{
    let layer = RateLimitLayer::new(Global, limit)
        .cost(|_: &Request<End>| 20)
        .cost_at_end();
    let handle = layer.handle();
    let service = layer.layer(service_fn(respond));
    let remaining = async || {
        let peeked = handle.peek(&(), 0).await;
        // A limit in memory replies at once.
        tokio::task::yield_now().await;
        peeked.ok().map(|decision| decision.remaining())
    };
    let connected = async { while remaining().await.is_none() {} };
    let connected = tokio::time::timeout(Duration::from_secs(30), connected).await;
    connected.expect("the store is there");
    let mut left = remaining().await?;
    for (end, cost) in [
        (End::Read, 30),
        (End::Left, 6),
        (End::Panicked, 5),
        (End::Silent, 20),
    ] {
        let service = service.clone();
        let served = tokio::spawn(async move {
            let response = service.oneshot(Request::new(end)).await;
            let mut body = response.expect("it never fails").into_body();
            let most = if end == End::Left { 2 } else { usize::MAX };
            let mut read = 0;
            while read < most && body.frame().await.is_some() {
                read += 1;
            }
        });
        if served.await.is_err() != (end == End::Panicked) {
            return Some(format!("{end:?}: a panic, or none"));
        }
        left -= cost;
        let settled = async { while remaining().await != Some(left) {} };
        let settled = tokio::time::timeout(Duration::from_secs(10), settled).await;
        if settled.is_err() {
            return Some(format!(
                "{end:?}: {:?} in place of {left}",
                remaining().await
            ));
        }
    }
    None
}
