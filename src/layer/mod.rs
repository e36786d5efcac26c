//! The tower layer: it checks a limit before each request.

mod all_of;
mod answers;
mod at_rate;
mod cost_at_end;
mod counts;
mod future;
mod gate;
mod handle;
mod limit_of;
mod mistakes;
mod options;
mod rate;
mod service;
mod settings;
mod signals;
mod state;
mod ticket;
mod top_keys;

pub use self::{
    all_of::{AllOf, AndKeys, KeyPair},
    counts::Counts,
    future::ResponseFuture,
    handle::Handle,
    rate::Rate,
    service::Limit,
    top_keys::TopKeys,
};
/// What layers are made of, for who names the type of a layer in full. There is nothing to implement or to call.
pub mod parts {
    pub use super::{
        all_of::AllEntry,
        at_rate::RateEntry,
        gate::{Exit, Gate, Limiting},
        state::{Shared, State},
    };
}

#[cfg(feature = "policies")]
pub(crate) use self::all_of::{AllEntry, GatePart, PartAsk, Parts};
pub(crate) use self::{
    gate::{Ask, AtGate, Enter, Entering, Exit, Gate, Limiting, Look, Progress, Told, rename},
    options::OnStoreError,
    signals::set_gauges,
    state::State,
};
use std::{
    any::{TypeId, type_name},
    fmt,
    sync::Arc,
    time::Duration,
};

use tower_layer::Layer;

use self::options::LayerOptions;
use crate::backend::IntoBackend;
use crate::error::{ConfigError, expect_valid};
use crate::key::Global;
use crate::queue::{Order, SeatAcquire, Seats};
use crate::respond::Responder;

/// Limits the requests to a service: by a key, with a limit, and an answer to denied requests.
///
/// # When a request passes
/// 1. The key extractor finds the key of the request. If there is none, the extractor says whether the
///    request is rejected or passes without a limit.
/// 2. The limit decides for the key and takes the cost of the request, 1 unless
///    [`cost`](Self::cost) says otherwise.
/// 3. An admitted request goes to the service. With [`share_decision`](Self::share_decision), the
///    service finds the [`Decision`](crate::Decision) in the request's extensions.
/// 4. A request that has to wait gets a place in line and goes to the service when its turn comes.
///    Until then it does not occupy the service.
/// 5. A denied request gets its response at once. The service is not called, and the body is not read.
///
/// # What a denied request gets
/// In HTTP, 429 with `Retry-After`; a gRPC request gets a gRPC status with the same.
/// [`respond`](Self::respond) sets another answer. A service that is not HTTP returns an error: add
/// `.respond(AsError)`.
///
/// # Sharing
/// The state belongs to the layer. Its clones and all services that it makes share the state, so all
/// routes, methods and connections that one layer is added to share its limit. For separate limits
/// make separate layers. The settings of a clone are its own: it can have another name, answer
/// differently or be in shadow mode.
///
/// ```
/// use axum::{Router, body::Body, extract::Request, routing::get};
/// use http::StatusCode;
/// use tower::ServiceExt;
/// use tower_throttle::{ClientIp, Quota, RateLimitLayer, TokenBucket, key::PeerAddr};
///
/// async fn search() -> &'static str {
///     "found"
/// }
///
/// let limit = RateLimitLayer::new(ClientIp::peer(), TokenBucket::new(Quota::per_minute(10).burst(2)));
/// let app: Router = Router::new().route("/search", get(search).layer(limit));
///
/// // A test asks the router. A server is
/// // `axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>())`.
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn ask(app: Router) {
/// for expected in [StatusCode::OK, StatusCode::OK, StatusCode::TOO_MANY_REQUESTS] {
///     let mut request = Request::get("/search").body(Body::empty()).unwrap();
///     request.extensions_mut().insert(PeerAddr(([192, 0, 2, 7], 4711).into()));
///     let response = app.clone().oneshot(request).await.unwrap();
///     assert_eq!(response.status(), expected);
/// }
/// # }
/// # ask(app);
/// ```
///
/// # Naming the type
/// `L` is what decides: a [`Local`](crate::Local) of an algorithm, whether [`new`](Self::new) was given that or the
/// algorithm alone, or the limiter of a store. Each setting that takes a closure or another type changes the type of the layer:
///
/// ```
/// use tower_throttle::{AsError, ClientIp, Global, Local, Quota, RateLimit, RateLimitLayer, TokenBucket, respond::Responder};
///
/// struct Limits {
///     clients: RateLimitLayer<ClientIp, Local<TokenBucket>>,
///     /// One limit for all requests, with errors as answers.
///     total: RateLimitLayer<Global, Local<TokenBucket>, Responder<AsError>>,
/// }
///
/// /// A service of type `S` with that limit.
/// type Limited<S> = RateLimit<S, Global, Local<TokenBucket>, Responder<AsError>>;
///
/// # use tower::Layer;
/// let bucket = || TokenBucket::new(Quota::per_second(10));
/// let limits = Limits {
///     clients: RateLimitLayer::new(ClientIp::peer(), bucket()),
///     total: RateLimitLayer::new(Global, bucket()).respond(AsError),
/// };
/// let service: Limited<()> = limits.total.layer(());
/// # assert_eq!(limits.clients.handle().counts().admitted, 0);
/// # drop(service);
/// ```
///
/// A closure has no name. Use a function pointer, `fn(&Request) -> u64`, or [`Layer`] as a bound.
pub type RateLimitLayer<K, L, R = Responder> = LimitLayer<K, Rate<L>, R>;

/// A service whose requests are limited by a [`RateLimitLayer`].
pub type RateLimit<S, K, L, R = Responder> = Limit<S, K, Rate<L>, R>;

/// The layer of every limit: a [`RateLimitLayer`] or a
/// [`ConcurrencyLimitLayer`](crate::ConcurrencyLimitLayer), which say how requests pass.
///
/// `K` finds the key of a request, the gate `G` decides, and `R` answers. The settings here are those of
/// all limits.
#[must_use = "a layer does nothing until it is added to a service"]
#[derive(Clone)]
pub struct LimitLayer<K, G, R = Responder> {
    keys: K,
    respond: R,
    options: LayerOptions,
    seats: Option<Arc<Seats>>,
    /// Shared: each request that waits holds it.
    gate: Arc<G>,
}

impl<K, G> LimitLayer<K, G> {
    pub(crate) fn of(keys: K, gate: G) -> Self {
        Self {
            keys,
            respond: Responder::default(),
            options: LayerOptions::default(),
            seats: None,
            gate: Arc::new(gate),
        }
    }
}

impl<K, G: Clone, R> LimitLayer<K, G, R> {
    pub(crate) fn gate(&self) -> &G {
        &self.gate
    }

    /// The same layer with a setting of its gate changed.
    pub(crate) fn with_gate(mut self, change: impl FnOnce(&mut G)) -> Self {
        change(Arc::make_mut(&mut self.gate));
        self
    }

    /// The same layer with another gate.
    pub(crate) fn map_gate<T>(self, change: impl FnOnce(G) -> T) -> LimitLayer<K, T, R> {
        self.map(|keys, gate, respond| (keys, change(gate), respond))
    }

    /// The same layer made of other parts.
    fn map<T, H, Q>(self, change: impl FnOnce(K, G, R) -> (T, H, Q)) -> LimitLayer<T, H, Q> {
        let gate = Arc::unwrap_or_clone(self.gate);
        let (keys, gate, respond) = change(self.keys, gate, self.respond);
        LimitLayer {
            keys,
            respond,
            options: self.options,
            seats: self.seats,
            gate: Arc::new(gate),
        }
    }
}

impl<K, G: Limiting, R> LimitLayer<K, G, R> {
    /// Adds a limit, of any kind and by any key: a request passes if both limits admit it, and is
    /// counted by neither if one denies it. See [`AllOf`].
    ///
    /// This is the difference to two layers, one inside the other: there the outer one counts what the
    /// inner one denies.
    ///
    /// What is set before `and` applies to the limit that it is set on: its [`skip`](Self::skip),
    /// [`cost`](Self::cost), [`priority`](Self::priority) and [`shadow`](Self::shadow). What is set
    /// afterwards applies to all limits. Answers are those of this layer: `headers` and `respond` are set on it, and not on
    /// `other`, which would not compile. [`headers`](Self::headers) state the strictest limit, or the one that denied.
    /// Each limit has a [`name`](Self::name), a
    /// [handle](crate::Handle::first) and counts of its own; those that have none are named by number,
    /// `default-1`, `default-2`.
    ///
    /// ```
    /// use axum::{Router, routing::get};
    /// use tower_throttle::{ClientIp, ConcurrencyLimitLayer, Global, Quota, RateLimitLayer, TokenBucket};
    ///
    /// let per_client = TokenBucket::new(Quota::per_second(10));
    /// let total = TokenBucket::new(Quota::per_second(1_000));
    /// let layer = RateLimitLayer::new(ClientIp::peer(), per_client)
    ///     .name("client")
    ///     .and(RateLimitLayer::new(Global, total).name("total"))
    ///     .and(ConcurrencyLimitLayer::new(Global, 100).name("busy"));
    /// let app: Router = Router::new().route("/", get(|| async {}).layer(layer));
    /// ```
    pub fn and<T, H: Limiting>(
        self,
        other: LimitLayer<T, H>,
    ) -> LimitLayer<AndKeys<K, T>, AllOf<(G, H)>, R> {
        let (first, second) = (self.options, other.options);
        let gate = AllOf::of_both(self.gate, other.gate);
        let (a, b) = &*gate.state().backend;
        LimitLayer {
            keys: AndKeys {
                first: (self.keys, first, a.state().without_backend()),
                second: (other.keys, second, b.state().without_backend()),
            },
            respond: self.respond,
            options: LayerOptions {
                shadow: false,
                silent: false,
                share_decision: first.share_decision || second.share_decision,
                shares_cost: first.shares_cost || second.shares_cost,
                deny_when_full: match &self.seats {
                    Some(_) => first.deny_when_full,
                    None => second.deny_when_full,
                },
            },
            seats: self.seats.or(other.seats),
            gate: Arc::new(gate),
        }
    }
}

impl<K: 'static, L> RateLimitLayer<K, L> {
    /// Creates a layer that finds the key of a request with `keys` and decides with `limiter`.
    ///
    /// `keys` is [`Global`], an extractor such as [`ClientIp`](crate::ClientIp), or a
    /// closure `Fn(&Req) -> T` that returns a key, or a `Result` of one; see
    /// [`KeyExtractor`](crate::key::KeyExtractor). `limiter` is an algorithm or a tuple of algorithms
    /// (in this process), or a limiter of a store.
    ///
    /// ```
    /// use axum::{Router, extract::Request, routing::get};
    /// use http::StatusCode;
    /// use tower_throttle::{Quota, RateLimitLayer, SlidingLog};
    ///
    /// // With an `Option`, all requests without the header would share one limit.
    /// let per_tenant = RateLimitLayer::new(
    ///     |req: &Request| req.headers().get("tenant").cloned().ok_or(StatusCode::BAD_REQUEST),
    ///     SlidingLog::new(Quota::per_minute(5)),
    /// );
    /// let app: Router = Router::new().route("/", get(|| async {})).layer(per_tenant);
    /// ```
    ///
    /// # Panics
    /// If a setting of an algorithm is invalid or has no effect.
    #[track_caller]
    pub fn new<T: IntoBackend<Backend = L>>(keys: K, limiter: T) -> Self {
        let backend = if TypeId::of::<K>() == TypeId::of::<Global>() {
            limiter.into_single_key_backend()
        } else {
            limiter.into_backend()
        };
        Self::of(keys, Rate::new::<T>(backend))
    }
}

impl<K, L: Send + Sync + 'static, R> RateLimitLayer<K, L, R> {
    /// Denies requests while the backend cannot decide, as when its server is down; in HTTP with 503. Unless set they
    /// pass, unlimited.
    ///
    /// This is about outages. An error that does not go away by itself, such as a wrong password, denies
    /// requests either way: otherwise the limit would be off without being noticed.
    pub fn deny_on_store_error(self) -> Self {
        self.with_gate(|rate| rate.on_store_error = OnStoreError::Deny)
    }

    /// Lets requests wait instead of being denied, at most `most` of each key at a time. They hold nothing of the
    /// limit: the first one takes its cost when its time has come.
    ///
    /// Any limit in this process can have a line. A [`LeakyBucket`](crate::LeakyBucket) with a burst of 1 spaces
    /// requests evenly; a window lets them go on when it begins. Who takes from the same limit outside of the
    /// layer delays the line.
    ///
    /// A limit on a server, or one that [counts denials](crate::Lockout::after_denials_of), books the turn of each
    /// request when it comes, if it is a bucket, a [`WarmUp`](crate::WarmUp), or a set with one of these. At most `most`
    /// units of cost have turns that have not come.
    ///
    /// ```
    /// use std::time::Duration;
    /// use axum::{Router, routing::get};
    /// use tower_throttle::{Global, Quota, RateLimitLayer, SlidingWindow};
    ///
    /// let limit = SlidingWindow::new(Quota::per_second(100));
    /// let layer = RateLimitLayer::new(Global, limit).queue(20).max_wait(Duration::from_millis(500));
    /// let app: Router = Router::new().route("/", get(|| async {})).layer(layer);
    /// ```
    ///
    /// # Panics
    /// If the limit books no turns and does not decide in this process: the setting would have no effect.
    #[track_caller]
    pub fn queue(self, most: u32) -> Self {
        let what = "`queue` for a limit without turns that counts denials or does not decide in this process";
        let instead = "use a `LeakyBucket`, `TokenBucket` or `WarmUp`, or leave it out";
        let error = || ConfigError::unsupported(what, instead);
        expect_valid(self.gate().can_queue.then_some(()).ok_or_else(error));
        self.with_gate(|rate| rate.line.queue = most)
    }

    /// Denies a request at once that would wait for longer in line, and one that others overtake when it has waited
    /// for so long. So does the timeout of a client, as `grpc-timeout`.
    ///
    /// # Panics
    /// If the limit has no [line](Self::queue): it would have no effect.
    #[track_caller]
    pub fn max_wait(self, max_wait: Duration) -> Self {
        expect_queue("`max_wait` without a queue", self.gate().queues());
        self.with_gate(|rate| rate.line.set_max_wait(max_wait))
    }

    /// Lets only requests of at least this [priority](Self::priority) wait. Others are denied where they would
    /// have to, also while more important ones wait.
    ///
    /// ```
    /// use axum::extract::Request;
    /// use tower_throttle::{Global, Quota, RateLimitLayer, SlidingWindow};
    ///
    /// let layer = RateLimitLayer::new(Global, SlidingWindow::new(Quota::per_second(100)))
    ///     .queue(20)
    ///     .queue_for(100)
    ///     .priority(|request: &Request| match request.uri().path() {
    ///         "/checkout" => 100,
    ///         _ => 80,
    ///     });
    /// # drop(layer);
    /// ```
    ///
    /// # Panics
    /// If the limit has no [line](Self::queue): it would have no effect.
    #[track_caller]
    pub fn queue_for(self, least: u8) -> Self {
        expect_queue("`queue_for` without a queue", self.gate().queues());
        self.with_gate(|rate| rate.line.least = Some(least))
    }

    /// Of the requests that wait for one key, the newest goes on first, not the oldest. If the line is full, a new request
    /// takes the place of the request that would go last, which is denied: under overload this serves the clients that
    /// have not given up yet.
    ///
    /// ```
    /// use axum::{Router, routing::get};
    /// use tower_throttle::{Global, LeakyBucket, Quota, RateLimitLayer};
    ///
    /// // Under overload the newest requests are served, and the oldest are denied.
    /// let bucket = LeakyBucket::new(Quota::per_second(100).burst(1));
    /// let layer = RateLimitLayer::new(Global, bucket).queue(200).newest_first();
    /// let app: Router = Router::new().route("/", get(|| async {})).layer(layer);
    /// ```
    ///
    /// Needs a limit in this process: a server does not know which request waits where.
    ///
    /// # Panics
    /// If the limit has no queue: it would have no effect.
    #[track_caller]
    pub fn newest_first(self) -> Self {
        expect_queue("`newest_first` without a queue", self.gate().has_line());
        self.with_gate(|rate| rate.line.order = Order::Newest)
    }

    /// Spreads the times at which denied clients come back: each is told a wait that is up to `percent` longer
    /// than the exact one, never shorter.
    ///
    /// Without it all clients that a window has denied come back at once when the next one begins. The same
    /// time is in `Retry-After`, in the [`headers`](LimitLayer::headers) of the denial, in its text and in the
    /// `RetryInfo` of gRPC. It is spread evenly: of any five clients in a row no two are told times that are
    /// closer than a seventh of the span. In whole seconds, as in `Retry-After`, they differ only if the span is
    /// longer than a second.
    ///
    /// ```
    /// use axum::{Router, body::Body, extract::Request, routing::get};
    /// use tower::ServiceExt;
    /// use tower_throttle::{FixedWindow, Global, Quota, RateLimitLayer};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// // The next day begins in up to 86,400 s; clients come back within a tenth of that after it.
    /// let layer = RateLimitLayer::new(Global, FixedWindow::new(Quota::per_day(1))).jitter(10);
    /// let app: Router = Router::new().route("/", get(|| async {})).layer(layer);
    /// let mut told = Vec::new();
    /// for _ in 0..6 {
    ///     let response = app.clone().oneshot(Request::new(Body::empty())).await.unwrap();
    ///     told.extend(response.headers().get("retry-after").cloned());
    /// }
    /// assert_eq!(told.len(), 5);
    /// # }
    /// ```
    ///
    /// # Panics
    /// If it is 0 or more than 100.
    #[track_caller]
    pub fn jitter(self, percent: u8) -> Self {
        let is_valid = (1..=100).contains(&percent).then_some(percent);
        let error = || ConfigError::out_of_range("jitter", percent, "1 to 100");
        let percent = expect_valid(is_valid.ok_or_else(error));
        self.with_gate(|rate| rate.jitter = percent.into())
    }
}

/// # Panics
/// A setting of the line of a limit that has none.
#[track_caller]
pub(crate) fn expect_queue(what: &'static str, has_queue: bool) {
    let instead = "give the limit a queue first, or leave this out";
    let error = || ConfigError::unsupported(what, instead);
    expect_valid(has_queue.then_some(()).ok_or_else(error));
}

impl<S, K: Clone, G: Limiting, R: Clone> Layer<S> for LimitLayer<K, G, R> {
    type Service = Limit<S, K, G, R>;

    /// Cheap, because frameworks call it for every route, method and connection: it shares the state.
    fn layer(&self, inner: S) -> Self::Service {
        Limit {
            inner,
            seat: SeatAcquire::new(self.seats.clone()),
            layer: self.clone(),
        }
    }
}

/// Manual impl: closures are not `Debug`, and keys must not be logged.
impl<K, G: Limiting + fmt::Debug, R> fmt::Debug for LimitLayer<K, G, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(G::LAYER)
            .field("name", &self.gate.state().name())
            .field("keys", &format_args!("{}", type_name::<K>()))
            .field("gate", &self.gate)
            .field("options", &self.options)
            .field("seats", &self.seats)
            .finish_non_exhaustive()
    }
}
