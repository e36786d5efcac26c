//! Limiters in stores that decide on each key under a quota of its own.

use std::{future::Future, sync::Arc};

use super::RemoteKey;
use crate::algorithm::Algorithm;
use crate::backend::Op;
use crate::decision::Decision;
use crate::error::{ConfigError, StoreError};
use crate::quota::Quota;

/// A limiter in a store that can decide on each key under a quota of its own, for
/// [`PerKey::over`](crate::store::PerKey::over): a limiter of Redis, and [`Cas`](crate::store::cas::Cas).
///
/// A program that may use either of them names the trait:
///
/// ```
/// use tower_throttle::store::{IntoBackend, PerKey, Plan, cas::{Cas, MemoryStore}, remote::QuotaPerKey};
/// use tower_throttle::{Quota, StoreError, TokenBucket};
///
/// fn per_customer(limiter: impl QuotaPerKey) -> impl IntoBackend {
///     PerKey::over(limiter, |customer: u64| async move {
///         let large = Plan::Quota(Quota::per_minute(6_000));
///         Ok::<_, StoreError>(if customer < 100 { large } else { Plan::Default })
///     })
/// }
///
/// let bucket = TokenBucket::new(Quota::per_minute(60));
/// let limits = per_customer(Cas::new(MemoryStore::new(), "plans", bucket));
/// # let _ = limits;
/// ```
///
/// A fleet divides one quota into budgets, so it is none:
///
/// ```compile_fail
/// use tower_throttle::{Quota, StoreError, TokenBucket};
/// use tower_throttle::store::{PerKey, Plan, cas::MemoryStore, fleet::Synced};
///
/// let fleet = Synced::new(MemoryStore::new(), "api", TokenBucket::new(Quota::per_second(10)));
/// let plan = |_: u64| async { Ok::<_, StoreError>(Plan::Default) };
/// let limit = PerKey::over(fleet, plan);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` has one quota for all keys: give `PerKey::over` a limiter of Redis or a `Cas`",
    label = "takes no quota per key",
    note = "a fleet (`Synced`, `Leased`) divides one quota into budgets"
)]
pub trait QuotaPerKey: Clone + Send + Sync + Unpin + 'static {
    /// The algorithm, which is the same for all keys.
    type Algorithm: Algorithm;
    /// The decision on a request.
    type Decision: Future<Output = Result<Decision, StoreError>> + Send + Unpin + 'static;

    /// The algorithm, with the quota of keys that have none of their own.
    fn algorithm(&self) -> Self::Algorithm;

    /// The algorithm with another quota, with parameters that the store can represent.
    ///
    /// # Errors
    /// If the algorithm, or the store, cannot have it.
    fn with_key_quota(
        algorithm: &Self::Algorithm,
        quota: Quota,
    ) -> Result<Self::Algorithm, ConfigError> {
        algorithm.with_quota(quota)
    }

    /// The name of a key in the store.
    fn key_name<K: RemoteKey + ?Sized>(&self, key: &K) -> String;

    /// Applies `op` to the key with this name, under the quota of `algorithm`.
    fn apply_under(&self, algorithm: &Arc<Self::Algorithm>, key: String, op: Op) -> Self::Decision;
}
