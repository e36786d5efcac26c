//! The service that the layer makes.

use std::{
    future::{Future, poll_fn, ready},
    hash::BuildHasher,
    mem,
    pin::Pin,
    task::{Context, Poll, Waker},
};

use http::Response;
use tower_service::Service;

use super::PacerLayer;
use super::feedback::Feedback;
use super::replay::Replay;
use super::table::Visit;
use crate::key::{Extracted, KeyExtractor};
use crate::respond::DenialError;

/// A client that keeps to the limits that its servers state; made by a [`PacerLayer`].
///
/// # Cancel safety
/// Dropping a response future while its request waits gives the place to the next. A request that was sent
/// stays counted. A future that waits and is not polled holds up those behind it, at most for
/// [`max_wait`](PacerLayer::max_wait).
#[derive(Clone, Debug)]
pub struct Pacer<S, K, R = ()> {
    pub(super) inner: S,
    pub(super) layer: PacerLayer<K, R>,
}

impl<S, K, R, Req, B> Service<Req> for Pacer<S, K, R>
where
    S: Service<Req, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: DenialError + Send,
    K: KeyExtractor<Req>,
    R: Replay<Req> + Clone + Send + 'static,
    Req: Send + 'static,
    B: Send + 'static,
{
    type Response = Response<B>;
    type Error = S::Error;
    /// Boxed, as those of HTTP clients are: one allocation for a request over a network.
    type Future = Pin<Box<dyn Future<Output = Result<Response<B>, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Req) -> Self::Future {
        let layer = &self.layer;
        let key = match layer.keys.extract(&request) {
            Extracted::Key(key) => layer.hasher.hash_one(&key),
            Extracted::Skip => return Box::pin(self.inner.call(request)),
            Extracted::Reject(denied) => {
                return Box::pin(ready(Err(DenialError::from_denial(denied.into()))));
            }
        };
        let clone = self.inner.clone();
        let mut service = mem::replace(&mut self.inner, clone);
        let mut visit = Visit::enter(layer.table.clone(), key, layer.settings);
        // It joins the line here, in the order of calls; the future polls again.
        let turn = visit.poll(&mut Context::from_waker(Waker::noop()));
        let mut has_turn = turn.is_ready();
        if let Poll::Ready(Err(limited)) = turn {
            return Box::pin(ready(Err(DenialError::from_denial(limited))));
        }
        if !has_turn {
            // A request that waits must not keep others from the service by the readiness that it got.
            service = self.inner.clone();
        }
        let replay = layer.replay.clone();
        Box::pin(async move {
            let mut denial = None;
            loop {
                loop {
                    if !mem::take(&mut has_turn) {
                        if let Err(limited) = poll_fn(|cx| visit.poll(cx)).await {
                            // The denial that was to be retried says more.
                            return denial.ok_or_else(|| DenialError::from_denial(limited));
                        }
                        poll_fn(|cx| service.poll_ready(cx)).await?;
                    }
                    if !visit.waits_again() {
                        break;
                    }
                    // As above.
                    service = service.clone();
                }
                drop(denial);
                let copy = replay.copy(&request);
                let response = service.call(request).await?;
                let feedback = Feedback::read(response.status(), response.headers());
                visit.learn(&feedback);
                request = match copy {
                    Some(again) if feedback.allows_retry() && visit.retry() => again,
                    _ => return Ok(response),
                };
                denial = Some(response);
            }
        })
    }
}
