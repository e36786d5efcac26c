//! The service that a layer makes.

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tower_service::Service;

use super::LimitLayer;
use super::future::{After, Held, ResponseFuture, Step, Waiting, prepare, refuse};
use super::gate::{Ask, AtGate, Enter, Entering, Exit, Gate, Limiting, Look};
use super::mistakes::CloneService;
use crate::clock::{Clock, MonotonicClock, Tick};
use crate::key::{Extracted, KeyExtractor};
use crate::queue::SeatAcquire;
use crate::respond::{Event, Protocol, Respond, ResponseHooks};

/// A service whose requests are limited; made by a [`LimitLayer`](super::LimitLayer).
// The compiler shows the first line below when a method of `Service` is missing.
#[derive(Clone)]
#[rustfmt::skip]
pub struct Limit<S, K, G, R> { // `Clone`, `Default` body; not HTTP: `.respond(AsError)`, `.release_at_response()`, a `BoxError`
    pub(super) inner: S,
    /// The seat that `poll_ready` has taken.
    pub(super) seat: SeatAcquire,
    pub(super) layer: LimitLayer<K, G, R>,
}

impl<S, K, G, R, Req> Service<Req> for Limit<S, K, G, R>
where
    S: Service<Req> + CloneService,
    K: KeyExtractor<Req>,
    G: Exit<K::Key, S::Response> + Enter<K::Key>,
    R: ResponseHooks<Req, K::Key, S::Response, S::Error> + Clone,
{
    type Response = G::Response;
    type Error = S::Error;
    type Future = ResponseFuture<S, K, G, R, Req>;

    #[inline]
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        // The seat first: while it waits for one, it must not hold readiness of the inner service.
        if !self.layer.options.deny_when_full {
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
            Extracted::Skip => {
                gate.state().record(Event::Skipped, false);
                return self.call_at_once(request);
            }
            Extracted::Reject(rejection) => {
                gate.state()
                    .record(Event::Rejected(&rejection), options.shadow);
                if options.shadow {
                    return self.call_at_once(request);
                }
                self.seat.release();
                let answer =
                    refuse::<K::Key, G, _, _, _, _>(None, respond, request, rejection.into());
                return ResponseFuture::denied(answer);
            }
        };
        // A look at the headers of a sample.
        let admitted = gate.state().counts.admitted();
        if (admitted < 16 || admitted % 1_024 == 0) && keys.unread_proxy_header(&request) {
            gate.state().record(Event::UnreadProxyHeader, false);
        }
        let ask = Ask {
            weight: keys.weigh(&request),
            shadow: options.shadow,
            figures: R::WRITES_HEADERS || options.share_decision,
            shares: options.share_decision,
            keep: R::NEEDS_RESPONSE || options.shares_cost,
        };
        let timeout = if gate.queues() {
            <R::Deny as Respond<Req, S::Response, S::Error>>::Protocol::timeout(&request)
        } else {
            None
        };
        let until = timeout.map_or(Tick::MAX, |timeout| MonotonicClock.now().plus(timeout));
        let (mut entry, mut figures) = (G::Entry::default(), None);
        let entering = Entering {
            ask,
            seat: &mut self.seat.seat,
            until,
            figures: &mut figures,
            up_to: Look::Holds,
        };
        let entered = gate.at(&key, &mut entry).poll_enter(entering, None);
        match entered {
            Poll::Ready(Ok(())) => {
                self.seat.release();
                let own = (&**gate, &key, &mut entry);
                let told = (ask.weight.cost, figures.as_ref());
                prepare(own, respond, options, &mut request, told);
                let future = self.inner.call(request);
                // Made after the call, so that it is written to where it is returned.
                let after = if R::NEEDS_RESPONSE || options.shares_cost {
                    After::Finish {
                        held: Held {
                            gate: Arc::clone(gate),
                            key,
                            entry,
                            waits: false,
                        },
                        decision: figures.filter(|_| !options.silent),
                        respond: respond.clone(),
                    }
                } else if G::HOLDS {
                    After::Release(entry)
                } else {
                    return ResponseFuture {
                        step: Step::Passed { future },
                    };
                };
                ResponseFuture {
                    step: Step::Inner { future, after },
                }
            }
            Poll::Ready(Err(denied)) => {
                self.seat.release();
                let at = Some((&**gate, &key, &mut entry));
                ResponseFuture::denied(refuse(at, respond, request, denied))
            }
            Poll::Pending => self.wait(request, (key, ask), entry, until),
        }
    }
}

impl<S, K, G: Clone, R> Limit<S, K, G, R> {
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
                gate: Arc::clone(&self.layer.gate),
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
            step: Step::Waiting { own },
        }
    }

    /// Calls the service for a request of which the limit has nothing.
    fn call_at_once<Req>(&mut self, request: Req) -> ResponseFuture<S, K, G, R, Req>
    where
        S: Service<Req>,
        K: KeyExtractor<Req>,
        G: Gate<K::Key>,
    {
        self.seat.release();
        let future = self.inner.call(request);
        ResponseFuture {
            step: Step::Passed { future },
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
