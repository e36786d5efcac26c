//! The service that a layer makes.

use std::{
    any::type_name,
    fmt,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tower_service::Service;

use super::future::{After, Held, Rare, ResponseFuture, Waiting, prepare, refuse};
use super::gate::{Ask, Exit, Gate, Limiting, MayWait};
use super::mistakes::CloneService;
use super::options::LayerOptions;
use crate::clock::{Clock, MonotonicClock, Tick};
use crate::error::Rejection;
use crate::key::{Extracted, KeyExtractor};
use crate::queue::{SeatAcquire, Seats, WhenFull};
use crate::respond::{Event, ResponseHooks};

/// A service whose requests are limited; made by a [`LimitLayer`](super::LimitLayer).
// The compiler shows the first line below when a method of `Service` is missing.
#[rustfmt::skip]
pub struct Limit<S, K, G, R> { // the service is `Clone`, its body `Default`; not HTTP: `.respond(AsError)`, `.map_err(BoxError::from)`
    inner: S,
    keys: K,
    respond: R,
    options: LayerOptions,
    /// The seat that `poll_ready` has taken.
    seat: SeatAcquire,
    gate: G,
}

impl<S, K, G, R> Limit<S, K, G, R> {
    pub(super) fn new(
        inner: S,
        keys: K,
        respond: R,
        options: LayerOptions,
        seats: Option<Arc<Seats>>,
        gate: G,
    ) -> Self {
        Self {
            inner,
            keys,
            respond,
            options,
            seat: SeatAcquire::new(seats),
            gate,
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

impl<S, K, G, R, Req> Service<Req> for Limit<S, K, G, R>
where
    S: Service<Req> + CloneService,
    K: KeyExtractor<Req>,
    G: Exit<K::Key, S::Response>,
    R: ResponseHooks<Req, K::Key, S::Response, S::Error> + Clone,
{
    type Response = G::Response;
    type Error = S::Error;
    type Future = ResponseFuture<S, K, G, R, Req>;

    #[inline]
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        // The seat first: while it waits for one, it must not hold readiness of the inner service.
        if self.options.when_full == WhenFull::Pending {
            ready!(self.seat.poll(cx));
        }
        self.inner.poll_ready(cx)
    }

    #[inline]
    fn call(&mut self, mut request: Req) -> Self::Future {
        let key = match self.keys.extract(&request) {
            Extracted::Key(key) => key,
            Extracted::Skip => return self.skip(request),
            Extracted::Reject(rejection) => return self.reject(request, rejection),
        };
        let ask = Ask {
            cost: self.keys.cost(&request),
            priority: self.keys.priority(&request),
            shadow: self.options.shadow,
            figures: R::WRITES_HEADERS || self.options.share_decision,
            shares: self.options.share_decision,
            keep: R::NEEDS_RESPONSE || self.options.shares_cost,
        };
        let mut entry = G::Entry::default();
        let waits = self.gate.queues();
        let timeout = waits.then(|| self.respond.timeout(&request)).flatten();
        let until = timeout.map(|timeout| MonotonicClock.now().plus(timeout));
        let seat = &mut self.seat.seat;
        let may_wait = MayWait { seat, until };
        match self.gate.poll_enter(&key, ask, &mut entry, may_wait, None) {
            Poll::Ready(Ok(passed)) => {
                self.seat.release();
                if passed.sampled {
                    self.check_proxy_header(&request);
                }
                let (gate, respond, options) = (&self.gate, &self.respond, self.options);
                let own = (gate, &key, &mut entry);
                prepare(own, respond, options, &mut request, ask.cost, &passed);
                let future = self.inner.call(request);
                // Made after the call, so that it is written to where it is returned.
                let after = After::new::<Req, _, _>(entry, |entry| {
                    let (gate, waits) = (gate.clone(), false);
                    let held = Held {
                        gate,
                        key,
                        entry,
                        waits,
                    };
                    let decision = passed.decision.filter(|_| !options.silent);
                    (held, decision, respond.clone())
                });
                ResponseFuture::inner(future, after)
            }
            Poll::Ready(Err(denied)) => {
                self.seat.release();
                if self.gate.state().counts.is_sampled() {
                    self.check_proxy_header(&request);
                }
                let answer = refuse(&self.gate, Some(&key), &self.respond, request, denied);
                ResponseFuture::denied(answer)
            }
            Poll::Pending => self.wait(request, (key, ask), entry, until),
        }
    }
}

impl<S, K, G: Limiting, R> Limit<S, K, G, R> {
    /// Passes a request that is not limited to the service.
    #[inline(never)]
    fn skip<Req>(&mut self, request: Req) -> ResponseFuture<S, K, G, R, Req>
    where
        S: Service<Req>,
        K: KeyExtractor<Req>,
        G: Gate<K::Key>,
    {
        self.gate.state().record(Event::Skipped, false);
        self.seat.release();
        ResponseFuture::inner(self.inner.call(request), After::Nothing)
    }

    /// Rejects a request that has no key.
    #[inline(never)]
    fn reject<Req>(&mut self, request: Req, rejection: Rejection) -> ResponseFuture<S, K, G, R, Req>
    where
        S: Service<Req>,
        K: KeyExtractor<Req>,
        G: Gate<K::Key>,
        R: ResponseHooks<Req, K::Key, S::Response, S::Error>,
    {
        self.seat.release();
        let (state, shadow) = (self.gate.state(), self.options.shadow);
        state.record(Event::Rejected(&rejection), shadow);
        if shadow {
            return ResponseFuture::inner(self.inner.call(request), After::Nothing);
        }
        let answer = refuse(&self.gate, None, &self.respond, request, rejection.into());
        ResponseFuture::denied(answer)
    }

    /// Lets a request wait.
    #[inline(never)]
    fn wait<Req>(
        &mut self,
        request: Req,
        (key, ask): (K::Key, Ask),
        entry: G::Entry,
        until: Option<Tick>,
    ) -> ResponseFuture<S, K, G, R, Req>
    where
        S: Service<Req> + Clone,
        K: KeyExtractor<Req>,
        G: Gate<K::Key>,
        R: ResponseHooks<Req, K::Key, S::Response, S::Error> + Clone,
    {
        // The readiness that `poll_ready` got is dropped: a waiting request must not keep
        // others from the service, since it may be denied in the end.
        let service = self.inner.clone();
        self.inner = service.clone();
        let decision = None;
        let rare = until.map(|_| Box::new(Rare { until, decision }));
        ResponseFuture::asking(Waiting {
            service,
            request: Some(request),
            held: Held {
                gate: self.gate.clone(),
                key,
                entry,
                waits: true,
            },
            ask,
            options: self.options,
            seat: self.seat.take_seat(),
            rare,
            respond: self.respond.clone(),
        })
    }

    /// Reports `request` if it has a proxy header that the key extractor ignores.
    #[inline]
    fn check_proxy_header<Req>(&self, request: &Req)
    where
        K: KeyExtractor<Req>,
    {
        if self.keys.unread_proxy_header(request) {
            self.gate.state().record(Event::UnreadProxyHeader, false);
        }
    }
}

/// Manual impl: a clone has a seat of its own.
impl<S: Clone, K: Clone, G: Clone, R: Clone> Clone for Limit<S, K, G, R> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            keys: self.keys.clone(),
            respond: self.respond.clone(),
            options: self.options,
            seat: self.seat.clone(),
            gate: self.gate.clone(),
        }
    }
}

/// Manual impl: closures are not `Debug`, and keys must not be logged.
impl<S: fmt::Debug, K, G: Limiting, R> fmt::Debug for Limit<S, K, G, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limit")
            .field("inner", &self.inner)
            .field("name", &self.gate.state().name())
            .field("keys", &format_args!("{}", type_name::<K>()))
            .field("gate", &format_args!("{}", type_name::<G>()))
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// tonic's router needs the name to route to a single service with a limit.
#[cfg(feature = "tonic")]
impl<S: tonic::server::NamedService, K, G, R> tonic::server::NamedService for Limit<S, K, G, R> {
    const NAME: &'static str = S::NAME;
}
