//! The settings of a limiter.

use std::time::Duration;

use super::{CasStore, Settings};

/// Settings of a [`Cas`](super::Cas) limiter.
///
/// ```
/// use std::time::Duration;
///
/// use tower_throttle::{Quota, TokenBucket, store::cas::{CasBuilder, MemoryStore}};
///
/// let settings = CasBuilder::new(MemoryStore::new())
///     .prefix("shop")
///     .deadline(Duration::from_millis(50))
///     .cached_keys(100_000);
/// let limit = settings.build("api", TokenBucket::new(Quota::per_second(10)))?;
/// # Ok::<(), tower_throttle::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "settings have no effect before `build`"]
pub struct CasBuilder<S> {
    pub(super) store: S,
    pub(super) settings: Settings,
}

impl<S: CasStore> CasBuilder<S> {
    /// The default settings of limits in `store`.
    pub fn new(store: S) -> Self {
        let settings = store.settings();
        Self { store, settings }
    }

    /// Sets how long a call may take, by default 100 ms. Conflicts with other machines are retried
    /// within it.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use tower_throttle::{Quota, TokenBucket};
    /// use tower_throttle::store::{Backend, cas::{CasBuilder, Fault, Faulty, MemoryStore}};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = Faulty::new(MemoryStore::new());
    /// let limit = CasBuilder::new(store.clone()).deadline(Duration::from_millis(20));
    /// let limit = limit.build("api", TokenBucket::new(Quota::per_second(10)))?;
    /// store.plan([Fault::Delay(Duration::from_secs(60))]);
    /// let error = limit.decide("alice", 1).await.unwrap_err();
    /// assert_eq!(error.to_string(), "memory: no decision within 20ms");
    /// # Ok(())
    /// # }
    /// ```
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.settings.deadline = deadline;
        self
    }

    /// Sets the start of the names of all keys, by default `throttle`.
    ///
    /// ```
    /// use tower_throttle::{Quota, TokenBucket, store::{Backend, cas::{CasBuilder, MemoryStore}}};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = MemoryStore::new();
    /// let limit = CasBuilder::new(store.clone()).prefix("shop");
    /// let limit = limit.build("api", TokenBucket::new(Quota::per_second(10)))?;
    /// assert!(limit.decide("alice", 1).await?.is_admitted());
    /// assert_eq!(store.keys(), ["{shop:api:alice}bucket/1s.4"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.settings.prefix = prefix.into();
        self
    }

    /// Sets of about how many keys the last record is kept, by default 10,000. The next decision on such a
    /// key needs one round trip instead of two. With zero, every decision reads the store first, except for calls
    /// that wait for each other.
    ///
    /// ```
    /// use tower_throttle::{Quota, TokenBucket, store::{Backend, cas::{CasBuilder, MemoryStore}}};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let bucket = TokenBucket::new(Quota::per_hour(10));
    /// let limit = CasBuilder::new(MemoryStore::new()).cached_keys(0);
    /// let limit = limit.build("api", bucket)?;
    /// for _ in 0..3 {
    ///     assert!(limit.decide("alice", 1).await?.is_admitted());
    /// }
    /// assert_eq!((limit.counts().loads, limit.counts().swaps), (3, 3));
    /// # Ok(())
    /// # }
    /// ```
    pub fn cached_keys(mut self, keys: usize) -> Self {
        self.settings.cached_keys = keys;
        self
    }

    /// Asks the store again for every request of a key that is being denied. By default, a denial
    /// is repeated until it ends, for at most ten seconds.
    ///
    /// ```
    /// use tower_throttle::{FixedWindow, Quota, store::{Backend, cas::{CasBuilder, MemoryStore}}};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = MemoryStore::new();
    /// let limit = CasBuilder::new(store.clone()).without_deny_cache();
    /// let limit = limit.build("api", FixedWindow::new(Quota::per_day(1)))?;
    /// assert!(limit.decide("alice", 1).await?.is_admitted());
    /// assert!(limit.decide("alice", 1).await?.is_denied());
    /// // Each request sees what the store holds now.
    /// store.clear();
    /// assert!(limit.decide("alice", 1).await?.is_admitted());
    /// # Ok(())
    /// # }
    /// ```
    pub fn without_deny_cache(mut self) -> Self {
        self.settings.caches_denials = false;
        self
    }
}
