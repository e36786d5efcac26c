//! Where plans come from.

use std::{error::Error, future::Future};

use crate::key::{Client, ExtensionKey, Secret};
use crate::quota::Plan;

/// Says which plan a key has, for a [`PerKey`](super::PerKey) limit.
///
/// A closure or function `Fn(K) -> impl Future<Output = Result<Plan, E>>` is a source.
///
/// ```
/// use std::{collections::HashMap, error::Error};
/// use tower_throttle::{FixedWindow, Quota, RateLimitLayer, store::{PerKey, Plan, PlanSource}};
///
/// /// Plans that a file has named.
/// struct Plans(HashMap<u64, Plan>);
///
/// impl PlanSource<u64> for Plans {
///     async fn plan(&self, key: &u64) -> Result<Plan, Box<dyn Error + Send + Sync>> {
///         Ok(self.0.get(key).copied().unwrap_or_default())
///     }
/// }
///
/// let plans = Plans(HashMap::from([(7, Plan::Quota(Quota::per_day(500))), (8, Plan::Blocked)]));
/// let limits = PerKey::new(FixedWindow::new(Quota::per_day(100)), plans);
/// let layer = RateLimitLayer::new(|customer: &u64| *customer, limits);
/// # let _ = layer;
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a source of plans for keys of type `{K}`",
    label = "not a source of plans",
    note = "give a closure `|key: {K}| async move {{ Ok::<Plan, Error>(..) }}`, or implement `PlanSource<{K}>`"
)]
pub trait PlanSource<K>: Send + Sync + 'static {
    /// The plan of `key`.
    ///
    /// # Errors
    /// If it cannot be found out. [`PerKeyStats::last_error`](super::PerKeyStats::last_error) is the text
    /// of the error.
    fn plan(
        &self,
        key: &K,
    ) -> impl Future<Output = Result<Plan, Box<dyn Error + Send + Sync>>> + Send;
}

impl<K, F, Asked, E> PlanSource<K> for F
where
    K: Clone + Send + Sync,
    F: Fn(K) -> Asked + Send + Sync + 'static,
    Asked: Future<Output = Result<Plan, E>> + Send,
    E: Into<Box<dyn Error + Send + Sync>>,
{
    async fn plan(&self, key: &K) -> Result<Plan, Box<dyn Error + Send + Sync>> {
        self(key.clone()).await.map_err(Into::into)
    }
}

/// A key of requests that a [`PlanSource`] of `K` can be asked about: each key as itself, and those of the
/// provided extractors as their text or their value.
///
/// ```
/// use tower_throttle::store::{PerKey, Plan};
/// use tower_throttle::{HeaderKey, Quota, RateLimitLayer, StoreError, TokenBucket};
///
/// /// Asked about the value of the header.
/// async fn plan_of(customer: String) -> Result<Plan, StoreError> {
///     Ok(if customer == "acme" { Plan::Unlimited } else { Plan::Default })
/// }
///
/// let limits = PerKey::new(TokenBucket::new(Quota::per_minute(60)), plan_of);
/// let layer = RateLimitLayer::new(HeaderKey::new("x-customer"), limits);
/// # let _ = layer;
/// ```
#[diagnostic::on_unimplemented(
    message = "the source is asked about a `{K}`, and the key of the requests is a `{Self}`",
    label = "a source for other keys",
    note = "give a source for `{Self}`, such as `|key: {Self}| async move {{ .. }}`; of `HeaderKey`, `BearerToken`, `MatchedPath` and `ClientIp` it may get a `String`"
)]
pub trait SourceKey<K> {
    /// What the source gets. `None` is for requests without the key, which have the default.
    fn source_key(&self) -> Option<K>;
}

impl<Q: ToOwned + ?Sized> SourceKey<Q::Owned> for Q {
    fn source_key(&self) -> Option<Q::Owned> {
        Some(self.to_owned())
    }
}

/// The value of a header, or a token. What is not UTF-8 in it is replaced.
impl SourceKey<String> for Secret {
    fn source_key(&self) -> Option<String> {
        let text = String::from_utf8_lossy(self.value()?);
        Some(text.into_owned())
    }
}

/// The address, or the network as `2001:db8::/64`.
impl SourceKey<String> for Client {
    fn source_key(&self) -> Option<String> {
        (*self != Self::UNKNOWN).then(|| self.to_string())
    }
}

#[cfg(feature = "axum")]
impl SourceKey<String> for crate::key::Route {
    fn source_key(&self) -> Option<String> {
        self.path().map(str::to_owned)
    }
}

impl<T: Clone> SourceKey<T> for ExtensionKey<T> {
    fn source_key(&self) -> Option<T> {
        self.value().cloned()
    }
}
