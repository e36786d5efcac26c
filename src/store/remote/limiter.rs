//! What the limiters of all stores have in common.

use std::{future::Future, time::Duration};

use super::BreakerCounts;
use crate::error::StoreError;

/// A limiter that shares its limit through a store: exact, or with budgets.
///
/// A program that uses several of them treats them alike:
///
/// ```
/// use tower_throttle::store::cas::{Cas, MemoryStore};
/// use tower_throttle::store::{fleet::Synced, remote::StoreLimiter};
/// use tower_throttle::{Quota, StoreError, TokenBucket};
///
/// async fn shut_down(limit: &impl StoreLimiter) -> Result<(), StoreError> {
///     println!("{:?}, {:?} behind", limit.last_error(), limit.lag());
///     limit.close().await
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), StoreError> {
/// let bucket = TokenBucket::new(Quota::per_second(100));
/// let (exact, synced) = (
///     Cas::new(MemoryStore::new(), "exact", bucket),
///     Synced::new(MemoryStore::new(), "synced", bucket),
/// );
/// exact.ready().await?;
/// synced.ready().await?;
/// shut_down(&exact).await?;
/// shut_down(&synced).await?;
/// # Ok(())
/// # }
/// ```
pub trait StoreLimiter: Send + Sync {
    /// Waits until the store has replied once.
    ///
    /// # Errors
    /// If it cannot be reached.
    fn ready(&self) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Waits until the store knows of all that was used. A limiter that asks it each time has nothing to do.
    ///
    /// # Errors
    /// If the store cannot be reached.
    fn close(&self) -> impl Future<Output = Result<(), StoreError>> + Send {
        std::future::ready(Ok(()))
    }

    /// How long the oldest use has waited that the store may not know of.
    fn lag(&self) -> Duration {
        Duration::ZERO
    }

    /// The error of the last call, if it failed.
    fn last_error(&self) -> Option<StoreError>;

    /// Whether its circuit breaker is open, and how often it opened.
    fn breaker(&self) -> BreakerCounts;
}
