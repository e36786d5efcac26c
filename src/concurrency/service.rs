//! The service that the layer makes.

use std::{
    any::type_name,
    fmt,
    marker::PhantomData,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tower_service::Service;

use super::claim::{Claim, Usage};
use super::future::{ConcurrencyFuture, Started, Told};
use super::hold::{Held, Hold};
use super::pending::PendingRequest;
use super::permit::{Permit, Place};
use super::state::{Options, State};
use super::table::Joined;
use crate::decision::{CompactDecision, Verdict};
use crate::error::Rejection;
use crate::key::{Extracted, KeyExtractor};
use crate::queue::{RequestSeat, SeatAcquire, Seats, WhenFull};
use crate::respond::ResponseHooks;

/// A service with a limit on how many requests of one key are in flight; see
/// [`ConcurrencyLayer`](super::ConcurrencyLayer).
// The compiler shows the first line below when a method of `Service` is missing.
#[rustfmt::skip]
pub struct ConcurrencyLimit<S, K, R, H> { // if it is not HTTP add `.release_at_response()` and `.respond(AsError)`, and `impl From<RateLimited>` for its error
    inner: S,
    keys: K,
    respond: R,
    options: Options,
    /// The seat that `poll_ready` has taken.
    seat: SeatAcquire,
    state: Arc<State>,
    hold: PhantomData<fn() -> H>,
}

impl<S, K, R, H> ConcurrencyLimit<S, K, R, H> {
    pub(super) const fn new(
        inner: S,
        keys: K,
        respond: R,
        options: Options,
        seats: Option<Arc<Seats>>,
        state: Arc<State>,
    ) -> Self {
        Self {
            inner,
            keys,
            respond,
            options,
            seat: SeatAcquire::new(seats),
            state,
            hold: PhantomData,
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

impl<S, K, R, H, Req> Service<Req> for ConcurrencyLimit<S, K, R, H>
where
    S: Service<Req> + Clone,
    K: KeyExtractor<Req>,
    R: ResponseHooks<Req, (), S::Response, S::Error> + Clone,
    H: Hold<S::Response>,
{
    type Response = H::Response;
    type Error = S::Error;
    type Future = ConcurrencyFuture<S, R, H, Req>;

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
        let seat = self.seat.take_seat();
        let key = match self.keys.extract(&request) {
            Extracted::Key(key) => key,
            Extracted::Skip => return self.skip(request),
            Extracted::Reject(rejection) => return self.reject(request, rejection),
        };
        let units = self.keys.cost(&request);
        if units == 0 {
            return self.admit(request, None, Usage::NONE);
        }
        let claim = Claim {
            id: self.state.table.key_id(&key),
            units,
            priority: self.keys.priority(&request),
        };
        // The table lets a request of more units than the limit be in flight alone.
        if self.state.may_pass(claim) {
            if let Ok(usage) = self.state.table.try_take(claim) {
                let permit = Permit::new(Arc::clone(&self.state), claim);
                return self.admit(request, Some(permit), usage);
            }
        }
        self.wait_or_deny(request, claim, seat)
    }
}

impl<S, K, R, H> ConcurrencyLimit<S, K, R, H> {
    /// Passes on a request that may go on now.
    #[inline]
    fn admit<Req>(
        &mut self,
        request: Req,
        permit: Option<Permit>,
        usage: Usage,
    ) -> ConcurrencyFuture<S, R, H, Req>
    where
        S: Service<Req>,
        K: KeyExtractor<Req>,
        R: ResponseHooks<Req, (), S::Response, S::Error> + Clone,
        H: Hold<S::Response>,
    {
        if self.state.record_admitted() && self.keys.unread_proxy_header(&request) {
            self.report_proxy_header();
        }
        let begun = Started::begin(&self.state);
        let told = permit.as_ref().and_then(|_| self.told::<Req>(usage));
        let future = self.inner.call(request);
        // Made after the call: it would be written to memory and read again around it.
        let started = Started::new(begun, usage.in_flight);
        ConcurrencyFuture::inner(future, Held(permit), told, started)
    }

    /// What the response says about the limit, if anything.
    fn told<Req>(&self, usage: Usage) -> Option<Told<R>>
    where
        S: Service<Req>,
        R: ResponseHooks<Req, (), S::Response, S::Error> + Clone,
    {
        let decision = State::decision(Verdict::Admit, usage);
        (R::WRITES_HEADERS && !self.options.silent).then(|| Told {
            respond: self.respond.clone(),
            decision: CompactDecision::new(&decision),
        })
    }

    #[cold]
    fn report_proxy_header(&self) {
        self.state.counts.record_unread_proxy_header();
        self.state.signals.record_unread_proxy_header();
    }

    /// Passes a request that is not limited to the service.
    #[inline(never)]
    fn skip<Req>(&mut self, request: Req) -> ConcurrencyFuture<S, R, H, Req>
    where
        S: Service<Req>,
        H: Hold<S::Response>,
    {
        self.state.counts.record_skipped();
        self.state.signals.record_skipped();
        ConcurrencyFuture::inner(self.inner.call(request), Held(None), None, None)
    }

    /// Rejects a request that has no key.
    #[inline(never)]
    fn reject<Req>(&mut self, request: Req, rejection: Rejection) -> ConcurrencyFuture<S, R, H, Req>
    where
        S: Service<Req>,
        R: ResponseHooks<Req, (), S::Response, S::Error>,
        H: Hold<S::Response>,
    {
        let shadow = self.options.shadow;
        self.state.counts.record_rejected(shadow);
        self.state.signals.record_rejected(&rejection, shadow);
        if shadow {
            return ConcurrencyFuture::inner(self.inner.call(request), Held(None), None, None);
        }
        ConcurrencyFuture::done(self.respond.refuse(request, rejection.into()))
    }

    /// What happens to a request for which there is no room.
    #[inline(never)]
    fn wait_or_deny<Req>(
        &mut self,
        request: Req,
        claim: Claim,
        mut seat: RequestSeat,
    ) -> ConcurrencyFuture<S, R, H, Req>
    where
        S: Service<Req> + Clone,
        K: KeyExtractor<Req>,
        R: ResponseHooks<Req, (), S::Response, S::Error> + Clone,
        H: Hold<S::Response>,
    {
        if self.state.counts.is_sampled() && self.keys.unread_proxy_header(&request) {
            self.report_proxy_header();
        }
        if self.options.shadow {
            return self.pass_in_shadow(request, claim);
        }
        let (state, most) = (&self.state, self.options.queue);
        let may_pass = state.may_pass(claim);
        let joined = if may_pass && most > 0 && seat.try_acquire() {
            state.table.take_or_join(claim, most)
        } else {
            Joined::Full(state.table.usage(claim))
        };
        match joined {
            Joined::Taken(usage) => {
                let permit = Permit::new(Arc::clone(state), claim);
                self.admit(request, Some(permit), usage)
            }
            Joined::Waits(at, usage) => {
                state.record_waited(usage, &self.options);
                let place = Place::new(Arc::clone(state), claim, at);
                ConcurrencyFuture::pending(self.suspend(request, place, seat))
            }
            Joined::Full(usage) => {
                let denied = state.deny(may_pass, usage, &self.options);
                ConcurrencyFuture::done(state.refuse(&self.respond, request, denied))
            }
        }
    }

    /// Counts a request that would have to wait or be denied, and passes it on.
    fn pass_in_shadow<Req>(&mut self, request: Req, claim: Claim) -> ConcurrencyFuture<S, R, H, Req>
    where
        S: Service<Req>,
        R: ResponseHooks<Req, (), S::Response, S::Error> + Clone,
        H: Hold<S::Response>,
    {
        let state = &self.state;
        let usage = state.table.take_anyway(claim);
        let permit = Permit::new(Arc::clone(state), claim);
        // The requests beyond the limit are those that would wait.
        let may_wait = usage.limit.saturating_add(self.options.queue.into());
        let may_pass = state.may_pass(claim);
        if may_pass && usage.in_flight <= may_wait {
            state.record_waited(usage, &self.options);
        } else {
            let _ = state.deny(may_pass, usage, &self.options);
        }
        let told = self.told::<Req>(usage);
        let started = Started::new(Started::begin(&self.state), usage.in_flight);
        ConcurrencyFuture::inner(self.inner.call(request), Held(Some(permit)), told, started)
    }

    /// What is needed to go on later, on a clone of the service.
    ///
    /// The readiness that `poll_ready` got is dropped: a waiting request must not keep others from
    /// the service.
    fn suspend<Req>(
        &mut self,
        request: Req,
        place: Place,
        seat: RequestSeat,
    ) -> PendingRequest<S, R, Req>
    where
        S: Service<Req> + Clone,
        R: ResponseHooks<Req, (), S::Response, S::Error> + Clone,
    {
        let service = self.inner.clone();
        self.inner = service.clone();
        let timeout = self.respond.timeout(&request);
        let options = Options {
            max_wait: timeout.map_or(self.options.max_wait, |timeout| {
                timeout.min(self.options.max_wait)
            }),
            ..self.options
        };
        let (state, respond) = (Arc::clone(&self.state), self.respond.clone());
        PendingRequest::new(service, request, place, seat, respond, options, state)
    }
}

/// Manual impl: `H` need not be `Clone`.
impl<S: Clone, K: Clone, R: Clone, H> Clone for ConcurrencyLimit<S, K, R, H> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            keys: self.keys.clone(),
            respond: self.respond.clone(),
            options: self.options,
            seat: self.seat.clone(),
            state: Arc::clone(&self.state),
            hold: PhantomData,
        }
    }
}

/// Manual impl: closures are not `Debug`, and keys must not be logged.
impl<S: fmt::Debug, K, R, H> fmt::Debug for ConcurrencyLimit<S, K, R, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConcurrencyLimit")
            .field("inner", &self.inner)
            .field("keys", &format_args!("{}", type_name::<K>()))
            .field("options", &self.options)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

/// tonic's router needs the name to route to a single service with a limit.
#[cfg(feature = "tonic")]
impl<S: tonic::server::NamedService, K, R, H> tonic::server::NamedService
    for ConcurrencyLimit<S, K, R, H>
{
    const NAME: &'static str = S::NAME;
}
