//! Limits that can decide on each key under a quota of its own.

use crate::algorithm::Algorithm;
use crate::backend::IntoBackend;
use crate::error::ConfigError;
use crate::quota::Quota;
use crate::store::any::AnyLimit;

/// Makes a limit under another quota, or under its own for `None`. All of them decide on the same states.
pub(crate) type UnderQuota<K> =
    Box<dyn Fn(Option<Quota>) -> Result<AnyLimit<K>, ConfigError> + Send + Sync>;

/// A limit that can decide on each key under a quota of its own, for [`Quotas`](super::Quotas): an algorithm, a
/// [`Local`](crate::Local), a limiter of Redis and a [`Cas`](crate::store::cas::Cas).
///
/// A program that may use any of them names the trait:
///
/// ```
/// use tower_throttle::store::{Plan, QuotaPerKey, Quotas};
/// use tower_throttle::{Quota, TokenBucket};
///
/// fn per_customer(limit: impl QuotaPerKey<u64>) -> Quotas<u64> {
///     Quotas::new(limit, |customer: &u64| match customer {
///         0..100 => Plan::Quota(Quota::per_minute(6_000)),
///         _ => Plan::Default,
///     })
/// }
///
/// let limits = per_customer(TokenBucket::new(Quota::per_minute(60)));
/// # let _ = limits;
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` has one quota for all keys: give `Quotas` an algorithm, a `Local`, a limiter of Redis or a `Cas`",
    label = "takes no quota per key",
    note = "a fleet (`Synced`, `Leased`) divides one quota into budgets: give each tier its own with `Quotas::tier`",
    note = "keys in a store implement `tower_throttle::store::remote::RemoteKey`"
)]
pub trait QuotaPerKey<K>: IntoBackend {
    /// The limit under each quota.
    ///
    /// # Errors
    /// If it cannot have other quotas.
    fn into_quotas(backend: Self::Backend) -> Result<UnderQuota<K>, ConfigError>;
}

/// The algorithm under a quota, or under its own.
pub(in crate::store) fn under<A: Algorithm>(
    algorithm: &A,
    quota: Option<Quota>,
) -> Result<A, ConfigError> {
    let own = algorithm.with_quota(quota.unwrap_or_else(|| algorithm.quota()))?;
    own.validate()?;
    Ok(own)
}
