//! The service behind the limits of a file.

use std::{
    fmt,
    future::Future,
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::{Request, Response, StatusCode};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use super::active::{Active, ActiveLayer};
use super::body::PolicyBody;
use super::future::PolicyFuture;
use super::layer::Shared;
use super::respond::PolicyDeny;
use crate::concurrency::PermitBody;
use crate::error::{RateLimited, Rejection};
use crate::respond::Respond;

/// A service behind the limits of a policy file; see [`PolicyLayer`](super::PolicyLayer).
#[derive(Clone)]
pub struct PolicyService<S> {
    inner: S,
    shared: Arc<Shared>,
}

impl<S> PolicyService<S> {
    pub(super) const fn new(inner: S, shared: Arc<Shared>) -> Self {
        Self { inner, shared }
    }

    /// The service that is ready. It leaves a clone, which is not.
    fn take_ready(&mut self) -> Plain<S>
    where
        S: Clone,
    {
        let clone = self.inner.clone();
        Plain(mem::replace(&mut self.inner, clone))
    }
}

impl<S, A, B> Service<Request<A>> for PolicyService<S>
where
    S: Service<Request<A>, Response = Response<B>, Future: Send + 'static, Error: Send + 'static>
        + Clone
        + Send
        + 'static,
    A: Send + 'static,
    B: Body + Default + Send + 'static,
{
    type Response = Response<PolicyBody<B>>;
    type Error = S::Error;
    type Future = PolicyFuture<S, A, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<A>) -> PolicyFuture<S, A, B> {
        let generation = self.shared.current();
        if generation.denies.iter().any(|deny| deny.denies(&request)) {
            self.shared.record_denied_client();
            let blocked = Rejection::new(StatusCode::FORBIDDEN, "blocked");
            let denied = RateLimited::from(blocked);
            return PolicyFuture::done(PolicyDeny.refuse(request, denied));
        }
        let mut applying = generation
            .limits
            .iter()
            .filter(|limit| limit.applies(&request));
        let Some(first) = applying.next() else {
            return PolicyFuture::passed(self.take_ready().call(request));
        };
        let others: Vec<&Active> = applying.collect();
        match &first.layer {
            ActiveLayer::Rate(layer) if others.is_empty() => {
                PolicyFuture::one(layer.layer(self.take_ready()).call(request))
            }
            _ => {
                let limits = in_order(first, others, &request);
                let ready = BoxedService::new(self.take_ready());
                let limits = limits.into_iter().rev();
                let mut service = limits.fold(ready, |inner, limit| limit.around(inner));
                PolicyFuture::several(service.call(request))
            }
        }
    }
}

/// The limits from the outermost one inwards. One that denies the request comes first, so that no other
/// one counts it.
fn in_order<'a, A>(
    first: &'a Active,
    others: Vec<&'a Active>,
    request: &Request<A>,
) -> Vec<&'a Active> {
    let mut limits = others;
    limits.insert(0, first);
    if let Some(at) = limits.iter().position(|limit| limit.would_deny(request)) {
        limits[..=at].rotate_right(1);
    }
    limits
}

impl Active {
    /// The limit around a service.
    fn around<A, B, E>(&self, inner: BoxedService<A, B, E>) -> BoxedService<A, B, E>
    where
        A: Send + 'static,
        B: Body + Default + Send + 'static,
        E: Send + 'static,
    {
        match &self.layer {
            ActiveLayer::Rate(layer) => BoxedService::new(layer.layer(inner)),
            ActiveLayer::InFlight(layer) => BoxedService::new(WithPermit(layer.layer(inner))),
        }
    }
}

/// The service itself, with the body of a service behind limits.
#[derive(Clone, Debug)]
pub(super) struct Plain<S>(S);

impl<S, A, B> Service<Request<A>> for Plain<S>
where
    S: Service<Request<A>, Response = Response<B>>,
{
    type Response = Response<PolicyBody<B>>;
    type Error = S::Error;
    type Future = PlainFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        PlainFuture {
            future: self.0.call(request),
        }
    }
}

pin_project! {
    /// The response of [`Plain`].
    #[derive(Debug)]
    pub(super) struct PlainFuture<F> {
        #[pin]
        future: F,
    }
}

impl<F, B, E> Future for PlainFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    type Output = Result<Response<PolicyBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let response = ready!(self.project().future.poll(cx))?;
        Poll::Ready(Ok(response.map(PolicyBody::plain)))
    }
}

/// A service whose response body holds a permit.
#[derive(Clone)]
struct WithPermit<S>(S);

impl<S, A, B> Service<Request<A>> for WithPermit<S>
where
    S: Service<Request<A>, Response = Response<PermitBody<PolicyBody<B>>>>,
    S::Future: Send + 'static,
{
    type Response = Response<PolicyBody<B>>;
    type Error = S::Error;
    type Future = Answer<B, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let response = self.0.call(request);
        Box::pin(async move { Ok(response.await?.map(PolicyBody::with_permit)) })
    }
}

/// The boxed response of a service behind several limits.
pub(super) type Answer<B, E> =
    Pin<Box<dyn Future<Output = Result<Response<PolicyBody<B>>, E>> + Send>>;

/// A service without its type: the number of limits around it is not known.
struct BoxedService<A, B, E>(Box<dyn DynService<A, B, E>>);

trait DynService<A, B, E>: Send {
    fn poll_dyn(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), E>>;
    fn call_dyn(&mut self, request: Request<A>) -> Answer<B, E>;
    fn boxed_clone(&self) -> Box<dyn DynService<A, B, E>>;
}

impl<S, A, B, E> DynService<A, B, E> for S
where
    S: Service<Request<A>, Response = Response<PolicyBody<B>>, Error = E> + Clone + Send + 'static,
    S::Future: Send + 'static,
{
    fn poll_dyn(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), E>> {
        self.poll_ready(cx)
    }

    fn call_dyn(&mut self, request: Request<A>) -> Answer<B, E> {
        Box::pin(self.call(request))
    }

    fn boxed_clone(&self) -> Box<dyn DynService<A, B, E>> {
        Box::new(self.clone())
    }
}

impl<A, B, E> BoxedService<A, B, E> {
    fn new(service: impl DynService<A, B, E> + 'static) -> Self {
        Self(Box::new(service))
    }
}

impl<A, B, E> Service<Request<A>> for BoxedService<A, B, E> {
    type Response = Response<PolicyBody<B>>;
    type Error = E;
    type Future = Answer<B, E>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), E>> {
        self.0.poll_dyn(cx)
    }

    fn call(&mut self, request: Request<A>) -> Answer<B, E> {
        self.0.call_dyn(request)
    }
}

impl<A, B, E> Clone for BoxedService<A, B, E> {
    fn clone(&self) -> Self {
        Self(self.0.boxed_clone())
    }
}

impl<S: fmt::Debug> fmt::Debug for PolicyService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicyService")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
