//! A client that keeps to the limits that its servers state.
//!
//! A [`PacerLayer`] around an HTTP client (hyper, a channel of tonic, reqwest) reads what each response says
//! about the limits of the server, and sends the following requests so that the server need not deny them:
//!
//! - **Spaced**: as long as more than half of a limit remains, requests are sent at once. Then they are spaced
//!   over the time until it resets. If nothing remains, they wait for the reset.
//! - **Never before the time that the server said**: after a denial (429, 503 with `Retry-After`, a gRPC
//!   status that says when to retry), no request is sent until then. A denial that says nothing counts as one
//!   second, twice as much each time in a row. If the server states no limit at all, requests are then spaced by
//!   what its denials show.
//! - **Spread**: after a denial, or if nothing remains, it waits up to a tenth longer than it has to, and each
//!   client another part of that ([`jitter`](PacerLayer::jitter)), so that clients do not come back together.
//! - **One first**: if nothing is known of a server, or its limit has just reset, one request is sent, and the
//!   others wait for its response, for at most a second.
//! - **In line**: requests wait in order, at most [`queue`](PacerLayer::queue) per key for at most
//!   [`max_wait`](PacerLayer::max_wait). Beyond that they are an error, [`RateLimited`](crate::RateLimited),
//!   which says until when.
//! - **Retried** only if [`retry`](PacerLayer::retry) says which, and within a budget.
//!
//! | read | forms |
//! |---|---|
//! | `RateLimit`, `RateLimit-Policy` | drafts 7 to 11 |
//! | `RateLimit-Limit`, `-Remaining`, `-Reset` | drafts 0 to 6 |
//! | `X-RateLimit-Limit`, `-Remaining`, `-Reset` | the reset in seconds, or since 1970 in seconds or milliseconds |
//! | `Retry-After` | seconds, or a date |
//! | `grpc-retry-pushback-ms` | milliseconds; anything else means that there is no retry |
//!
//! Dates are compared with the `Date` of the response, so a clock that is wrong does no harm. What cannot be
//! read is ignored, and responses are never changed.
//!
//! ```
//! use http::{Request, Response, StatusCode};
//! use tower::{BoxError, Service, ServiceBuilder, ServiceExt, service_fn};
//! use tower_throttle::client::{Host, Idempotent, PacerLayer};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), BoxError> {
//! // A server that denies the first request.
//! let mut denials = 1;
//! let server = service_fn(move |_: Request<()>| {
//!     let response = Response::builder();
//!     let response = if denials > 0 {
//!         response.status(StatusCode::TOO_MANY_REQUESTS).header("retry-after", "1")
//!     } else {
//!         response.header("ratelimit", r#""default";r=9;t=10"#)
//!     };
//!     denials = 0;
//!     std::future::ready(response.body(()).map_err(BoxError::from))
//! });
//! let mut client = ServiceBuilder::new()
//!     .layer(PacerLayer::new(Host).retry(Idempotent))
//!     .service(server);
//!
//! let request = Request::get("https://api.example/items").body(())?;
//! // It is sent again after a second.
//! let response = client.ready().await?.call(request).await?;
//! assert_eq!(response.status(), StatusCode::OK);
//! # Ok(())
//! # }
//! ```

mod feedback;
mod host;
mod replay;
mod server;
mod service;
mod table;

pub use self::{host::Host, replay::Idempotent, service::Pacer};

use std::{hash::RandomState, sync::Arc, time::Duration};

use tower_layer::Layer;

use self::table::{PacerSettings, ServerTable};
use crate::error::{ConfigError, expect_valid};
use crate::sync::Mutex;

/// Paces the requests of a client by what its servers say about their limits.
///
/// `K` finds the key of a request, one per server or account whose limit is shared: [`Host`],
/// [`Global`](crate::Global), or any [`KeyExtractor`](crate::key::KeyExtractor). Clones of a layer, and all
/// services that it makes, share what is known.
///
/// The error of the client needs `From<RateLimited>`, for requests that are not sent.
/// `tower::BoxError` has it: put `.map_err(BoxError::from)` below this layer.
///
/// ```
/// use std::time::Duration;
///
/// use tower_throttle::client::{Host, Idempotent, PacerLayer};
///
/// let layer = PacerLayer::new(Host)
///     .queue(20)
///     .max_wait(Duration::from_secs(10))
///     .retry(Idempotent);
/// # let _ = layer;
/// ```
#[must_use = "a layer does nothing until it is added to a service"]
#[derive(Clone, Debug)]
pub struct PacerLayer<K, R = ()> {
    keys: K,
    replay: R,
    settings: PacerSettings,
    table: Arc<Mutex<ServerTable>>,
    /// With seeds of the operating system, so that nothing chosen collides.
    hasher: RandomState,
}

impl<K> PacerLayer<K> {
    /// Paces requests by the key that `keys` finds: up to 100 wait for up to 30 s, the server is believed
    /// for an hour, and nothing is retried. Of the keys that no request uses, the 1,024 used last are known, those
    /// that are blocked first.
    pub fn new(keys: K) -> Self {
        let settings = PacerSettings {
            queue: 100,
            max_wait: Duration::from_secs(30),
            jitter: 10,
            retry_percent: 20,
            retry_reserve: 10,
        };
        Self {
            keys,
            replay: (),
            settings,
            table: Arc::default(),
            hasher: RandomState::new(),
        }
    }
}

impl<K, R> PacerLayer<K, R> {
    /// How many requests of one key may wait. With 0 none does.
    pub const fn queue(mut self, requests: usize) -> Self {
        self.settings.queue = requests;
        self
    }

    /// How long a request may wait, retries included. One whose turn would come later is refused at once.
    pub const fn max_wait(mut self, max_wait: Duration) -> Self {
        self.settings.max_wait = max_wait;
        self
    }

    /// How much longer than it has to the client waits after a denial, or for a reset if nothing remains: up to
    /// `percent` of the time; 10 unless set, and with 0 no longer.
    ///
    /// Without it all clients that a server tells the same moment come back in the same millisecond. Each layer
    /// takes another part of the time.
    ///
    /// # Panics
    /// If it is more than 100.
    #[track_caller]
    pub fn jitter(mut self, percent: u32) -> Self {
        let is_valid = (percent <= 100).then_some(percent);
        let error = || ConfigError::out_of_range("jitter", percent, "0 to 100");
        self.settings.jitter = expect_valid(is_valid.ok_or_else(error));
        self
    }

    /// Sends requests of which `replay` makes a copy again after a denial, when the server allows it, within
    /// [`max_wait`](Self::max_wait) and [`retry_budget`](Self::retry_budget). If not, the denial is returned.
    ///
    /// [`Idempotent`] is for requests with a body that is `Clone`; a closure `|request: &Req| -> Option<Req>`
    /// chooses:
    ///
    /// ```
    /// use http::Request;
    /// use tower_throttle::client::{Host, PacerLayer};
    ///
    /// // Searches are safe to repeat, although they are `POST`.
    /// let searches = |request: &Request<String>| (request.uri().path() == "/search").then(|| request.clone());
    /// let layer = PacerLayer::new(Host).retry(searches);
    /// # let _ = layer;
    /// ```
    pub fn retry<T>(self, replay: T) -> PacerLayer<K, T> {
        PacerLayer {
            keys: self.keys,
            replay,
            settings: self.settings,
            table: self.table,
            hasher: self.hasher,
        }
    }

    /// Retries are at most `percent` of all requests, and `reserve` more; 20 % and 10 unless set.
    ///
    /// Without a bound, the requests that are denied by a server under load would double its load.
    pub const fn retry_budget(mut self, percent: u32, reserve: u32) -> Self {
        self.settings.retry_percent = percent as u64;
        self.settings.retry_reserve = reserve as u64;
        self
    }
}

impl<S, K: Clone, R: Clone> Layer<S> for PacerLayer<K, R> {
    type Service = Pacer<S, K, R>;

    fn layer(&self, inner: S) -> Self::Service {
        let layer = self.clone();
        Pacer { inner, layer }
    }
}
