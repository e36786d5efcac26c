//! The service that a layer makes.

use std::{
    fmt,
    task::{Context, Poll, ready},
};

use tower_service::Service;

use super::LimitLayer;
use super::future::{After, Held, ResponseFuture, Step, Waiting, prepare, refuse};
use super::gate::{Ask, Exit, Gate, Limiting, MayWait};
use super::mistakes::CloneService;
use crate::clock::{Clock, MonotonicClock, Tick};
use crate::error::Rejection;
use crate::key::{Extracted, KeyExtractor};
use crate::queue::{SeatAcquire, WhenFull};
use crate::respond::{Event, ResponseHooks};

/// A service whose requests are limited; made by a [`LimitLayer`](super::LimitLayer).
// The compiler shows the first line below when a method of `Service` is missing.
#[derive(Clone)]
#[rustfmt::skip]
pub struct Limit<S, K, G, R> { // the service is `Clone`, its body `Default`; not HTTP: `.respond(AsError)`, `.map_err(BoxError::from)`
    pub(super) inner: S,
    /// The seat that `poll_ready` has taken.
    pub(super) seat: SeatAcquire,
    pub(super) layer: LimitLayer<K, G, R>,
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
        if self.layer.options.when_full == WhenFull::Pending {
            ready!(self.seat.poll(cx));
        }
        self.inner.poll_ready(cx)
    }

    #[inline]
    fn call(&mut self, mut request: Req) -> Self::Future {
        let LimitLayer {
            keys,
            respond,
            options,
            gate,
            ..
        } = &self.layer;
        let options = *options;
        let key = match keys.extract(&request) {
            Extracted::Key(key) => key,
            Extracted::Skip => return self.skip(request),
            Extracted::Reject(rejection) => return self.reject(request, rejection),
        };
        let ask = Ask {
            cost: keys.cost(&request),
            priority: keys.priority(&request),
            shadow: options.shadow,
            figures: R::WRITES_HEADERS || options.share_decision,
            shares: options.share_decision,
            keep: R::NEEDS_RESPONSE || options.shares_cost,
        };
        let mut entry = G::Entry::default();
        let timeout = if gate.queues() {
            respond.timeout(&request)
        } else {
            None
        };
        let until = timeout.map_or(Tick::MAX, |timeout| MonotonicClock.now().plus(timeout));
        let mut figures = None;
        let may_wait = MayWait {
            seat: &mut self.seat.seat,
            until,
            figures: &mut figures,
        };
        match gate.poll_enter(&key, ask, &mut entry, may_wait, None) {
            Poll::Ready(Ok(passed)) => {
                self.seat.release();
                self.check_proxy_header(&request);
                let own = (gate, &key, &mut entry);
                let told = (ask.cost, passed, figures.as_ref());
                prepare(own, respond, options, &mut request, told);
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
                    let decision = figures.filter(|_| !options.silent);
                    (held, decision, respond.clone())
                });
                ResponseFuture {
                    step: Step::Inner { future, after },
                }
            }
            Poll::Ready(Err(denied)) => {
                self.seat.release();
                self.check_proxy_header(&request);
                let result = Some(refuse(gate, Some(&key), respond, request, denied));
                ResponseFuture {
                    step: Step::Denied { result },
                }
            }
            Poll::Pending => self.wait(request, (key, ask), entry, until),
        }
    }
}

impl<S, K, G: Limiting, R> Limit<S, K, G, R> {
    /// Passes a request that is not limited to the service.
    fn skip<Req>(&mut self, request: Req) -> ResponseFuture<S, K, G, R, Req>
    where
        S: Service<Req>,
        K: KeyExtractor<Req>,
        G: Gate<K::Key>,
    {
        self.layer.gate.state().record(Event::Skipped, false);
        self.seat.release();
        self.call_at_once(request)
    }

    /// Rejects a request that has no key.
    #[cold]
    fn reject<Req>(&mut self, request: Req, rejection: Rejection) -> ResponseFuture<S, K, G, R, Req>
    where
        S: Service<Req>,
        K: KeyExtractor<Req>,
        G: Gate<K::Key>,
        R: ResponseHooks<Req, K::Key, S::Response, S::Error>,
    {
        self.seat.release();
        let LimitLayer { gate, respond, .. } = &self.layer;
        let shadow = self.layer.options.shadow;
        gate.state().record(Event::Rejected(&rejection), shadow);
        if shadow {
            return self.call_at_once(request);
        }
        let result = Some(refuse(gate, None, respond, request, rejection.into()));
        ResponseFuture {
            step: Step::Denied { result },
        }
    }

    /// Lets a request wait.
    #[cold]
    fn wait<Req>(
        &mut self,
        request: Req,
        (key, ask): (K::Key, Ask),
        entry: G::Entry,
        until: Tick,
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
        let own = Some(Waiting {
            service,
            request: Some(request),
            held: Held {
                gate: self.layer.gate.clone(),
                key,
                entry,
                waits: true,
            },
            ask,
            options: self.layer.options,
            seat: self.seat.take_seat(),
            until,
            decision: None,
            respond: self.layer.respond.clone(),
        });
        ResponseFuture {
            step: Step::Asking { own },
        }
    }

    /// Calls the service for a request of which the limit has nothing.
    fn call_at_once<Req>(&mut self, request: Req) -> ResponseFuture<S, K, G, R, Req>
    where
        S: Service<Req>,
        K: KeyExtractor<Req>,
        G: Gate<K::Key>,
    {
        let (future, after) = (self.inner.call(request), After::Nothing);
        ResponseFuture {
            step: Step::Inner { future, after },
        }
    }

    /// Reports `request` if it is one of the sample and has a proxy header that the key extractor ignores.
    #[inline]
    fn check_proxy_header<Req>(&self, request: &Req)
    where
        K: KeyExtractor<Req>,
    {
        let LimitLayer { keys, gate, .. } = &self.layer;
        if gate.state().counts.is_sampled() && keys.unread_proxy_header(request) {
            gate.state().record(Event::UnreadProxyHeader, false);
        }
    }
}

impl<S: fmt::Debug, K, G: Limiting + fmt::Debug, R> fmt::Debug for Limit<S, K, G, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limit")
            .field("inner", &self.inner)
            .field("layer", &self.layer)
            .finish_non_exhaustive()
    }
}

/// tonic's router needs the name to route to a single service with a limit.
#[cfg(feature = "tonic")]
impl<S: tonic::server::NamedService, K, G, R> tonic::server::NamedService for Limit<S, K, G, R> {
    const NAME: &'static str = S::NAME;
}
