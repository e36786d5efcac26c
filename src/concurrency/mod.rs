//! Limits on how many requests of one key are in flight.

mod adaptive;
mod body;
#[cfg(feature = "cas")]
pub mod fleet;
mod handle;
mod hold;
mod in_flight;
mod keep;
mod lease;
mod limit;
mod line;
#[cfg(all(test, tower_throttle_loom))]
mod loom_models;
pub(crate) mod permit;
mod permits;
mod request;
mod settings;
mod shard;
mod source;
mod table;

pub use self::{
    adaptive::{Adaptive, Aimd, Gradient2, Window},
    body::PermitBody,
    hold::{UntilBodyEnds, UntilResponse},
    in_flight::{InFlight, InFlightEntry},
    keep::{HeldPermits, PermitHolder},
    limit::IntoLimit,
    permits::Permits,
    source::InProcess,
};

use crate::key::Global;
use crate::layer::{Limit, LimitLayer};
use crate::respond::Responder;

/// Limits how many requests of one key are in flight at a time.
///
/// A rate limit counts how many requests begin. This layer counts how many are being served: slow
/// requests and streams count until the server has taken the last frame of the body. A body in one piece
/// is taken at once, however slowly the client reads.
///
/// # When a request passes
/// 1. The key extractor finds the key of the request, as in a
///    [`RateLimitLayer`](crate::RateLimitLayer).
/// 2. If there is room for its [`cost`](LimitLayer::cost), 1 unless set, the request gets a permit and goes
///    to the service.
/// 3. Otherwise it waits in the line of its key, if there is a [`queue`](Self::queue), first come,
///    first served. Meanwhile it does not occupy the service.
/// 4. If the line is full, or the wait lasts longer than [`max_wait`](Self::max_wait), it is denied.
///
/// # When a permit is released
/// - When the response body has ended, failed or was dropped, as when the client hangs up. An empty
///   body releases it at once. [`release_at_response`](Self::release_at_response) releases it earlier, and is for services
///   that are not HTTP.
/// - When the response future is dropped or the service panics or fails.
///
/// The body of an upgraded connection, such as a WebSocket, ends with the response 101. A [`PermitHolder`]
/// holds the permit until the connection ends.
///
/// # What a denied request gets
/// In HTTP, 429 with `Retry-After: 1`; a gRPC request gets `RESOURCE_EXHAUSTED`.
/// [`unavailable`](Self::unavailable) answers with 503 and `UNAVAILABLE` instead, for a limit that is
/// about the server rather than about the client. [`respond`](Self::respond) sets another answer.
///
/// # Memory
/// Only keys with requests in flight take up memory, about 40 bytes each. A limit per key does not bound the number of
/// keys; add a [`Global`] limit. Keys are known by a hash of 64 bits, with a secret seed.
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
/// use tower_throttle::{HeaderKey, concurrency::ConcurrencyLimitLayer};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// // At most 2 exports per tenant at a time. 10 more may wait, a second each.
/// let limit = ConcurrencyLimitLayer::new(HeaderKey::new("x-tenant"), 2)
///     .queue(10)
///     .max_wait(Duration::from_secs(1));
/// let handle = limit.handle();
/// let app: Router = Router::new().route("/export", get(async || "data").layer(limit));
///
/// let request = || Request::get("/export").header("x-tenant", "acme").body(Body::empty()).unwrap();
/// let first = app.clone().oneshot(request()).await.unwrap();
/// assert_eq!(first.status(), StatusCode::OK);
/// let acme = HeaderKey::key("acme");
/// assert_eq!(handle.in_flight(&acme), 1, "the body is not taken yet");
/// drop(first);
/// assert_eq!(handle.in_flight(&acme), 0);
/// # }
/// ```
pub type ConcurrencyLimitLayer<K, R = Responder, H = UntilBodyEnds, P = InProcess> =
    LimitLayer<K, InFlight<H, P>, R>;

/// A service whose requests in flight are limited by a [`ConcurrencyLimitLayer`].
pub type ConcurrencyLimit<S, K, R = Responder, H = UntilBodyEnds, P = InProcess> =
    Limit<S, K, InFlight<H, P>, R>;

impl<K> ConcurrencyLimitLayer<K> {
    /// At most `limit` requests of one key are in flight.
    ///
    /// `keys` is [`Global`], an extractor such as [`ClientIp`](crate::ClientIp), or a
    /// closure; see [`KeyExtractor`](crate::key::KeyExtractor).
    ///
    /// `limit` is a number, or a `fleet::FleetLimit` (feature `cas`), a number for all machines of a fleet together. For a
    /// limit that follows the latency of the service see [`adaptive`](ConcurrencyLimitLayer::adaptive).
    ///
    /// ```
    /// use axum::extract::Request;
    /// use tower_throttle::concurrency::ConcurrencyLimitLayer;
    ///
    /// let backend = |req: &Request| match req.uri().path() {
    ///     path if path.starts_with("/search") => "search",
    ///     _ => "shop",
    /// };
    /// let layer = ConcurrencyLimitLayer::new(backend, 10);
    /// # drop(layer);
    /// ```
    ///
    /// # Panics
    /// If `limit` is 0: no request would ever pass.
    #[track_caller]
    pub fn new<L: IntoLimit>(
        keys: K,
        limit: L,
    ) -> ConcurrencyLimitLayer<K, Responder, UntilBodyEnds, L::Source> {
        let (permits, source) = limit.into_limit();
        LimitLayer::of(keys, InFlight::new(permits, source, false))
    }
}

impl ConcurrencyLimitLayer<Global> {
    /// A limit for all requests together that follows the latency of the service.
    ///
    /// `algorithm` is [`Gradient2`], [`Aimd`], or an [`Adaptive`] of your own. It gets a
    /// window of samples per second, of at least 10 requests. A sample is the time from the permit
    /// until the response, without its body. Denied requests get 503, or `UNAVAILABLE` in gRPC.
    ///
    /// | the response | is |
    /// |---|---|
    /// | 503, 504; in gRPC deadline exceeded, unavailable; an error of the service, such as a timeout | a drop: the service is overloaded |
    /// | any other error in HTTP or gRPC, such as 429 and resource exhausted | ignored: it may be quick because little was done |
    /// | cancelled, as when the client hangs up | a sample if it lasted longer than 9 of 10 requests of the last window; else ignored |
    /// | all others | a sample |
    ///
    /// The latency of a window is its median, in which a drop counts as longer than any latency: so less than half of the
    /// requests cannot lower the limit for the others, as by bodies that are sent so slowly that they run into a timeout. A
    /// client that sends more than all others can. [Security](crate::guide::security) says what bounds it.
    ///
    /// A median does not show an overload of which only a small part of the requests gets slower: give such
    /// routes a limit of their own.
    ///
    /// The example `overload` shows the algorithms in a simulation, beside fixed limits and those of tower.
    /// `Gradient2` is the one to begin with; `Aimd` needs a bound on latency.
    ///
    /// A request that panics is no sample. The limit is about one service: put it close to what it
    /// protects, inside of rate limits and of layers that answer by themselves.
    ///
    /// Put a timeout inside of the limit: then its error, or 504, is a drop. A timeout outside of it
    /// cancels the request, which shows only that the latency would have been longer.
    ///
    /// The limit begins at 20, within its bounds. Set `start_at` if the service queues with 20 requests
    /// in flight. A lower start than needed denies requests for some windows after each deploy.
    ///
    /// ```
    /// use axum::{Router, routing::get};
    /// use tower_throttle::concurrency::{ConcurrencyLimitLayer, Gradient2};
    ///
    /// let limit = ConcurrencyLimitLayer::adaptive(Gradient2::new().between(2, 500).start_at(50));
    /// let handle = limit.handle();
    /// let app: Router = Router::new().route("/", get(async || "done")).layer(limit);
    /// assert_eq!(handle.limit(), 50); // it rises when there are requests
    /// ```
    pub fn adaptive(algorithm: impl Adaptive) -> Self {
        Self::of(
            Global,
            InFlight::new(Permits::adaptive(algorithm), InProcess, true),
        )
    }
}
