//! Services and limits that the tests share.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    net::SocketAddr,
    task::{Context, Poll},
};

use http::{Request, Response};
use tower::{Layer, Service, ServiceExt};
use tower_throttle::{
    Decision, Quota, StoreError,
    key::PeerAddr,
    store::{Backend, IntoBackend, Op},
};

/// A backend with a fixed decision.
#[derive(Clone, Debug)]
pub(crate) struct Says(pub(crate) Decision, pub(crate) Vec<Quota>);

impl<K: ?Sized> Backend<K> for Says {
    type Future = Ready<Result<Decision, StoreError>>;

    fn apply(&self, _: &K, _: Op) -> Self::Future {
        ready(Ok(self.0))
    }

    fn quotas(&self) -> Vec<Quota> {
        self.1.clone()
    }
}

impl IntoBackend for Says {
    type Backend = Self;

    fn into_backend(self) -> Self {
        self
    }
}

/// A store that gives no decision.
#[derive(Debug)]
pub(crate) struct Gone;

impl<K: ?Sized> Backend<K> for Gone {
    type Future = Ready<Result<Decision, StoreError>>;

    fn apply(&self, _: &K, _: Op) -> Self::Future {
        ready(Err(StoreError::new("no reply", true)))
    }

    fn quotas(&self) -> Vec<Quota> {
        Vec::new()
    }
}

impl IntoBackend for Gone {
    type Backend = Self;

    fn into_backend(self) -> Self {
        self
    }
}

/// Responds to every request with `fine`. The body type needs no framework.
#[derive(Clone)]
pub(crate) struct Fine;

impl Service<Request<()>> for Fine {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Ready<Result<Response<String>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        ready(Ok(Response::new("fine".into())))
    }
}

/// Sends `request` to [`Fine`] behind `layer`.
pub(crate) async fn ask<L>(layer: &L, request: Request<()>) -> Response<String>
where
    L: Layer<Fine>,
    L::Service: Service<Request<()>, Response = Response<String>, Error = Infallible>,
{
    layer.layer(Fine).oneshot(request).await.unwrap()
}

/// A request with these headers and this peer address.
pub(crate) fn request(peer: Option<&str>, headers: &[(&str, &str)]) -> Request<()> {
    let mut request = Request::builder();
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let mut request = request.body(()).unwrap();
    if let Some(peer) = peer {
        let peer = SocketAddr::new(peer.parse().unwrap(), 4711);
        request.extensions_mut().insert(PeerAddr(peer));
    }
    request
}

/// All values of a header.
pub(crate) fn lines<'a, B>(response: &'a Response<B>, name: &str) -> Vec<&'a str> {
    let lines = response.headers().get_all(name).iter();
    lines.map(|line| line.to_str().unwrap()).collect()
}
