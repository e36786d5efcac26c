//! Where quotas come from.

use std::{error::Error, future::Future};

use crate::quota::Quota;

/// Says which quota a key has, for a [`PerKey`](super::PerKey) limit.
///
/// A closure or function `Fn(K) -> impl Future<Output = Result<Option<Quota>, E>>` is a source. `None` is a
/// key without a quota of its own: it gets the default.
///
/// ```
/// use std::{collections::HashMap, error::Error};
/// use tower_throttle::{FixedWindow, Quota, RateLimitLayer, store::{PerKey, QuotaSource}};
///
/// /// Plans that a file has named.
/// struct Plans(HashMap<u64, Quota>);
///
/// impl QuotaSource<u64> for Plans {
///     async fn quota(&self, key: &u64) -> Result<Option<Quota>, Box<dyn Error + Send + Sync>> {
///         Ok(self.0.get(key).copied())
///     }
/// }
///
/// let plans = Plans(HashMap::from([(7, Quota::per_day(500))]));
/// let limits = PerKey::new(FixedWindow::new(Quota::per_day(100)), plans);
/// let layer = RateLimitLayer::new(|customer: &u64| *customer, limits);
/// # let _ = layer;
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a source of quotas for keys of type `{K}`",
    label = "not a source of quotas",
    note = "give a closure `|key: {K}| async move {{ Ok::<Option<Quota>, Error>(..) }}`, or implement `QuotaSource<{K}>`"
)]
pub trait QuotaSource<K>: Send + Sync + 'static {
    /// The quota of `key`, or `None` if it has none of its own.
    ///
    /// # Errors
    /// If it cannot be found out. [`PerKeyStats::last_error`](super::PerKeyStats::last_error) is the text
    /// of the error.
    fn quota(
        &self,
        key: &K,
    ) -> impl Future<Output = Result<Option<Quota>, Box<dyn Error + Send + Sync>>> + Send;
}

impl<K, F, Asked, E> QuotaSource<K> for F
where
    K: Clone + Send + Sync,
    F: Fn(K) -> Asked + Send + Sync + 'static,
    Asked: Future<Output = Result<Option<Quota>, E>> + Send,
    E: Into<Box<dyn Error + Send + Sync>>,
{
    async fn quota(&self, key: &K) -> Result<Option<Quota>, Box<dyn Error + Send + Sync>> {
        self(key.clone()).await.map_err(Into::into)
    }
}
