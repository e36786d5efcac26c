//! The service behind the limits of a file.

use std::{
    fmt, mem,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response, StatusCode};
use http_body::Body;
use tower_layer::Layer;
use tower_service::Service;

use super::active::{Active, ActiveDeny, ActiveLayer, Verdict};
use super::body::PolicyBody;
use super::future::PolicyFuture;
use super::respond::PolicyDeny;
use super::shared::Shared;
use super::stack::{BoxedService, Plain};
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
        let refused = match ActiveDeny::verdict(&generation.denies, &request) {
            Verdict::Passes => None,
            Verdict::Denied => {
                self.shared.record_denied_client();
                Some(Rejection::new(StatusCode::FORBIDDEN, "blocked"))
            }
            Verdict::Unknown(rejection) => Some(rejection),
        };
        if let Some(rejection) = refused {
            let denied = RateLimited::from(rejection);
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

impl<S: fmt::Debug> fmt::Debug for PolicyService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicyService")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
