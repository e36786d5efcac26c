//! The route of a process: a limit before a service.

use std::io;

use axum::{Extension, Router, extract::Request, http::HeaderName, routing::get};
use futures_util::FutureExt;
use tower_throttle::{
    AnyAlgorithm, Decision, Handle, HeaderKey, Headers, Local, RateLimitLayer,
    key::Secret,
    store::{Backend, IntoBackend, SaveState},
};

use crate::policy::Policy;

/// The header with the name of the client.
pub(crate) const CLIENT: HeaderName = HeaderName::from_static("client");
/// The header with the cost of a request.
pub(crate) const COST: HeaderName = HeaderName::from_static("cost");
/// The header of requests that go before others.
pub(crate) const PRIORITY: HeaderName = HeaderName::from_static("priority");
pub(crate) const IMPORTANT: &str = "high";
/// The path of the route with the limit.
pub(crate) const PATH: &str = "/limited";
/// How many requests may wait at a time, of all clients together.
const MAX_WAITING: u32 = 2_000;

/// A limit, the service behind it, and what is known of them.
pub(crate) struct Route {
    service: Router,
    watched: Box<dyn Watched>,
    /// The state of a limit in this process.
    state: Option<Handle<Secret, Local<AnyAlgorithm>>>,
    has_line: bool,
}

trait Watched: Send + Sync {
    fn peek(&self, key: &Secret) -> Option<Decision>;
    fn waiting(&self) -> u64;
}

impl<L: Backend<Secret> + IntoBackend> Watched for Handle<Secret, L> {
    fn peek(&self, key: &Secret) -> Option<Decision> {
        self.peek(key, 0).now_or_never()?.ok()
    }

    fn waiting(&self) -> u64 {
        self.waiting()
    }
}

impl Route {
    /// A limit in this process, with the line of the policy.
    pub(crate) fn local(policy: &Policy) -> Self {
        let mut limit = layer(policy.algorithm().clone());
        if let Some((queue, max_wait)) = policy.queue() {
            limit = limit.queue(queue).seats(MAX_WAITING).deny_when_full();
            if let Some(max_wait) = max_wait {
                limit = limit.max_wait(max_wait);
            }
        }
        let state = limit.handle();
        Self {
            state: Some(state),
            has_line: policy.queue().is_some(),
            ..Self::of(limit)
        }
    }

    /// A limit of a store, without a line.
    pub(crate) fn remote(
        limiter: impl IntoBackend<Backend: Backend<Secret> + IntoBackend>,
    ) -> Self {
        Self::of(layer(limiter))
    }

    fn of<L: Backend<Secret> + IntoBackend>(limit: RateLimitLayer<HeaderKey, L>) -> Self {
        let watched = Box::new(limit.handle());
        let priority = |request: &Request| match request.headers().get(PRIORITY) {
            Some(sent) if sent == IMPORTANT => 100,
            _ => 80,
        };
        let limit = limit
            .headers(Headers::Draft11)
            .share_decision()
            .cost(cost)
            .priority(priority);
        Self {
            service: Router::new().route(PATH, get(served)).layer(limit),
            watched,
            state: None,
            has_line: false,
        }
    }

    pub(crate) fn service(&self) -> Router {
        self.service.clone()
    }

    /// What a client may use, if this process knows it.
    pub(crate) fn peek(&self, key: &Secret) -> Option<Decision> {
        self.watched.peek(key)
    }

    pub(crate) fn waiting(&self) -> u64 {
        self.watched.waiting()
    }

    pub(crate) fn has_line(&self) -> bool {
        self.has_line
    }

    /// Goes on with what the clients of `before` have used.
    pub(crate) fn load(&self, before: &Self) -> io::Result<()> {
        let (Some(before), Some(after)) = (&before.state, &self.state) else {
            return Ok(());
        };
        let mut saved = Vec::new();
        SaveState::save(before, &mut saved)?;
        SaveState::load(after, &mut &saved[..])
    }
}

fn layer<T: IntoBackend>(limiter: T) -> RateLimitLayer<HeaderKey, T::Backend> {
    RateLimitLayer::new(HeaderKey::new(CLIENT.as_str()), limiter).name("playground")
}

/// The service behind the limit.
async fn served(Extension(decision): Extension<Decision>) -> (Extension<Decision>, &'static str) {
    (Extension(decision), "served\n")
}

/// The cost in the request's header, or 1.
fn cost(request: &Request) -> u64 {
    let header = request.headers().get(COST);
    let number = header.and_then(|value| value.to_str().ok()?.parse().ok());
    number.unwrap_or(1)
}
