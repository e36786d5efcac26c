//! Settings of a layer that concern requests.

use std::sync::Arc;

use http::StatusCode;

use super::{LimitLayer, Limiting};
use crate::error::Rejection;
use crate::key::{Costs, Filter, Priorities, With};
use crate::queue::Seats;

impl<K, G: Clone, R> LimitLayer<K, G, R> {
    /// The cost of each request, instead of 1. A cost of 0 is always admitted.
    ///
    /// In a [`ConcurrencyLimitLayer`](crate::ConcurrencyLimitLayer) it is the number of permits. A request
    /// that costs more than the limit is denied, and told not to retry. It passes when no other is in
    /// flight if the limit is [adaptive](crate::ConcurrencyLimitLayer::adaptive), as that may rise.
    ///
    /// ```
    /// use axum::{Router, extract::Request, routing::get};
    /// use tower_throttle::{Global, Quota, RateLimitLayer, TokenBucket};
    ///
    /// let layer = RateLimitLayer::new(Global, TokenBucket::new(Quota::per_second(100)))
    ///     .cost(|req: &Request| if req.method() == "POST" { 10 } else { 1 });
    /// let app: Router = Router::new().route("/", get(|| async {}).post(|| async {})).layer(layer);
    /// ```
    pub fn cost<F, Req>(self, cost: F) -> LimitLayer<With<K, Costs<F>>, G, R>
    where
        F: Fn(&Req) -> u64,
    {
        self.map_keys(|keys| With::new(keys, Costs(cost)))
    }

    /// How important each request is, so that the least important ones wait longest: the higher the number, the more
    /// important. All requests have the highest, 255, unless this is set.
    ///
    /// It orders the requests that wait in a line of this process, for a rate or for a
    /// [permit](crate::ConcurrencyLimitLayer::queue). A request goes before all of lower priority, and
    /// after all of its own. If the line is full, a new request takes the place of the last one of the lowest priority,
    /// which is denied, if that is lower than its own.
    ///
    /// It takes no capacity away: as long as none waits, requests of all priorities are admitted alike, up to the limit.
    /// On a limit on concurrency, [`reserve`](crate::ConcurrencyLimitLayer::reserve) keeps the last permits for important
    /// requests.
    ///
    /// A request that others overtake waits for at most the `max_wait` of the queue, and is denied then. If each
    /// priority has to get a part of its own, give each a layer of its own with a lower limit.
    ///
    /// [Seats](Self::seats) are given regardless of priority.
    ///
    /// ```
    /// use axum::extract::Request;
    /// use tower_throttle::{Global, LeakyBucket, Quota, RateLimitLayer};
    /// use tower_throttle::concurrency::{ConcurrencyLimitLayer, Gradient2};
    ///
    /// let priority = |req: &Request| match req.uri().path() {
    ///     "/checkout" => 100,
    ///     "/export" => 50,
    ///     _ => 80,
    /// };
    /// let busy = ConcurrencyLimitLayer::adaptive(Gradient2::new()).queue(50).priority(priority);
    /// let paced = RateLimitLayer::new(Global, LeakyBucket::new(Quota::per_second(100)))
    ///     .queue(200)
    ///     .priority(priority);
    /// # drop((busy, paced));
    /// ```
    pub fn priority<F, Req>(self, priority: F) -> LimitLayer<With<K, Priorities<F>>, G, R>
    where
        F: Fn(&Req) -> u8,
    {
        self.map_keys(|keys| With::new(keys, Priorities(priority)))
    }

    /// Does not limit requests for which `skipped` returns true: a closure `Fn(&Req) -> bool`,
    /// [clients in some networks](crate::ClientIp::within), or
    /// [`Preflight`](crate::respond::Preflight) for the CORS preflight requests of browsers, unless the
    /// service itself serves `OPTIONS`.
    pub fn skip<P>(self, skipped: P) -> LimitLayer<With<K, Filter<P>>, G, R> {
        self.map_keys(|keys| With::new(keys, Filter::new(skipped, None)))
    }

    /// Rejects requests for which `blocked` returns true, with status 403: a closure
    /// `Fn(&Req) -> bool`, or [clients in some networks](crate::ClientIp::within). A closure can read a list that
    /// changes, a [`Watched`](crate::key::Watched). For another status or text, a closure that finds the key returns an error.
    ///
    /// A setting that is added later is asked first: with `.skip(..).block(..)` a request that both
    /// lists contain is rejected.
    ///
    /// ```
    /// use axum::{Router, extract::Request, routing::get};
    /// use tower_throttle::{Global, Quota, RateLimitLayer, TokenBucket};
    ///
    /// let layer = RateLimitLayer::new(Global, TokenBucket::new(Quota::per_second(100)))
    ///     .block(|req: &Request| req.uri().path().ends_with(".php"));
    /// let app: Router = Router::new().route("/", get(|| async {})).layer(layer);
    /// ```
    pub fn block<P>(self, blocked: P) -> LimitLayer<With<K, Filter<P>>, G, R> {
        let rejection = Some(Rejection::new(StatusCode::FORBIDDEN, "blocked"));
        self.map_keys(|keys| With::new(keys, Filter::new(blocked, rejection)))
    }

    /// The name of this limit in response headers, logs and metrics; `default` until it is set.
    /// Several limits in one layer are numbered, `name-1`, `name-2`.
    ///
    /// # Panics
    /// If the name is empty or holds anything but printable ASCII: it is sent in headers.
    #[track_caller]
    pub fn name(mut self, name: &str) -> Self
    where
        G: Limiting,
    {
        Arc::make_mut(&mut self.gate).rename(Some(name), &mut 0);
        self
    }

    /// Decides, counts and reports, but lets every request pass at once: to try a limit out.
    ///
    /// Responses do not state the limit in the [`headers`](Self::headers) that were set before: a client that obeys
    /// them would slow down. Those that are set afterwards state it:
    ///
    /// ```
    /// use axum::{Router, body::Body, extract::Request, routing::get};
    /// use tower::ServiceExt;
    /// use tower_throttle::{FixedWindow, Global, Headers, Quota, RateLimitLayer};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let limit = RateLimitLayer::new(Global, FixedWindow::new(Quota::per_day(1)))
    ///     .shadow()
    ///     .headers(Headers::Draft11);
    /// let app: Router = Router::new().route("/", get(async || "found").layer(limit));
    /// let _ = app.clone().oneshot(Request::new(Body::empty())).await;
    /// let response = app.oneshot(Request::new(Body::empty())).await.unwrap();
    /// assert_eq!(response.status(), 200);
    /// assert!(response.headers()["ratelimit"].to_str().unwrap().starts_with(r#""default";r=0"#));
    /// # }
    /// ```
    pub fn shadow(mut self) -> Self {
        (self.options.shadow, self.options.silent) = (true, true);
        self
    }

    /// Stores the [`Decision`](crate::Decision) in the extensions of each HTTP request that goes on
    /// to the service, for a handler that needs to know what is left. Costs an allocation.
    ///
    /// ```
    /// use axum::{Extension, Router, body::{Body, to_bytes}, extract::Request, routing::get};
    /// use tower::ServiceExt;
    /// use tower_throttle::{Decision, Global, Quota, RateLimitLayer, TokenBucket};
    ///
    /// async fn left(Extension(decision): Extension<Decision>) -> String {
    ///     format!("{} of {} left", decision.remaining(), decision.limit)
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let limit = RateLimitLayer::new(Global, TokenBucket::new(Quota::per_minute(100)));
    /// let app: Router = Router::new().route("/", get(left)).layer(limit.share_decision());
    /// let response = app.oneshot(Request::new(Body::empty())).await.unwrap();
    /// let body = to_bytes(response.into_body(), 100).await.unwrap();
    /// assert_eq!(body, "99 of 100 left");
    /// # }
    /// ```
    pub fn share_decision(mut self) -> Self {
        self.options.share_decision = true;
        self
    }

    /// Bounds how many requests may wait at a time, for all keys together.
    ///
    /// A queue bounds the requests that wait for one key. With many keys that is no bound for the
    /// process: each waiting request holds its body, its connection and its task. `seats` is that
    /// bound. It does not bound requests that have gone on to the service. Without it there is no
    /// such bound.
    ///
    /// A service takes a seat when it becomes ready, keeps it while its request waits, and releases
    /// it when the request goes on, is denied or dropped. While there is no free seat, the service is
    /// not ready, and a `LoadShed`, `Buffer` or `Balance` around it, or the caller, sees that. Seats
    /// are given in the order in which they were asked for. Of layers joined by [`and`](Self::and), the seats
    /// of the first that has any count for all.
    ///
    /// Servers such as axum, hyper and tonic ask for readiness only when they have a request, and
    /// hold that request until there is a seat. For them add
    /// [`deny_when_full`](Self::deny_when_full).
    ///
    /// | around it | `seats(n)` | and `deny_when_full()` |
    /// |---|---|---|
    /// | axum, hyper, tonic | n wait; the server holds all others, in order | n wait; others are denied at once |
    /// | `LoadShed`, also in axum | n wait; others are shed at once | as above |
    /// | `Buffer` | n wait; when the buffer is full too, its callers wait | as above |
    /// | a client, a loop | n wait; `ready().await` waits for a seat | as above |
    ///
    /// ```
    /// use std::time::Duration;
    /// use axum::{Router, routing::get};
    /// use tower_throttle::{Global, LeakyBucket, Quota, RateLimitLayer};
    ///
    /// let layer = RateLimitLayer::new(Global, LeakyBucket::new(Quota::per_second(2).burst(1)))
    ///     .queue(20)
    ///     .max_wait(Duration::from_secs(10))
    ///     .seats(100)
    ///     .deny_when_full();
    /// let app: Router = Router::new().route("/", get(|| async {})).layer(layer);
    /// ```
    ///
    /// # Panics
    /// If `seats` is 0: the service would never be ready. If the limit has no queue: it would have no effect.
    #[track_caller]
    pub fn seats(mut self, seats: u32) -> Self
    where
        G: Limiting,
    {
        super::expect_queue("`seats` without a queue", self.gate().queues());
        self.seats = Some(Seats::new(seats));
        self
    }

    /// While there is no free [seat](Self::seats) the service is ready, and a request that would have to wait is denied at
    /// once.
    pub fn deny_when_full(mut self) -> Self {
        self.options.deny_when_full = true;
        self
    }

    pub(crate) fn map_keys<T>(self, change: impl FnOnce(K) -> T) -> LimitLayer<T, G, R> {
        self.map(|keys, gate, respond| (change(keys), gate, respond))
    }
}
