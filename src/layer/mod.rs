//! The tower part: a layer that asks a limiter before each request.

mod counts;
mod future;
mod handle;
#[cfg(all(test, tower_throttle_loom))]
mod loom_models;
#[cfg(feature = "tonic")]
mod named_service;
mod options;
mod policy_cache;
mod reservation;
mod service;
mod signals;
mod state;
mod tiers;

pub use self::{
    counts::Counts,
    future::ResponseFuture,
    handle::Handle,
    options::OnStoreError,
    service::RateLimit,
    tiers::{TierFuture, Tiers},
};
use std::{any::type_name, fmt, sync::Arc};

use tower_layer::Layer;

use self::options::LayerOptions;
use self::state::State;
use crate::backend::IntoBackend;
use crate::key::{Cost, Global, WithCost, WithSkip};
use crate::queue::{Order, Seats, WhenFull};
use crate::respond::{Responder, SettleByResponse, SettleByResult};

/// Limits the requests to a service: a key, a limit, and what is told to the refused.
///
/// # When a request passes
/// 1. The key extractor finds the key of the request. A request without one is either not limited
///    (the extractor says so) or turned away with the extractor's rejection.
/// 2. The limiter decides for the key and takes the cost of the request, 1 unless
///    [`cost`](Self::cost) says otherwise.
/// 3. An admitted request goes to the service, which finds the [`Decision`](crate::Decision) in its
///    extensions if that was asked for ([`share_decision`](Self::share_decision)).
/// 4. One that has to wait gets its place in line and goes to the service when its time has come.
///    While it waits it keeps nothing of the service occupied. It waits on tokio's timers: where
///    there is no runtime, or one without `enable_time`, it is denied instead.
/// 5. A denied one is answered at once: the service is not touched and the body not read.
///
/// # What a refused request gets
/// In HTTP, 429 with `Retry-After`; a gRPC request gets a gRPC status with the same. Another answer
/// is set with [`respond`](Self::respond). A service that is not HTTP gets an error: add
/// `.respond(AsError)`.
///
/// # Sharing
/// The counts belong to the layer. Every service it makes, and every clone of it, counts together:
/// all routes, methods and connections that one layer is added to share its limit. For separate
/// limits make separate layers.
///
/// ```
/// use axum::{Router, routing::get};
/// use tower_throttle::{ClientIp, Quota, RateLimitLayer, TokenBucket};
///
/// async fn search() -> &'static str {
///     "found"
/// }
///
/// let limit = RateLimitLayer::new(ClientIp::peer(), TokenBucket::new(Quota::per_second(10).burst(50)));
/// let app: Router = Router::new().route("/search", get(search).layer(limit));
/// ```
#[must_use = "a layer does nothing until it is added to a service"]
pub struct RateLimitLayer<K, L, R = Responder> {
    keys: K,
    respond: R,
    policy: LayerOptions,
    seats: Option<Arc<Seats>>,
    state: Arc<State<L>>,
}

impl<K, L> RateLimitLayer<K, L> {
    /// Limits by `keys`, as `limiter` decides.
    ///
    /// `keys` is [`Global`](crate::Global), an extractor such as
    /// [`ClientIp`](crate::ClientIp), or a closure `Fn(&Req) -> T` that returns a key, an `Option`
    /// or a `Result` of one; see [`KeyExtractor`](crate::key::KeyExtractor). `limiter` is an algorithm
    /// or a tuple of them (which means: in this process), or a limiter of another kind.
    ///
    /// ```
    /// use axum::extract::Request;
    /// use tower_throttle::{Quota, RateLimitLayer, SlidingLog};
    ///
    /// let per_tenant = RateLimitLayer::new(
    ///     |req: &Request| req.headers().get("tenant").cloned(),
    ///     SlidingLog::new(Quota::per_minute(5)),
    /// );
    /// # let _: axum::Router = axum::Router::new().layer(per_tenant);
    /// ```
    pub fn new(keys: K, limiter: impl IntoBackend<Backend = L>) -> Self {
        Self {
            keys,
            respond: Responder::default(),
            policy: LayerOptions::default(),
            seats: None,
            state: Arc::new(State::new(if is_global::<K>() {
                limiter.into_single_key_backend()
            } else {
                limiter.into_backend()
            })),
        }
    }
}

/// Whether all requests have one key. Told by its name, since that is all that is known of every
/// type; where it were wrong, the limit would only have more room than it needs.
fn is_global<K>() -> bool {
    type_name::<K>() == type_name::<Global>()
}

impl<K, L, R> RateLimitLayer<K, L, R> {
    /// What each request costs, instead of 1. A cost of 0 is always admitted.
    ///
    /// ```
    /// use axum::extract::Request;
    /// use tower_throttle::{Global, Quota, RateLimitLayer, TokenBucket};
    ///
    /// let layer = RateLimitLayer::new(Global, TokenBucket::new(Quota::per_second(100)))
    ///     .cost(|req: &Request| if req.method() == "POST" { 10 } else { 1 });
    /// # let _: axum::Router = axum::Router::new().layer(layer);
    /// ```
    pub fn cost<F, Req, C>(self, cost: F) -> RateLimitLayer<WithCost<K, F>, L, R>
    where
        F: Fn(&Req) -> C,
        C: Cost,
    {
        self.map_keys(|keys| WithCost::new(keys, cost))
    }

    /// Leaves requests alone for which `skipped` holds: a closure `Fn(&Req) -> bool`, or
    /// [`Preflight`](crate::respond::Preflight) for the requests with which browsers ask for permission.
    ///
    /// ```
    /// use tower_throttle::{Global, Quota, RateLimitLayer, TokenBucket, respond::Preflight};
    ///
    /// let layer = RateLimitLayer::new(Global, TokenBucket::new(Quota::per_second(100)))
    ///     .skip(Preflight);
    /// # let _: axum::Router = axum::Router::new().layer(layer);
    /// ```
    pub fn skip<P>(self, skipped: P) -> RateLimitLayer<WithSkip<K, P>, L, R> {
        self.map_keys(|keys| WithSkip::new(keys, skipped))
    }

    /// The name by which clients, logs and metrics know this limit; `default` until it is set.
    /// Several limits in one layer are numbered, `name-1`, `name-2`.
    ///
    /// # Panics
    /// If the name is empty or holds anything but printable ASCII: it is sent in headers.
    #[track_caller]
    pub fn name(self, name: &str) -> Self {
        assert!(
            !name.is_empty() && name.bytes().all(|byte| matches!(byte, b' '..=b'~')),
            "name: {name:?} is not allowed; give printable ASCII"
        );
        self.state.rename(name);
        self
    }

    /// Decides, counts and reports, but lets every request pass at once: to try a limit out.
    pub fn shadow(mut self) -> Self {
        self.policy.shadow = true;
        self
    }

    /// Leaves the [`Decision`](crate::Decision) in the extensions of each HTTP request that goes on
    /// to the service, for a handler that wants to know what is left. It costs an allocation.
    ///
    /// ```
    /// use axum::{Extension, Router, routing::get};
    /// use tower_throttle::{Decision, Global, Quota, RateLimitLayer, TokenBucket};
    ///
    /// async fn left(Extension(decision): Extension<Decision>) -> String {
    ///     format!("{} of {} left", decision.remaining(), decision.limit)
    /// }
    ///
    /// let limit = RateLimitLayer::new(Global, TokenBucket::new(Quota::per_second(100)));
    /// let app: Router = Router::new().route("/", get(left)).layer(limit.share_decision());
    /// ```
    pub fn share_decision(mut self) -> Self {
        self.policy.share = true;
        self
    }

    /// What becomes of requests while the limiter cannot decide, as when its server is down.
    pub fn on_store_error(mut self, on_store_error: OnStoreError) -> Self {
        self.policy.on_store_error = on_store_error;
        self
    }

    /// Who goes first of those who wait for one key; the oldest unless this says otherwise.
    ///
    /// ```
    /// use tower_throttle::{Global, LeakyBucket, Quota, RateLimitLayer, queue::Order};
    ///
    /// // Under overload whoever has just come is served, and the oldest are sent away.
    /// let bucket = LeakyBucket::new(Quota::per_second(100)).queue(200);
    /// let layer = RateLimitLayer::new(Global, bucket).order(Order::Newest);
    /// # let _: axum::Router = axum::Router::new().layer(layer);
    /// ```
    ///
    /// It needs a limiter in this process: one elsewhere has no say about who waits where. A moment
    /// is granted for a cost, so where the costs of those who wait differ, newcomers go to the end
    /// of the line whatever the order, and nobody is sent away.
    pub fn order(mut self, order: Order) -> Self {
        self.policy.order = order;
        self
    }

    /// How many requests may wait at a time, for all keys together; as many as the limiter lets
    /// wait for each key unless this says otherwise.
    ///
    /// A service takes a seat when it becomes ready, keeps it while its request waits, and gives it
    /// back when the request goes on, is denied or dropped. While there is no seat the service is
    /// not ready, and a `LoadShed`, `Buffer` or `Balance` around it, or the caller, feels that. Seats
    /// are given in the order in which they were asked for.
    ///
    /// Servers such as axum, hyper and tonic ask for readiness only when they have a request, and
    /// hold that until there is. For them add [`when_full(WhenFull::Deny)`](Self::when_full).
    ///
    /// | around it | `seats(n)` | and `when_full(WhenFull::Deny)` |
    /// |---|---|---|
    /// | axum, hyper, tonic | n wait; the server holds all others, in order | n wait; others are denied at once |
    /// | `LoadShed`, also in axum | n wait; others are shed at once | as above |
    /// | `Buffer` | n wait; when the buffer is full too, its callers wait | as above |
    /// | a client, a loop | n wait; `ready().await` waits for a seat | as above |
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::{Global, LeakyBucket, Quota, RateLimitLayer, queue::WhenFull};
    ///
    /// let bucket = LeakyBucket::new(Quota::per_second(2)).queue(20).max_wait(Duration::from_secs(10));
    /// let layer = RateLimitLayer::new(Global, bucket).seats(100).when_full(WhenFull::Deny);
    /// # let _: axum::Router = axum::Router::new().layer(layer);
    /// ```
    pub fn seats(mut self, seats: u32) -> Self {
        self.seats = Some(Seats::new(seats));
        self
    }

    /// What becomes of requests while there is no [seat](Self::seats).
    pub fn when_full(mut self, when_full: WhenFull) -> Self {
        self.policy.when_full = when_full;
        self
    }

    fn map_keys<T>(self, change: impl FnOnce(K) -> T) -> RateLimitLayer<T, L, R> {
        RateLimitLayer {
            keys: change(self.keys),
            respond: self.respond,
            policy: self.policy,
            seats: self.seats,
            state: self.state,
        }
    }

    fn state(&self) -> &Arc<State<L>> {
        &self.state
    }
}

impl<K, L, D, H, F> RateLimitLayer<K, L, Responder<D, H, F>> {
    /// How a refused request is answered: [`HeadersOnly`](crate::respond::HeadersOnly),
    /// [`ProblemJson`](crate::ProblemJson), [`Grpc`](crate::respond::Grpc), a choice by content type
    /// ([`Auto`](crate::respond::Auto)), [`AsError`](crate::AsError), a closure, or a
    /// [`Respond`](crate::respond::Respond) of your own.
    ///
    /// ```
    /// use axum::{extract::Request, response::{IntoResponse, Response}};
    /// use http::StatusCode;
    /// use tower_throttle::{Global, Quota, RateLimitLayer, RateLimited, TokenBucket};
    ///
    /// let layer = RateLimitLayer::new(Global, TokenBucket::new(Quota::per_second(100)))
    ///     .respond(|req: &Request, denied: &RateLimited| -> Response {
    ///         (StatusCode::TOO_MANY_REQUESTS, format!("{}: {denied}", req.uri())).into_response()
    ///     });
    /// # let _: axum::Router = axum::Router::new().layer(layer);
    /// ```
    pub fn respond<T>(self, deny: T) -> RateLimitLayer<K, L, Responder<T, H, F>> {
        self.map_respond(|respond| respond.with_deny(deny))
    }

    /// Tells clients about the limit in every response, admitted or denied; see
    /// [`Headers`](crate::Headers).
    ///
    /// ```
    /// use tower_throttle::{Global, Headers, Quota, RateLimitLayer, TokenBucket};
    ///
    /// let layer = RateLimitLayer::new(Global, TokenBucket::new(Quota::per_second(100)))
    ///     .name("search")
    ///     .headers(Headers::standard());
    /// # let _: axum::Router = axum::Router::new().layer(layer);
    /// ```
    pub fn headers<T>(self, tell: T) -> RateLimitLayer<K, L, Responder<D, T, F>> {
        self.map_respond(|respond| respond.with_tell(tell))
    }

    /// Settles the cost when the response is known: to count only failures, or what a request
    /// turned out to cost.
    ///
    /// The cost is taken first, so that requests under way at the same time cannot exceed the
    /// limit together. An error of the service keeps the cost; where that is to be seen too, take
    /// [`settle_result`](Self::settle_result).
    ///
    /// ```
    /// use axum::response::Response;
    /// use tower_throttle::{ClientIp, Quota, RateLimitLayer, Settle, SlidingLog};
    ///
    /// // At most 5 failed logins a minute; successful ones count for nothing.
    /// let layer = RateLimitLayer::new(ClientIp::peer(), SlidingLog::new(Quota::per_minute(5)))
    ///     .settle(|res: &Response| if res.status().is_success() { Settle::Refund } else { Settle::Keep });
    /// # let _: axum::Router = axum::Router::new().layer(layer);
    /// ```
    pub fn settle<T>(
        self,
        settle: T,
    ) -> RateLimitLayer<K, L, Responder<D, H, SettleByResponse<T>>> {
        self.map_respond(|respond| respond.with_settle(SettleByResponse(settle)))
    }

    /// Settles the cost when it is known what came of the request, response or error: where a
    /// failure may be either, as with clients.
    ///
    /// It takes the place of [`settle`](Self::settle). The error is that of the service's answer; a
    /// service that fails before it has the request keeps the cost.
    ///
    /// ```
    /// use tower::{BoxError, Layer, service_fn};
    /// use tower_throttle::{AsError, FixedWindow, Global, Quota, RateLimitLayer, Settle};
    ///
    /// // After 10 failed calls in a minute leave the other side in peace.
    /// let layer = RateLimitLayer::new(Global, FixedWindow::new(Quota::per_minute(10)))
    ///     .settle_result(|result: &Result<u32, BoxError>| match result {
    ///         Ok(_) => Settle::Refund,
    ///         Err(_) => Settle::Keep,
    ///     })
    ///     .respond(AsError);
    /// let service = layer.layer(service_fn(async |call: u32| Ok::<u32, BoxError>(call)));
    /// # fn is_service<S: tower::Service<u32>>(_: S) {}
    /// # is_service(service);
    /// ```
    pub fn settle_result<T>(
        self,
        settle: T,
    ) -> RateLimitLayer<K, L, Responder<D, H, SettleByResult<T>>> {
        self.map_respond(|respond| respond.with_settle(SettleByResult(settle)))
    }

    fn map_respond<T>(
        self,
        change: impl FnOnce(Responder<D, H, F>) -> T,
    ) -> RateLimitLayer<K, L, T> {
        RateLimitLayer {
            keys: self.keys,
            respond: change(self.respond),
            policy: self.policy,
            seats: self.seats,
            state: self.state,
        }
    }
}

impl<S, K: Clone, L, R: Clone> Layer<S> for RateLimitLayer<K, L, R> {
    type Service = RateLimit<S, K, L, R>;

    /// Costs one reference count: frameworks call it for every route, method and connection.
    fn layer(&self, inner: S) -> Self::Service {
        RateLimit::new(
            inner,
            self.keys.clone(),
            self.respond.clone(),
            self.policy,
            self.seats.clone(),
            Arc::clone(&self.state),
        )
    }
}

/// By hand: the limiter is shared and need not be `Clone`.
impl<K: Clone, L, R: Clone> Clone for RateLimitLayer<K, L, R> {
    fn clone(&self) -> Self {
        Self {
            keys: self.keys.clone(),
            respond: self.respond.clone(),
            policy: self.policy,
            seats: self.seats.clone(),
            state: Arc::clone(&self.state),
        }
    }
}

/// By hand: closures have no `Debug`, and keys are nobody's business.
impl<K, L, R> fmt::Debug for RateLimitLayer<K, L, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer")
            .field("name", &self.state.name())
            .field("keys", &format_args!("{}", type_name::<K>()))
            .field("limiter", &format_args!("{}", type_name::<L>()))
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}
