//! The service that the layer makes.

use std::{
    any::type_name,
    fmt,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tower_service::Service;

use super::future::{ResponseContext, ResponseFuture};
use super::keyed::{AtKey, poll_once};
use super::options::{Action, LayerOptions};
use super::pending::PendingRequest;
use super::queue_epoch::QueueEpoch;
use super::reservation::Reservation;
use super::state::State;
use crate::backend::Backend;
use crate::decision::{CompactDecision, Decision};
use crate::error::{Rejection, StoreError};
use crate::key::{Extracted, KeyExtractor};
use crate::queue::{Order, SeatAcquire, Seats, WhenFull};
use crate::respond::ResponseHooks;

/// A service whose requests are limited; see [`RateLimitLayer`](super::RateLimitLayer).
// The compiler shows the first line below when a method of `Service` is missing.
#[rustfmt::skip]
pub struct RateLimit<S, K, L, R> { // if it is not HTTP add `.respond(AsError)`, and `impl From<RateLimited>` for its error
    inner: S,
    keys: K,
    respond: R,
    options: LayerOptions,
    /// The seat that `poll_ready` has taken.
    seat: SeatAcquire,
    state: Arc<State<L>>,
}

impl<S, K, L, R> RateLimit<S, K, L, R> {
    pub(super) const fn new(
        inner: S,
        keys: K,
        respond: R,
        options: LayerOptions,
        seats: Option<Arc<Seats>>,
        state: Arc<State<L>>,
    ) -> Self {
        Self {
            inner,
            keys,
            respond,
            options,
            seat: SeatAcquire::new(seats),
            state,
        }
    }

    /// The service behind the limit.
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The service behind the limit.
    pub const fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The service behind the limit.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, K, L, R, Req> Service<Req> for RateLimit<S, K, L, R>
where
    S: Service<Req> + Clone,
    K: KeyExtractor<Req>,
    L: Backend<K::Key>,
    R: ResponseHooks<Req, K::Key, S::Response, S::Error> + Clone,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = ResponseFuture<S, K, L, R, Req>;

    #[inline]
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        // The seat first: while it waits for one, it must not hold readiness of the inner service.
        if self.options.when_full == WhenFull::Pending {
            ready!(self.seat.poll(cx));
        }
        self.inner.poll_ready(cx)
    }

    // Not inlined: that would copy the request once more on its way to the service.
    #[inline(never)]
    fn call(&mut self, request: Req) -> Self::Future {
        let key = match self.keys.extract(&request) {
            Extracted::Key(key) => key,
            Extracted::Skip => return self.skip(request),
            Extracted::Reject(rejection) => return self.reject(request, rejection),
        };
        let cost = self.keys.cost(&request);
        if R::NEEDS_RESPONSE || !L::HAS_FAST_PATH {
            return self.decide(request, key, cost);
        }
        // The path of nearly every request. `decide` would do the same with all figures.
        let epoch = QueueEpoch::current(&self.state.lines);
        let quickly = self.is_fast_path();
        if let Some(mut deciding) = self.state.backend.take(&key, cost, quickly) {
            // A call through another function would copy the request.
            return match poll_once(&mut deciding) {
                Poll::Ready(decided) => self.handle_decision(request, key, cost, decided, epoch),
                Poll::Pending => self.await_decision(request, key, cost, deciding),
            };
        }
        if self.state.record_admitted() {
            self.check_proxy_header(&request);
        }
        self.state.report_losses(|| self.state.backend.losses());
        self.seat.release();
        ResponseFuture::inner(self.inner.call(request), None)
    }
}

impl<S, K, L, R> RateLimit<S, K, L, R> {
    /// Passes a request that is not limited to the service.
    #[inline(never)]
    fn skip<Req>(&mut self, request: Req) -> ResponseFuture<S, K, L, R, Req>
    where
        S: Service<Req>,
        K: KeyExtractor<Req>,
        L: Backend<K::Key>,
    {
        self.state.counts.record_skipped();
        self.state.signals().record_skipped();
        self.seat.release();
        self.forward(request, None)
    }

    /// Passes a request to the service, on the cold paths.
    #[inline(never)]
    fn forward<Req>(
        &mut self,
        request: Req,
        context: Option<ResponseContext<K::Key, L, R>>,
    ) -> ResponseFuture<S, K, L, R, Req>
    where
        S: Service<Req>,
        K: KeyExtractor<Req>,
        L: Backend<K::Key>,
    {
        ResponseFuture::inner(self.inner.call(request), context)
    }

    /// Rejects a request that has no key.
    #[inline(never)]
    fn reject<Req>(&mut self, request: Req, rejection: Rejection) -> ResponseFuture<S, K, L, R, Req>
    where
        S: Service<Req>,
        K: KeyExtractor<Req>,
        L: Backend<K::Key>,
        R: ResponseHooks<Req, K::Key, S::Response, S::Error>,
    {
        self.seat.release();
        let shadow = self.options.shadow;
        self.state.counts.record_rejected(shadow);
        self.state.signals().record_rejected(&rejection, shadow);
        if shadow {
            return self.forward(request, None);
        }
        ResponseFuture::done(self.state.deny(&self.respond, request, rejection.into()))
    }

    /// Decides and does what was decided.
    #[inline(never)]
    fn decide<Req>(
        &mut self,
        request: Req,
        key: K::Key,
        cost: u64,
    ) -> ResponseFuture<S, K, L, R, Req>
    where
        S: Service<Req> + Clone,
        K: KeyExtractor<Req>,
        L: Backend<K::Key>,
        R: ResponseHooks<Req, K::Key, S::Response, S::Error> + Clone,
    {
        let epoch = QueueEpoch::current(&self.state.lines);
        let mut deciding = self.state.backend.decide(&key, cost);
        match poll_once(&mut deciding) {
            // `handle_decision` would do the same, more slowly.
            Poll::Ready(Ok(decision)) if decision.is_admitted() && self.is_fast_path() => {
                self.seat.release();
                if self.state.record_admitted() {
                    self.check_proxy_header(&request);
                }
                self.state.report_losses(|| self.state.backend.losses());
                let respond = R::NEEDS_RESPONSE.then(|| self.respond_to(&request));
                let future = self.inner.call(request);
                // Made after the call, so that it is written to where it is returned.
                let context = respond
                    .map(|respond| self.response_context(respond, (key, cost), &decision, epoch));
                ResponseFuture::inner(future, context)
            }
            Poll::Ready(decided) => {
                // A new value, so that the path above need not keep it in memory.
                let decided = decided.map(Decision::hide_from_optimizer);
                self.handle_decision(request, key, cost, decided, epoch)
            }
            Poll::Pending => self.await_decision(request, key, cost, deciding),
        }
    }

    /// Lets a request wait for the backend's decision.
    #[inline(never)]
    fn await_decision<Req>(
        &mut self,
        request: Req,
        key: K::Key,
        cost: u64,
        deciding: L::Future,
    ) -> ResponseFuture<S, K, L, R, Req>
    where
        S: Service<Req> + Clone,
        K: KeyExtractor<Req>,
        L: Backend<K::Key>,
        R: ResponseHooks<Req, K::Key, S::Response, S::Error> + Clone,
    {
        if self.state.counts.is_sampled() {
            self.check_proxy_header(&request);
        }
        let pending = self.suspend(key, cost, request, None);
        ResponseFuture::deciding(pending, deciding)
    }

    /// Does what the backend has decided.
    #[inline(never)]
    fn handle_decision<Req>(
        &mut self,
        mut request: Req,
        key: K::Key,
        cost: u64,
        mut decided: Result<Decision, StoreError>,
        mut epoch: QueueEpoch,
    ) -> ResponseFuture<S, K, L, R, Req>
    where
        S: Service<Req> + Clone,
        K: KeyExtractor<Req>,
        L: Backend<K::Key>,
        R: ResponseHooks<Req, K::Key, S::Response, S::Error> + Clone,
    {
        let state = &self.state;
        if state.counts.is_sampled() {
            self.check_proxy_header(&request);
        }
        if let (Order::Newest, Ok(decision)) = (self.options.order, &decided) {
            if decision.is_denied() && state.lines.has_waiters() && !self.options.shadow {
                let (line_id, backend) = (state.line_id(&key), AtKey { state, key: &key });
                let retried = state.shed_and_retry(line_id, &backend, cost, *decision);
                if let Some((again, then)) = retried {
                    (decided, epoch) = (Ok(again), then);
                }
            }
        }
        let (line_id, backend) = (|| state.line_id(&key), AtKey { state, key: &key });
        match self
            .options
            .resolve(state, &backend, &line_id, cost, decided)
        {
            Action::Pass(decision) => {
                if let (true, Some(decision)) = (self.options.share_decision, &decision) {
                    self.respond.admit(&mut request, decision);
                }
                let context = decision.filter(|_| R::NEEDS_RESPONSE).map(|decision| {
                    let respond = self.respond_to(&request);
                    self.response_context(respond, (key, cost), &decision, epoch)
                });
                self.seat.release();
                self.forward(request, context)
            }
            Action::Wait(wait, decision) => {
                let pending = self.suspend(key, cost, request, Some(epoch));
                ResponseFuture::queued(pending, wait, decision)
            }
            Action::Deny(denied) => {
                self.seat.release();
                ResponseFuture::done(self.state.deny(&self.respond, request, denied))
            }
        }
    }

    /// Reports `request` if it has a proxy header that the key extractor ignores.
    #[inline]
    fn check_proxy_header<Req>(&self, request: &Req)
    where
        K: KeyExtractor<Req>,
    {
        if self.keys.unread_proxy_header(request) {
            self.state.record_unread_proxy_header();
        }
    }

    /// The hooks for the response to `request`.
    #[inline]
    fn respond_to<Req>(&self, request: &Req) -> R
    where
        S: Service<Req>,
        K: KeyExtractor<Req>,
        R: ResponseHooks<Req, K::Key, S::Response, S::Error> + Clone,
    {
        let mut respond = self.respond.clone();
        respond.capture(request);
        respond
    }

    /// What is needed once the response is there.
    #[inline]
    fn response_context<T, Req>(
        &self,
        respond: R,
        (key, cost): (T, u64),
        decision: &Decision,
        epoch: QueueEpoch,
    ) -> ResponseContext<T, L, R>
    where
        S: Service<Req>,
        L: Backend<T>,
        R: ResponseHooks<Req, T, S::Response, S::Error>,
    {
        let mut reservation = Reservation::new(Arc::clone(&self.state), key, cost, Some(epoch));
        reservation.record(decision);
        ResponseContext {
            reservation,
            respond,
            decision: (R::WRITES_HEADERS && !self.options.silent)
                .then(|| CompactDecision::new(decision)),
        }
    }

    /// Whether an admitted request goes on now without its decision.
    #[inline]
    fn is_fast_path(&self) -> bool {
        !self.options.share_decision && !self.state.lines.has_waiters()
    }
}

impl<S: Clone, K, L, R: Clone> RateLimit<S, K, L, R> {
    /// What is needed to go on later, on a clone of the service.
    ///
    /// The readiness that `poll_ready` got is dropped: a waiting request must not keep others from
    /// the service, since it may be denied in the end.
    fn suspend<Req>(
        &mut self,
        key: K::Key,
        cost: u64,
        request: Req,
        epoch: Option<QueueEpoch>,
    ) -> PendingRequest<S, K::Key, L, L::Future, R, Req>
    where
        K: KeyExtractor<Req>,
        L: Backend<K::Key>,
    {
        let seat = self.seat.take_seat();
        let service = self.inner.clone();
        self.inner = service.clone();
        let reservation = Reservation::new(Arc::clone(&self.state), key, cost, epoch);
        let respond = self.respond.clone();
        PendingRequest::new(service, request, reservation, seat, respond, self.options)
    }
}

/// Manual impl: derive would require `L: Clone`.
impl<S: Clone, K: Clone, L, R: Clone> Clone for RateLimit<S, K, L, R> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            keys: self.keys.clone(),
            respond: self.respond.clone(),
            options: self.options,
            seat: self.seat.clone(),
            state: Arc::clone(&self.state),
        }
    }
}

/// Manual impl: closures are not `Debug`, and keys must not be logged.
impl<S: fmt::Debug, K, L, R> fmt::Debug for RateLimit<S, K, L, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit")
            .field("inner", &self.inner)
            .field("name", &self.state.name())
            .field("keys", &format_args!("{}", type_name::<K>()))
            .field("backend", &format_args!("{}", type_name::<L>()))
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
