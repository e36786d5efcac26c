//! Services inside of several limits.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use super::active::{Active, ActiveLayer};
use super::body::PolicyBody;
use crate::concurrency::PermitBody;

impl Active {
    /// The limit around a service.
    pub(super) fn around<A, B, E>(&self, inner: BoxedService<A, B, E>) -> BoxedService<A, B, E>
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
pub(super) struct Plain<S>(pub(super) S);

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
pub(super) struct BoxedService<A, B, E>(Box<dyn DynService<A, B, E>>);

pub(super) trait DynService<A, B, E>: Send {
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
    pub(super) fn new(service: impl DynService<A, B, E> + 'static) -> Self {
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
