//! Settings of a layer.

use std::{marker::PhantomData, sync::Arc, time::Duration};

use super::{ConcurrencyLayer, UntilHead, UntilResponse};
use crate::key::{Cost, WithCost, WithPriority, WithSkip};
use crate::queue::{Seats, WhenFull};
use crate::respond::Responder;

impl<K, R, H> ConcurrencyLayer<K, R, H> {
    /// Lets up to `most` requests of one key wait for a permit, first come, first served. None waits
    /// unless this is set. [`max_wait`](Self::max_wait) bounds how long.
    ///
    /// A request of a high [cost](Self::cost) that is first in line waits until there is room for all
    /// of it, and those behind it wait too.
    pub fn queue(mut self, most: u32) -> Self {
        self.options.queue = most;
        self
    }

    /// How long a request may wait for a permit before it is denied; 1 s unless set.
    ///
    /// A gRPC request waits at most as long as its client does (`grpc-timeout`).
    pub fn max_wait(mut self, max_wait: Duration) -> Self {
        self.options.max_wait = max_wait;
        self
    }

    /// The number of permits that each request takes, instead of 1. A request of cost 0 is always
    /// admitted. One that costs more than the limit is denied, and told not to retry. It passes when no
    /// other is in flight if the limit is [adaptive](ConcurrencyLayer::adaptive), as that may rise.
    ///
    /// ```
    /// use axum::extract::Request;
    /// use tower_throttle::{Global, concurrency::ConcurrencyLayer};
    ///
    /// let layer = ConcurrencyLayer::new(Global, 100)
    ///     .cost(|req: &Request| if req.uri().path() == "/report" { 20 } else { 1 });
    /// # drop(layer);
    /// ```
    pub fn cost<F, Req, C>(self, cost: F) -> ConcurrencyLayer<WithCost<K, F>, R, H>
    where
        F: Fn(&Req) -> C,
        C: Cost,
    {
        self.map_keys(|keys| WithCost::new(keys, cost))
    }

    /// How important each request is, so that the least important ones are denied first: a closure, or
    /// a [`PriorityHeader`](crate::key::PriorityHeader). All requests have [`Priority::HIGH`](crate::key::Priority::HIGH) unless this
    /// is set.
    ///
    /// - A request of priority `p` % is admitted only if no more than `p` % of the limit, rounded down
    ///   and at least 1, is in flight then, itself included. So the rest is free for requests of
    ///   higher priority. A request of [cost](Self::cost) 1 that is alone passes. One that costs more
    ///   than its part is denied and told not to retry, unless the limit is
    ///   [adaptive](ConcurrencyLayer::adaptive); then it passes when it is alone.
    /// - In the [queue](Self::queue), a request goes before all of lower priority, and after all of its
    ///   own. If the queue is full, a new request takes the place of the newest one of the lowest
    ///   priority, which is denied, if that is lower than its own.
    ///
    /// A priority gets nothing as long as requests of higher priorities fill its part of the limit. In
    /// the queue such a request is denied after [`max_wait`](Self::max_wait). If every priority has to
    /// get a part of its own, give each a layer of its own with a lower limit.
    ///
    /// The line of a key takes up memory for the most requests of each priority that it held at a time,
    /// until no request of the key is in flight.
    ///
    /// [Seats](Self::seats) are given regardless of priority. The decision and the headers of a
    /// response state the part of the limit that is for its priority.
    ///
    /// ```
    /// use axum::extract::Request;
    /// use tower_throttle::concurrency::{ConcurrencyLayer, Gradient2};
    /// use tower_throttle::key::Priority;
    ///
    /// let limit = ConcurrencyLayer::adaptive(Gradient2::new())
    ///     .priority(|req: &Request| match req.uri().path() {
    ///         "/checkout" => Priority::HIGH,
    ///         "/export" => Priority::percent(30),
    ///         _ => Priority::MEDIUM,
    ///     });
    /// # drop(limit);
    /// ```
    pub fn priority<P>(self, priority: P) -> ConcurrencyLayer<WithPriority<K, P>, R, H> {
        self.map_keys(|keys| WithPriority::new(keys, priority))
    }

    /// Does not limit requests for which `skipped` returns true: a closure `Fn(&Req) -> bool`, or
    /// [`Preflight`](crate::respond::Preflight).
    pub fn skip<P>(self, skipped: P) -> ConcurrencyLayer<WithSkip<K, P>, R, H> {
        self.map_keys(|keys| WithSkip::new(keys, skipped))
    }

    /// The name of this limit in response headers, logs and metrics; `default` until it is set.
    ///
    /// # Panics
    /// If the name is empty or holds anything but printable ASCII: it is sent in headers.
    #[track_caller]
    pub fn name(mut self, name: &str) -> Self {
        self.state = Arc::new(self.state.renamed(name));
        self
    }

    /// Counts and reports, but lets every request pass at once: to try a limit out. Responses do not
    /// state the limit, as those of [`RateLimitLayer::shadow`](crate::RateLimitLayer::shadow).
    pub fn shadow(mut self) -> Self {
        (self.options.shadow, self.options.silent) = (true, true);
        self
    }

    /// As [`shadow`](Self::shadow), and responses state the limit in the [`headers`](Self::headers) that are
    /// set.
    ///
    /// ```
    /// use tower_throttle::{Global, Headers, concurrency::ConcurrencyLayer};
    ///
    /// let limit = ConcurrencyLayer::new(Global, 1).headers(Headers::standard()).shadow_with_headers();
    /// # let _: axum::Router = axum::Router::new().layer(limit);
    /// ```
    pub fn shadow_with_headers(mut self) -> Self {
        (self.options.shadow, self.options.silent) = (true, false);
        self
    }

    /// Bounds how many requests may wait at a time, for all keys together; as
    /// [`RateLimitLayer::seats`](crate::RateLimitLayer::seats), which has a table of what servers do.
    ///
    /// # Panics
    /// If `seats` is 0: the service would never be ready.
    #[track_caller]
    pub fn seats(mut self, seats: u32) -> Self {
        self.seats = Some(Seats::new(seats));
        self
    }

    /// What happens to requests while there is no free [seat](Self::seats).
    pub fn when_full(mut self, when_full: WhenFull) -> Self {
        self.options.when_full = when_full;
        self
    }

    /// Answers denied requests with 503, and gRPC requests with `UNAVAILABLE`, instead of 429 and
    /// `RESOURCE_EXHAUSTED`: for a limit that protects the server from all clients together.
    ///
    /// ```
    /// use axum::{Router, body::Body, extract::Request, routing::get};
    /// use tower::ServiceExt;
    /// use tower_throttle::{Global, concurrency::ConcurrencyLayer};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let limit = ConcurrencyLayer::new(Global, 1).unavailable();
    /// let app: Router = Router::new().route("/", get(async || "data").layer(limit));
    /// let first = app.clone().oneshot(Request::new(Body::empty())).await.unwrap();
    /// let second = app.oneshot(Request::new(Body::empty())).await.unwrap();
    /// assert_eq!((first.status().as_u16(), second.status().as_u16()), (200, 503));
    /// # }
    /// ```
    pub fn unavailable(mut self) -> Self {
        self.options.unavailable = true;
        self
    }

    /// What denied requests are told in `Retry-After`; 1 s unless set.
    ///
    /// No limit on concurrency knows when a request will end, so this is an estimate.
    ///
    /// ```
    /// use std::time::Duration;
    /// use axum::{Router, body::Body, extract::Request, routing::get};
    /// use tower::ServiceExt;
    /// use tower_throttle::{Global, concurrency::ConcurrencyLayer};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let limit = ConcurrencyLayer::new(Global, 1).retry_after(Duration::from_secs(30));
    /// let app: Router = Router::new().route("/", get(async || "data").layer(limit));
    /// let first = app.clone().oneshot(Request::new(Body::empty())).await.unwrap();
    /// let second = app.oneshot(Request::new(Body::empty())).await.unwrap();
    /// assert_eq!(second.headers()["retry-after"], "30");
    /// # drop(first);
    /// # }
    /// ```
    pub fn retry_after(mut self, retry_after: Duration) -> Self {
        self.options.retry_after = retry_after;
        self
    }

    /// Releases the permit when the response, without its body, or the error is there.
    ///
    /// For services that are not HTTP. An [adaptive](ConcurrencyLayer::adaptive) limit counts every
    /// response as a success, whatever its status: in HTTP call
    /// [`release_at_head`](Self::release_at_head).
    ///
    /// ```
    /// use tower::{BoxError, Layer, ServiceExt, service_fn};
    /// use tower_throttle::{AsError, Global, concurrency::ConcurrencyLayer};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), BoxError> {
    /// let limit = ConcurrencyLayer::new(Global, 8).release_at_response().respond(AsError);
    /// let service = limit.layer(service_fn(async |call: u32| Ok::<u32, BoxError>(call)));
    /// assert_eq!(service.oneshot(7).await?, 7);
    /// # Ok(())
    /// # }
    /// ```
    pub fn release_at_response(self) -> ConcurrencyLayer<K, R, UntilResponse> {
        self.with_hold()
    }

    /// Releases the permit when the head of an HTTP response, which is its status and headers, or the
    /// error is there.
    ///
    /// For responses that last long but cost the server little, such as streams of events. Then more
    /// responses than the limit may be on their way to clients.
    ///
    /// ```
    /// use axum::{Router, body::Body, extract::Request, routing::get};
    /// use tower::ServiceExt;
    /// use tower_throttle::{Global, concurrency::ConcurrencyLayer};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let limit = ConcurrencyLayer::new(Global, 1).release_at_head();
    /// let app: Router = Router::new().route("/", get(async || "data").layer(limit));
    /// let first = app.clone().oneshot(Request::new(Body::empty())).await.unwrap();
    /// let second = app.oneshot(Request::new(Body::empty())).await.unwrap();
    /// assert_eq!((first.status().as_u16(), second.status().as_u16()), (200, 200));
    /// # }
    /// ```
    pub fn release_at_head(self) -> ConcurrencyLayer<K, R, UntilHead> {
        self.with_hold()
    }

    fn with_hold<T>(self) -> ConcurrencyLayer<K, R, T> {
        ConcurrencyLayer {
            keys: self.keys,
            respond: self.respond,
            options: self.options,
            seats: self.seats,
            state: self.state,
            hold: PhantomData,
        }
    }

    fn map_keys<T>(self, change: impl FnOnce(K) -> T) -> ConcurrencyLayer<T, R, H> {
        ConcurrencyLayer {
            keys: change(self.keys),
            respond: self.respond,
            options: self.options,
            seats: self.seats,
            state: self.state,
            hold: PhantomData,
        }
    }
}

impl<K, D, T, H> ConcurrencyLayer<K, Responder<D, T>, H> {
    /// The answer to a denied request; as [`RateLimitLayer::respond`](crate::RateLimitLayer::respond).
    pub fn respond<N>(self, deny: N) -> ConcurrencyLayer<K, Responder<N, T>, H> {
        self.map_respond(|respond| respond.with_deny(deny))
    }

    /// States the limit in the responses to limited requests, admitted or denied; see [`Headers`](crate::Headers).
    ///
    /// ```
    /// use axum::{Router, body::Body, extract::Request, routing::get};
    /// use tower::ServiceExt;
    /// use tower_throttle::{Global, Headers, concurrency::ConcurrencyLayer};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let limit = ConcurrencyLayer::new(Global, 10).name("search").headers(Headers::standard());
    /// let app: Router = Router::new().route("/", get(async || "found").layer(limit));
    /// let response = app.oneshot(Request::new(Body::empty())).await.unwrap();
    /// let headers = response.headers();
    /// assert_eq!(headers["ratelimit-policy"], r#""search";q=10;qu="concurrent-requests""#);
    /// assert_eq!(headers["ratelimit"], r#""search";r=9"#);
    /// # }
    /// ```
    pub fn headers<N>(self, tell: N) -> ConcurrencyLayer<K, Responder<D, N>, H> {
        self.map_respond(|respond| respond.with_tell(tell))
    }

    fn map_respond<N>(
        self,
        change: impl FnOnce(Responder<D, T>) -> N,
    ) -> ConcurrencyLayer<K, N, H> {
        ConcurrencyLayer {
            keys: self.keys,
            respond: change(self.respond),
            options: self.options,
            seats: self.seats,
            state: self.state,
            hold: PhantomData,
        }
    }
}
