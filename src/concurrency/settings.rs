//! Settings of a layer.

use std::time::Duration;

use super::{ConcurrencyLimitLayer, InFlight, UntilResponse};
use crate::layer::expect_queue;
use crate::queue::Order;

impl<K, R, H, P: Clone> ConcurrencyLimitLayer<K, R, H, P> {
    /// Lets up to `most` requests of one key wait for a permit, first come, first served unless
    /// [`newest_first`](Self::newest_first) or [`priority`](Self::priority) says otherwise. None waits unless this is set. [`max_wait`](Self::max_wait) bounds how long.
    ///
    /// A request of a high [cost](Self::cost) that is first in line waits until there is room for all
    /// of it, and those behind it wait too.
    pub fn queue(self, most: u32) -> Self {
        self.with_gate(|gate| gate.options.queue = most)
    }

    /// How long a request may wait for a permit before it is denied; 1 s unless set.
    ///
    /// A gRPC request waits at most as long as its client does (`grpc-timeout`). If the permits are those of a fleet,
    /// the time that the store takes for a first reply comes in addition.
    ///
    /// # Panics
    /// Without a [`queue`](Self::queue), which is set first: it would have no effect.
    #[track_caller]
    pub fn max_wait(self, max_wait: Duration) -> Self {
        expect_queue("`max_wait` without a queue", self.gate().options.queue > 0);
        self.with_gate(|gate| gate.options.max_wait = max_wait)
    }

    /// Of the requests that wait for one key, the newest goes on first. As for a
    /// [rate limit](crate::RateLimitLayer::newest_first).
    ///
    /// ```
    /// use tower_throttle::{ConcurrencyLimitLayer, Global};
    ///
    /// // Under overload the newest requests are served, and the oldest are denied.
    /// let limit = ConcurrencyLimitLayer::new(Global, 10).queue(100).newest_first();
    /// # drop(limit);
    /// ```
    ///
    /// # Panics
    /// Without a [`queue`](Self::queue), which is set first: it would have no effect.
    #[track_caller]
    pub fn newest_first(self) -> Self {
        expect_queue(
            "`newest_first` without a queue",
            self.gate().options.queue > 0,
        );
        self.with_gate(|gate| gate.options.order = Order::Newest)
    }

    /// Keeps the last `permits` of each key for requests whose [priority](Self::priority) is at least `least`; none
    /// unless set. Without a priority, all requests have the highest.
    ///
    /// For all others the limit is lower by so many permits, but at least 1: they are admitted up to it, and their
    /// headers state it. A request that costs more is denied and told not to retry; one to an
    /// [adaptive](ConcurrencyLimitLayer::adaptive) limit passes when it is alone. The number stays the same when the
    /// limit changes. In a fleet it is a number of permits of all machines together.
    ///
    /// ```
    /// use axum::extract::Request;
    /// use tower_throttle::{ConcurrencyLimitLayer, Global};
    ///
    /// // Requests of other paths may use 15 of the 20 permits.
    /// let limit = ConcurrencyLimitLayer::new(Global, 20)
    ///     .priority(|request: &Request| match request.uri().path() {
    ///         "/checkout" => 100,
    ///         _ => 80,
    ///     })
    ///     .reserve(100, 5);
    /// # drop(limit);
    /// ```
    pub fn reserve(self, least: u8, permits: u32) -> Self {
        self.with_gate(|gate| gate.options.reserve = (least, permits))
    }

    /// Answers denied requests with 503, and gRPC requests with `UNAVAILABLE`, instead of 429 and
    /// `RESOURCE_EXHAUSTED`: for a limit that protects the server from all clients together.
    ///
    /// ```
    /// use axum::{Router, body::Body, extract::Request, routing::get};
    /// use tower::ServiceExt;
    /// use tower_throttle::{Global, concurrency::ConcurrencyLimitLayer};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let limit = ConcurrencyLimitLayer::new(Global, 1).unavailable();
    /// let app: Router = Router::new().route("/", get(async || "data").layer(limit));
    /// let first = app.clone().oneshot(Request::new(Body::empty())).await.unwrap();
    /// let second = app.oneshot(Request::new(Body::empty())).await.unwrap();
    /// assert_eq!((first.status().as_u16(), second.status().as_u16()), (200, 503));
    /// # }
    /// ```
    pub fn unavailable(self) -> Self {
        self.with_gate(|gate| gate.options.unavailable = true)
    }

    /// What denied requests are told in `Retry-After`; 1 s unless set.
    ///
    /// No limit on concurrency knows when a request will end, so this is an estimate.
    ///
    /// ```
    /// use std::time::Duration;
    /// use axum::{Router, body::Body, extract::Request, routing::get};
    /// use tower::ServiceExt;
    /// use tower_throttle::{Global, concurrency::ConcurrencyLimitLayer};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let limit = ConcurrencyLimitLayer::new(Global, 1).retry_after(Duration::from_secs(30));
    /// let app: Router = Router::new().route("/", get(async || "data").layer(limit));
    /// let first = app.clone().oneshot(Request::new(Body::empty())).await.unwrap();
    /// let second = app.oneshot(Request::new(Body::empty())).await.unwrap();
    /// assert_eq!(second.headers()["retry-after"], "30");
    /// # drop(first);
    /// # }
    /// ```
    pub fn retry_after(self, retry_after: Duration) -> Self {
        self.with_gate(|gate| gate.options.retry_after = retry_after)
    }

    /// Releases the permit when the response, without its body, or the error is there.
    ///
    /// For services that are not HTTP, and for responses that last long but cost the server little, such as streams of
    /// events. An [adaptive](ConcurrencyLimitLayer::adaptive) limit then counts every response as a success, whatever
    /// its status.
    ///
    /// ```
    /// use tower::{BoxError, Layer, ServiceExt, service_fn};
    /// use tower_throttle::{AsError, Global, concurrency::ConcurrencyLimitLayer};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), BoxError> {
    /// let limit = ConcurrencyLimitLayer::new(Global, 8).release_at_response().respond(AsError);
    /// let service = limit.layer(service_fn(async |call: u32| Ok::<u32, BoxError>(call)));
    /// assert_eq!(service.oneshot(7).await?, 7);
    /// # Ok(())
    /// # }
    /// ```
    pub fn release_at_response(self) -> ConcurrencyLimitLayer<K, R, UntilResponse, P> {
        self.map_gate(InFlight::with_hold)
    }
}
