//! Settings of a layer that concern responses.

use super::{LimitLayer, Rate};
use crate::respond::{AtEnd, Responder, SettleWhen};

/// A responder that is watched by one more.
type Watched<D, H, F, W, T> = Responder<D, H, F, (W, T)>;

impl<K, G: Clone, D, H, F, W> LimitLayer<K, G, Responder<D, H, F, W>> {
    /// The answer to a denied request: [`ProblemJson`](crate::ProblemJson), [`Grpc`](crate::respond::Grpc),
    /// [`AsError`](crate::AsError), a closure, or a
    /// [`Respond`](crate::respond::Respond) of your own.
    ///
    /// ```
    /// use axum::{Router, body::{Body, to_bytes}, extract::Request, routing::get};
    /// use axum::response::{IntoResponse, Response};
    /// use http::StatusCode;
    /// use tower::ServiceExt;
    /// use tower_throttle::{FixedWindow, Global, Quota, RateLimitLayer, RateLimited};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let layer = RateLimitLayer::new(Global, FixedWindow::new(Quota::per_day(1)))
    ///     .respond(|req: &Request, denied: &RateLimited| -> Response {
    ///         (StatusCode::TOO_MANY_REQUESTS, format!("{}: {denied}", req.uri())).into_response()
    ///     });
    /// let app: Router = Router::new().route("/a", get(|| async {})).layer(layer);
    /// let ask = || Request::get("/a").body(Body::empty()).unwrap();
    /// assert_eq!(app.clone().oneshot(ask()).await.unwrap().status(), StatusCode::OK);
    /// let denied = app.oneshot(ask()).await.unwrap();
    /// let body = to_bytes(denied.into_body(), 1_000).await.unwrap();
    /// assert!(body.starts_with(b"/a: rate limit exceeded, retry in "));
    /// # }
    /// ```
    pub fn respond<T>(self, deny: T) -> LimitLayer<K, G, Responder<T, H, F, W>> {
        self.map_respond(|_, _, tell, settle, watch| (deny, tell, settle, watch))
    }

    /// States the limit in every response, admitted or denied; see [`Headers`](crate::Headers).
    ///
    /// ```
    /// use axum::{Router, body::Body, extract::Request, routing::get};
    /// use tower::ServiceExt;
    /// use tower_throttle::{Global, Headers, Quota, RateLimitLayer, TokenBucket};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let layer = RateLimitLayer::new(Global, TokenBucket::new(Quota::per_second(100)))
    ///     .name("search")
    ///     .headers(Headers::Draft11);
    /// let app: Router = Router::new().route("/", get(|| async {})).layer(layer);
    /// let response = app.oneshot(Request::new(Body::empty())).await.unwrap();
    /// assert_eq!(response.headers()["ratelimit-policy"], "\"search\";q=100;w=1");
    /// # }
    /// ```
    pub fn headers<T>(mut self, tell: T) -> LimitLayer<K, G, Responder<D, T, F, W>> {
        self.options.silent = false;
        self.map_respond(|_, deny, _, settle, watch| (deny, tell, settle, watch))
    }

    /// Settles the cost when it is known what a request has cost: to count only failures, or the tokens of an answer.
    ///
    /// The cost is taken first, so that requests in flight at the same time cannot exceed the limit
    /// together. A server is told of the difference in the background: a request right after the response may still find
    /// the cost taken. `settle` is one of these:
    ///
    /// | | settles |
    /// |---|---|
    /// | a closure of `&Res` | by the response; an error of the service keeps the cost |
    /// | a closure of `Result<&Res, &Err>` | by the response or the error, for clients, whose failures may be either |
    /// | [`AtEnd`] | by what is said while the request is served, up to the last frame of the body |
    ///
    /// It concerns limits on a rate. A [`ConcurrencyLimitLayer`](crate::ConcurrencyLimitLayer) counts a request until
    /// it ends.
    ///
    /// ```
    /// use axum::{Router, http::StatusCode, response::Response, routing::post};
    /// use tower_throttle::{ClientIp, Quota, RateLimitLayer, Settle, SlidingLog};
    ///
    /// // At most 5 wrong passwords per minute; other logins count for nothing.
    /// let layer = RateLimitLayer::new(ClientIp::peer(), SlidingLog::new(Quota::per_minute(5)))
    ///     .settle(|res: &Response| match res.status() {
    ///         StatusCode::UNAUTHORIZED => Settle::Keep,
    ///         _ => Settle::Refund,
    ///     });
    /// let app: Router = Router::new().route("/login", post(|| async {})).layer(layer);
    /// ```
    ///
    /// # Denials of limits inside this one
    /// They are neither a success nor a failure, whatever their status: the cost is given back, and a closure of the
    /// response is not asked. The layer knows them by the [`RateLimited`](crate::RateLimited) in the extensions of an
    /// HTTP response, which a layer in between has to keep. [`AsError`](crate::AsError) does not know them. A closure
    /// of the result is asked. They are never a success: [`Settle::Forgive`](crate::Settle::Forgive) does what `Refund`
    /// does. A service that fails in `poll_ready`, before it has the request, keeps the cost.
    ///
    /// ```
    /// use tower::{BoxError, Layer, ServiceExt, service_fn};
    /// use tower_throttle::{AsError, FixedWindow, Global, Quota, RateLimitLayer, Settle};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), BoxError> {
    /// // After 10 failed calls in a minute, call no more.
    /// let layer = RateLimitLayer::new(Global, FixedWindow::new(Quota::per_minute(10)))
    ///     .settle(|result: Result<&u32, &BoxError>| match result {
    ///         Ok(_) => Settle::Refund,
    ///         Err(_) => Settle::Keep,
    ///     })
    ///     .respond(AsError);
    /// let service = layer.layer(service_fn(async |call: u32| Ok::<u32, BoxError>(call)));
    /// assert_eq!(service.oneshot(7).await?, 7);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # A cost that is said at the end
    /// The [`cost`](Self::cost) is then an estimate. What a request really costs is said through the
    /// [`CostHandle`](crate::respond::CostHandle) in its extensions. The difference is taken, even into debt, or given
    /// back as far as time has not returned it yet. That happens once: on
    /// [`commit`](crate::respond::CostHandle::commit), or when the last handle is dropped, with the handler, with the
    /// stream that it was moved into, or because of an error, a panic or a client that is gone. If nothing was said, the
    /// estimate stays. If a closure is set too and does not keep the cost, that counts instead.
    ///
    /// HTTP only. Of several limits in one layer, each has its own estimate and says for itself whether it learns the
    /// cost at the end:
    ///
    /// ```
    /// use axum::{Extension, Router, extract::Request, routing::post};
    /// use tower_throttle::{FixedWindow, HeaderKey, Quota, RateLimitLayer, TokenBucket};
    /// use tower_throttle::respond::{AtEnd, CostHandle};
    ///
    /// let user = || HeaderKey::new("x-api-key");
    /// let tokens = RateLimitLayer::new(user(), FixedWindow::new(Quota::per_day(100_000)))
    ///     .name("tokens")
    ///     .cost(|_: &Request| 500)
    ///     .settle(AtEnd);
    /// let limit = RateLimitLayer::new(user(), TokenBucket::new(Quota::per_minute(60)))
    ///     .name("requests")
    ///     .and(tokens);
    /// let complete = async |Extension(cost): Extension<CostHandle>| {
    ///     cost.set(730);
    ///     "text"
    /// };
    /// let app: Router = Router::new().route("/complete", post(complete)).layer(limit);
    /// ```
    pub fn settle<T, M>(mut self, settle: T) -> LimitLayer<K, G, Responder<D, H, T::Settle, W>>
    where
        T: SettleWhen<M, G, F>,
    {
        self.options.shares_cost |= T::SAYS_LATER;
        self.map_respond(|gate, deny, tell, own, watch| {
            (deny, tell, settle.settle_when(gate, own), watch)
        })
    }

    /// Lets `watch` learn which keys are admitted and denied: a closure, to log or count who is denied, or
    /// [`TopKeys`](super::TopKeys). It adds to what other calls of this method have set, and must not wait.
    ///
    /// It is told of each admission, with the cost of the request, and of each denial by the limit, not of requests without a
    /// key. In shadow mode nothing is denied. A request that an outage lets pass is admitted, and one that it denies is not
    /// told.
    ///
    /// ```
    /// use std::sync::{Arc, atomic::{AtomicU64, Ordering}};
    /// use tower::{Layer, ServiceExt, service_fn};
    /// use tower_throttle::{AsError, FixedWindow, Quota, RateLimitLayer, RateLimited};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let denied_to_7 = Arc::new(AtomicU64::new(0));
    /// let count = Arc::clone(&denied_to_7);
    /// let layer = RateLimitLayer::new(|customer: &u64| *customer, FixedWindow::new(Quota::per_day(2)))
    ///     .watch(move |customer: &u64, decided: Result<u64, &RateLimited>| {
    ///         if let (7, Err(_)) = (*customer, decided) {
    ///             count.fetch_add(1, Ordering::Relaxed);
    ///         }
    ///     })
    ///     .respond(AsError);
    /// let service = layer.layer(service_fn(async |customer: u64| Ok::<_, RateLimited>(customer)));
    /// for customer in [7, 7, 7, 8] {
    ///     let _ = service.clone().oneshot(customer).await;
    /// }
    /// assert_eq!(denied_to_7.load(Ordering::Relaxed), 1);
    /// # }
    /// ```
    pub fn watch<T>(self, watch: T) -> LimitLayer<K, G, Watched<D, H, F, W, T>> {
        self.map_respond(|_, deny, tell, settle, own| (deny, tell, settle, (own, watch)))
    }

    pub(crate) fn map_respond<D2, H2, F2, W2>(
        self,
        change: impl FnOnce(&mut G, D, H, F, W) -> (D2, H2, F2, W2),
    ) -> LimitLayer<K, G, Responder<D2, H2, F2, W2>> {
        self.map(|keys, mut gate, own| {
            let (deny, tell, settle, watch) =
                change(&mut gate, own.deny, own.tell, own.settle, own.watch);
            let respond = Responder {
                deny,
                tell,
                settle,
                watch,
            };
            (keys, gate, respond)
        })
    }
}

impl<L, F> SettleWhen<Self, Rate<L>, F> for AtEnd {
    type Settle = F;

    const SAYS_LATER: bool = true;

    fn settle_when(self, rate: &mut Rate<L>, before: F) -> F {
        rate.shares_cost = true;
        before
    }
}
