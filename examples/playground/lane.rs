//! A route with a limit, and what it has returned.

use std::sync::{Mutex, PoisonError};

use axum::{
    Extension, Router,
    body::Body,
    extract::Request,
    http::{HeaderName, HeaderValue},
    response::Response,
    routing::get,
};
use tokio::time::Instant;
use tower::ServiceExt;
use tower_throttle::{
    Decision, Handle, HeaderKey, Headers, Local, RateLimitLayer,
    algorithm::{Algorithm, AnyAlgorithm},
    key::Secret,
    queue::WhenFull,
};

use crate::{
    policy::Policy,
    sample::{LaneSample, Level},
    tally::{Outcome, Tally},
};

/// The header with the name of the client.
pub(crate) const CLIENT: HeaderName = HeaderName::from_static("client");
/// The header with the cost of a request.
pub(crate) const COST: HeaderName = HeaderName::from_static("cost");
/// The path of the route with the limit.
const PATH: &str = "/limited";
/// How many requests may wait at a time, of all clients together.
const MAX_WAITING: u32 = 2_000;

/// A policy, its route, and what the route has returned.
pub(crate) struct Lane {
    route: Router,
    handle: Handle<Secret, Local<AnyAlgorithm>>,
    tally: Mutex<Tally>,
}

impl Lane {
    pub(crate) fn new(policy: &Policy) -> Self {
        let algorithm = policy.algorithm().clone();
        let queues = algorithm.capabilities().queue > 0;
        let mut limit = RateLimitLayer::new(HeaderKey::new(CLIENT.as_str()), algorithm)
            .name("playground")
            .headers(Headers::Draft11)
            .share_decision()
            .cost(cost);
        if queues {
            limit = limit.seats(MAX_WAITING).when_full(WhenFull::Deny);
        }
        let handle = limit.handle();
        Self {
            route: Router::new().route(PATH, get(served)).layer(limit),
            handle,
            tally: Mutex::default(),
        }
    }

    /// Sends a request of `client` and counts the response.
    pub(crate) async fn send(&self, client: u64, cost: u64) -> Response {
        let mut request = Request::new(Body::empty());
        *request.uri_mut() = axum::http::Uri::from_static(PATH);
        request.headers_mut().insert(CLIENT, client.into());
        request.headers_mut().insert(COST, cost.into());
        self.call(request).await
    }

    /// Sends a request that came over HTTP, and counts the response.
    pub(crate) async fn forward(&self, request: Request) -> Response {
        let mut own = Request::new(Body::empty());
        *own.uri_mut() = axum::http::Uri::from_static(PATH);
        *own.headers_mut() = request.headers().clone();
        own.headers_mut()
            .entry(CLIENT)
            .or_insert(HeaderValue::from(1_u64));
        self.call(own).await
    }

    async fn call(&self, request: Request) -> Response {
        let start = Instant::now();
        let Ok(response) = self.route.clone().oneshot(request).await;
        let outcome = Outcome::of(&response, start.elapsed());
        self.tally
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .record(outcome, &response);
        response
    }

    /// What happened since the last sample, and the present state of each client.
    pub(crate) fn sample(&self, clients: u64) -> LaneSample {
        let level = |client: u64| {
            let key = HeaderKey::key(client.to_string());
            Level::of(&self.handle.peek_now(&key, 0))
        };
        let tally = std::mem::take(&mut *self.tally.lock().unwrap_or_else(PoisonError::into_inner));
        LaneSample::new(
            tally,
            self.handle.waiting(),
            (1..=clients).map(level).collect(),
        )
    }
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
