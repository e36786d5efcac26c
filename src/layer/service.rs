//! The service that the layer makes.

use std::{
    any::type_name,
    fmt,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tower_service::Service;

use super::future::{PendingRequest, ResponseContext, ResponseFuture};
use super::options::{Action, LayerOptions};
use super::reservation::{QueueEpoch, Reservation, poll_once};
use super::state::State;
use crate::backend::Backend;
use crate::decision::{CompactDecision, Decision};
use crate::error::{RateLimited, Rejection, StoreError};
use crate::key::{Extracted, KeyExtractor};
use crate::queue::{Order, RequestSeat, SeatAcquire, Seats, WhenFull};
use crate::respond::ResponseHooks;

/// A service whose requests are limited; see [`RateLimitLayer`](super::RateLimitLayer).
pub struct RateLimit<S, K, L, R> {
    inner: S,
    keys: K,
    respond: R,
    policy: LayerOptions,
    /// The seat that its readiness has taken.
    seat: SeatAcquire,
    state: Arc<State<L>>,
}

impl<S, K, L, R> RateLimit<S, K, L, R> {
    pub(super) const fn new(
        inner: S,
        keys: K,
        respond: R,
        policy: LayerOptions,
        seats: Option<Arc<Seats>>,
        state: Arc<State<L>>,
    ) -> Self {
        Self {
            inner,
            keys,
            respond,
            policy,
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
    R: ResponseHooks<Req, S::Response, S::Error> + Clone,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = ResponseFuture<S, K, L, R, Req>;

    #[inline]
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        // The seat first: whoever waits for one must not keep others from the service.
        if self.policy.when_full == WhenFull::Pending {
            ready!(self.seat.poll(cx));
        }
        self.inner.poll_ready(cx)
    }

    // A call: inlined, the request would be copied once more on its way to the service.
    #[inline(never)]
    fn call(&mut self, request: Req) -> Self::Future {
        let seat = self.seat.take_seat();
        let key = match self.keys.extract(&request) {
            Extracted::Key(key) => key,
            Extracted::Skip => return self.skip(request),
            Extracted::Reject(rejection) => return self.reject(request, rejection),
        };
        let cost = self.keys.cost(&request);
        let asked = QueueEpoch::now(&self.state.lines);
        let mut deciding = self.state.limiter.decide(&key, cost);
        match poll_once(&mut deciding) {
            // The way of nearly every request. What `decided` does with it would be the same, but
            // here the figures that nobody reads need not be computed, nor anything be moved.
            Poll::Ready(Ok(decision)) if self.is_fast_path(&decision) => {
                self.state.admitted();
                self.state.watch::<K::Key>();
                let after = R::NEEDS_RESPONSE.then(|| {
                    let told = R::WRITES_HEADERS.then(|| CompactDecision::new(&decision));
                    self.after(key, cost, told, asked)
                });
                ResponseFuture::inner(self.inner.call(request), after)
            }
            // Written anew, so that the other way need not have it in memory.
            Poll::Ready(Ok(decision)) => {
                self.decided(request, (key, cost), Ok(decision.elsewhere()), asked, seat)
            }
            Poll::Ready(Err(error)) => self.decided(request, (key, cost), Err(error), asked, seat),
            Poll::Pending => {
                let later = self.later(key, cost, request, None, seat);
                ResponseFuture::deciding(deciding, later)
            }
        }
    }
}

impl<S, K, L, R> RateLimit<S, K, L, R> {
    /// Lets a request pass that is not limited.
    #[inline(never)]
    fn skip<Req>(&mut self, request: Req) -> ResponseFuture<S, K, L, R, Req>
    where
        S: Service<Req>,
        K: KeyExtractor<Req>,
        L: Backend<K::Key>,
    {
        self.state.counts.skipped();
        self.state.signals().skipped();
        ResponseFuture::inner(self.inner.call(request), None)
    }

    /// Turns a request away that has no key.
    #[inline(never)]
    fn reject<Req>(&mut self, request: Req, rejection: Rejection) -> ResponseFuture<S, K, L, R, Req>
    where
        S: Service<Req>,
        K: KeyExtractor<Req>,
        L: Backend<K::Key>,
        R: ResponseHooks<Req, S::Response, S::Error>,
    {
        self.state.counts.rejected();
        self.state.signals().rejected(&rejection);
        if self.policy.shadow {
            return ResponseFuture::inner(self.inner.call(request), None);
        }
        ResponseFuture::done(self.respond.refuse(request, rejection.into()))
    }

    /// Does what the limiter has decided.
    #[inline(never)]
    fn decided<Req>(
        &mut self,
        mut request: Req,
        (key, cost): (K::Key, u64),
        mut decided: Result<Decision, StoreError>,
        mut asked: QueueEpoch,
        seat: RequestSeat,
    ) -> ResponseFuture<S, K, L, R, Req>
    where
        S: Service<Req> + Clone,
        K: KeyExtractor<Req>,
        L: Backend<K::Key>,
        R: ResponseHooks<Req, S::Response, S::Error> + Clone,
    {
        let state = &self.state;
        if let (Order::Newest, Ok(decision)) = (self.policy.order, &decided) {
            if decision.is_denied() && state.lines.anyone() && !self.policy.shadow {
                if let Some((again, then)) = state.make_room(&key, cost, *decision) {
                    (decided, asked) = (Ok(again), then);
                }
            }
        }
        let next = self.policy.resolve(state, decided);
        match self.policy.defer_to_waiters(state, &key, cost, next) {
            Action::Pass(decision) => {
                if let (true, Some(decision)) = (self.policy.share, &decision) {
                    self.respond.admit(&mut request, decision);
                }
                let after = decision.filter(|_| R::NEEDS_RESPONSE).map(|decision| {
                    let told = R::WRITES_HEADERS.then(|| CompactDecision::new(&decision));
                    self.after(key, cost, told, asked)
                });
                ResponseFuture::inner(self.inner.call(request), after)
            }
            Action::Wait(wait, decision) => {
                let later = self.later(key, cost, request, Some(asked), seat);
                ResponseFuture::waiting(later, wait, decision)
            }
            Action::Deny(denied) => {
                ResponseFuture::done(deny(&self.respond, &self.state, request, denied))
            }
        }
    }

    /// What is needed once the response is there.
    fn after<T>(
        &self,
        key: T,
        cost: u64,
        decision: Option<CompactDecision>,
        asked: QueueEpoch,
    ) -> ResponseContext<T, L, R>
    where
        L: Backend<T>,
        R: Clone,
    {
        ResponseContext {
            place: Reservation::new(Arc::clone(&self.state), key, cost, Some(asked)),
            respond: self.respond.clone(),
            decision,
        }
    }

    /// Whether the request goes on now, and nothing else is to be done about the decision.
    #[inline]
    fn is_fast_path(&self, decision: &Decision) -> bool {
        decision.is_admitted() && !self.policy.share && !self.state.lines.anyone()
    }
}

impl<S: Clone, K, L, R: Clone> RateLimit<S, K, L, R> {
    /// What is needed to go on later, on a clone of the service.
    ///
    /// The readiness that `poll_ready` got goes back: a request that waits must not keep others
    /// from the service, least of all if it is denied in the end.
    fn later<Req>(
        &mut self,
        key: K::Key,
        cost: u64,
        request: Req,
        asked: Option<QueueEpoch>,
        seat: RequestSeat,
    ) -> PendingRequest<S, K::Key, L, R, Req>
    where
        K: KeyExtractor<Req>,
        L: Backend<K::Key>,
    {
        let service = self.inner.clone();
        self.inner = service.clone();
        PendingRequest {
            service,
            request,
            place: Reservation::new(Arc::clone(&self.state), key, cost, asked),
            seat,
            respond: self.respond.clone(),
            policy: self.policy,
        }
    }
}

/// The answer to a refused request, with what there is to say about the limit.
pub(super) fn deny<K, L, R, Req, Res, Err>(
    respond: &R,
    state: &State<L>,
    request: Req,
    denied: RateLimited,
) -> Result<Res, Err>
where
    L: Backend<K>,
    R: ResponseHooks<Req, Res, Err>,
{
    let decision = denied.decision().copied();
    let mut answer = respond.refuse(request, denied);
    if let (true, Some(decision), Ok(response)) = (R::WRITES_HEADERS, decision, &mut answer) {
        state.with_policies(|policies| respond.tell(response, policies, &decision));
    }
    answer
}

/// By hand: the limiter is shared and need not be `Clone`.
impl<S: Clone, K: Clone, L, R: Clone> Clone for RateLimit<S, K, L, R> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            keys: self.keys.clone(),
            respond: self.respond.clone(),
            policy: self.policy,
            seat: self.seat.clone(),
            state: Arc::clone(&self.state),
        }
    }
}

/// By hand: closures have no `Debug`, and keys are nobody's business.
impl<S: fmt::Debug, K, L, R> fmt::Debug for RateLimit<S, K, L, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit")
            .field("inner", &self.inner)
            .field("name", &self.state.name())
            .field("keys", &format_args!("{}", type_name::<K>()))
            .field("limiter", &format_args!("{}", type_name::<L>()))
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}
