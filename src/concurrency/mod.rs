//! Limits on how many requests of one key are in flight.

mod entries;
mod future;
mod handle;
mod hold;
#[cfg(all(test, tower_throttle_loom))]
mod loom_models;
mod pending;
mod permit;
mod service;
mod settings;
mod state;
mod table;

pub use self::{
    future::ConcurrencyFuture,
    handle::ConcurrencyHandle,
    hold::{Hold, PermitBody, UntilBodyEnds, UntilResponse},
    service::ConcurrencyLimit,
};

use std::{any::type_name, fmt, marker::PhantomData, sync::Arc};

use tower_layer::Layer;

use self::state::{Options, State, checked_limit};
use crate::error::expect_valid;
use crate::queue::Seats;
use crate::respond::Responder;

/// Limits how many requests of one key are in flight at a time.
///
/// A rate limit counts how many requests begin. This layer counts how many are being served: slow
/// requests, large downloads and streams count for as long as they last.
///
/// # When a request passes
/// 1. The key extractor finds the key of the request, as in a
///    [`RateLimitLayer`](crate::RateLimitLayer).
/// 2. If there is room for its [`cost`](Self::cost), 1 unless set, the request gets a permit and goes
///    to the service.
/// 3. Otherwise it waits in the line of its key, if there is a [`queue`](Self::queue), first come,
///    first served. Meanwhile it does not occupy the service.
/// 4. If the line is full, or the wait lasts longer than [`max_wait`](Self::max_wait), it is denied.
///
/// # When a permit is released
/// - When the response body has ended, failed or was dropped, as when the client hangs up. An empty
///   body releases it at once. [`release_at_response`](Self::release_at_response) releases it
///   earlier, and serves services that are not HTTP.
/// - When the response future is dropped or the service panics or fails.
///
/// The body of an upgraded connection, such as a WebSocket, ends with the response 101. To count the
/// connection, limit the requests that arrive on it.
///
/// # What a denied request gets
/// In HTTP, 429 with `Retry-After: 1`; a gRPC request gets `RESOURCE_EXHAUSTED`.
/// [`unavailable`](Self::unavailable) answers with 503 and `UNAVAILABLE` instead, for a limit that is
/// about the server rather than about the client. [`respond`](Self::respond) sets another answer.
///
/// # Memory
/// Only keys with requests in flight take up memory, about 40 bytes each. So the memory is bounded by
/// the number of requests in flight and waiting, which no limit by key bounds: an attacker with many
/// keys has many requests in flight. Keys are known by a hash of 64 bits, with a secret seed.
///
/// # Sharing
/// The counts belong to the layer. Every service that it makes, and every clone of it, counts
/// together.
///
/// ```
/// use std::time::Duration;
/// use axum::{Router, body::Body, extract::Request, routing::get};
/// use http::StatusCode;
/// use tower::ServiceExt;
/// use tower_throttle::{HeaderKey, concurrency::ConcurrencyLayer};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// // At most 2 exports per tenant at a time. 10 more may wait, a second each.
/// let limit = ConcurrencyLayer::new(HeaderKey::new("x-tenant"), 2)
///     .queue(10)
///     .max_wait(Duration::from_secs(1));
/// let handle = limit.handle();
/// let app: Router = Router::new().route("/export", get(async || "data").layer(limit));
///
/// let request = || Request::get("/export").header("x-tenant", "acme").body(Body::empty()).unwrap();
/// let first = app.clone().oneshot(request()).await.unwrap();
/// assert_eq!(first.status(), StatusCode::OK);
/// let acme = HeaderKey::key("acme");
/// assert_eq!(handle.in_flight(&acme), 1, "nobody has read the body yet");
/// drop(first);
/// assert_eq!(handle.in_flight(&acme), 0);
/// # }
/// ```
#[must_use = "a layer does nothing until it is added to a service"]
pub struct ConcurrencyLayer<K, R = Responder, H = UntilBodyEnds> {
    keys: K,
    respond: R,
    options: Options,
    seats: Option<Arc<Seats>>,
    state: Arc<State>,
    hold: PhantomData<fn() -> H>,
}

impl<K> ConcurrencyLayer<K> {
    /// At most `limit` requests of one key are in flight.
    ///
    /// `keys` is [`Global`](crate::Global), an extractor such as [`ClientIp`](crate::ClientIp), or a
    /// closure; see [`KeyExtractor`](crate::key::KeyExtractor).
    ///
    /// # Panics
    /// If `limit` is 0: no request would ever pass.
    #[track_caller]
    pub fn new(keys: K, limit: u32) -> Self {
        let limit = expect_valid(checked_limit(limit));
        Self {
            keys,
            respond: Responder::default(),
            options: Options::default(),
            seats: None,
            state: Arc::new(State::new(limit)),
            hold: PhantomData,
        }
    }
}

impl<S, K: Clone, R: Clone, H> Layer<S> for ConcurrencyLayer<K, R, H> {
    type Service = ConcurrencyLimit<S, K, R, H>;

    /// Costs one reference count: frameworks call it for every route, method and connection.
    fn layer(&self, inner: S) -> Self::Service {
        ConcurrencyLimit::new(
            inner,
            self.keys.clone(),
            self.respond.clone(),
            self.options,
            self.seats.clone(),
            Arc::clone(&self.state),
        )
    }
}

/// Manual impl: `H` need not be `Clone`.
impl<K: Clone, R: Clone, H> Clone for ConcurrencyLayer<K, R, H> {
    fn clone(&self) -> Self {
        Self {
            keys: self.keys.clone(),
            respond: self.respond.clone(),
            options: self.options,
            seats: self.seats.clone(),
            state: Arc::clone(&self.state),
            hold: PhantomData,
        }
    }
}

/// Manual impl: closures are not `Debug`, and keys must not be logged.
impl<K, R, H> fmt::Debug for ConcurrencyLayer<K, R, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConcurrencyLayer")
            .field("keys", &format_args!("{}", type_name::<K>()))
            .field("options", &self.options)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}
