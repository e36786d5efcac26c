//! A handler says what its request has cost.

use std::{fmt, sync::Arc};

use super::Settle;

/// Says what a request has really cost, when that is known only while it is served: the tokens of a
/// language model, the bytes or rows of an answer.
///
/// A rate limit with [`settle(AtEnd)`](crate::RateLimitLayer::settle) stores it in the extensions of each
/// HTTP request that it passes on to the service. Clones say the cost of the same request: move one into
/// the stream that makes the response body. The cost is settled when the last one is dropped. Without it, as for a skipped request, `unwrap_or_default` is
/// a handle of no limit, to which anything can be said.
///
/// ```
/// use axum::{Extension, Router, body::{Body, to_bytes}, extract::Request, routing::get};
/// use http_body_util::BodyExt;
/// use tower::ServiceExt;
/// use tower_throttle::{Global, Quota, RateLimitLayer, TokenBucket, respond::{AtEnd, CostHandle}};
///
/// async fn complete(Extension(cost): Extension<CostHandle>) -> Body {
///     Body::new(Body::from("to be").map_frame(move |frame| {
///         cost.add(6);
///         frame
///     }))
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let limit = RateLimitLayer::new(Global, TokenBucket::new(Quota::per_day(100)))
///     .cost(|_: &Request| 20)
///     .settle(AtEnd);
/// let handle = limit.handle();
/// let app: Router = Router::new().route("/", get(complete)).layer(limit);
/// let response = app.oneshot(Request::new(Body::empty())).await.unwrap();
/// assert_eq!(handle.peek_now(&(), 0).remaining(), 80);
/// to_bytes(response.into_body(), 100).await.unwrap();
/// assert_eq!(handle.peek_now(&(), 0).remaining(), 94);
/// # }
/// ```
#[derive(Clone, Default)]
pub struct CostHandle(Vec<Arc<dyn CostMeter>>);

/// What one limit is told of one request.
pub(crate) trait CostMeter: Send + Sync {
    /// The name of the limit.
    fn name(&self) -> &str;

    /// Changes what was said. Does nothing once the cost is settled.
    fn say(&self, change: &dyn Fn(u64) -> u64);

    /// Settles the cost, once: by `settle`, else by what was said. If nothing was, it stays.
    fn end(&self, settle: Option<Settle>);
}

impl CostHandle {
    pub(crate) fn new(meter: Arc<dyn CostMeter>) -> Self {
        Self(vec![meter])
    }

    /// A handle of these limits and of those of `other`.
    pub(crate) fn and(mut self, other: Option<Self>) -> Self {
        self.0.extend(other.into_iter().flat_map(|other| other.0));
        self
    }

    /// The request costs `cost` in all, in place of the estimate and of what was said before.
    pub fn set(&self, cost: u64) {
        self.each(|meter| meter.say(&|_| cost));
    }

    /// The request costs `cost` more than was said before. The first `add` or `set` replaces the estimate.
    pub fn add(&self, cost: u64) {
        self.each(|meter| meter.say(&|said| said.saturating_add(cost)));
    }

    /// Settles the cost now, and not only when the last handle is dropped. What is said later changes nothing.
    pub fn commit(&self) {
        self.each(|meter| meter.end(None));
    }

    pub(crate) fn settle(&self, settle: Settle) {
        if settle != Settle::Keep {
            self.each(|meter| meter.end(Some(settle)));
        }
    }

    /// The handle of one of several limits, by the [name](crate::RateLimitLayer::name) that its layer
    /// has. Without it, what is said concerns all limits that learn the cost at the end: those of one
    /// layer, and of layers around it. `None` if none of them has that name.
    ///
    /// ```
    /// use tower_throttle::respond::CostHandle;
    ///
    /// fn served(cost: &CostHandle, tokens: u64, bytes: u64) {
    ///     for (limit, units) in [("tokens", tokens), ("bytes", bytes)] {
    ///         if let Some(limit) = cost.of(limit) {
    ///             limit.set(units);
    ///         }
    ///     }
    /// }
    /// # served(&CostHandle::default(), 1, 2);
    /// ```
    pub fn of(&self, name: &str) -> Option<Self> {
        let named = self.0.iter().filter(|meter| meter.name() == name);
        let named: Vec<_> = named.cloned().collect();
        (!named.is_empty()).then_some(Self(named))
    }

    fn each(&self, run: impl Fn(&dyn CostMeter)) {
        self.0.iter().for_each(|meter| run(&**meter));
    }
}

/// Manual impl: the key of the request is not shown.
impl fmt::Debug for CostHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set()
            .entries(self.0.iter().map(|meter| meter.name()))
            .finish()
    }
}
