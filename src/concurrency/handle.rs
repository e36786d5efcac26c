//! Reading and changing a limit on concurrency at run time.

use std::hash::Hash;

use super::permits::Permits;
use crate::error::ConfigError;
use crate::key::KeyRef;
use crate::layer::{Handle, set_gauges};

/// The limit of a [`ConcurrencyLimitLayer`](super::ConcurrencyLimitLayer).
///
/// ```
/// use tower_throttle::{ConfigError, concurrency::ConcurrencyLimitLayer};
///
/// # fn main() -> Result<(), ConfigError> {
/// let layer = ConcurrencyLimitLayer::new(|tenant: &String| tenant.clone(), 10);
/// let handle = layer.handle();
/// assert_eq!(handle.in_flight("acme"), 0);
/// handle.set_limit(20)?;
/// assert_eq!(handle.limit(), 20);
/// # Ok(())
/// # }
/// ```
impl<K> Handle<K, Permits> {
    /// The number of permits of `key` that are taken; of a fleet, those of this machine.
    pub fn in_flight<Q>(&self, key: &Q) -> u64
    where
        Q: KeyRef<K> + Hash + ?Sized,
    {
        self.backend().in_flight(key)
    }

    /// The number of keys with requests in flight. No other key takes up memory.
    pub fn keys(&self) -> usize {
        self.backend().table.keys()
    }

    /// How many requests wait for a permit now, of all keys together; in a fleet also those that wait for the store.
    pub fn waiting(&self) -> u64 {
        self.backend().lines.waiting()
    }

    /// How many requests of one key may be in flight now.
    pub fn limit(&self) -> u64 {
        self.backend().table.limit()
    }

    /// Sets the gauges of this limit, as [`record_gauges`](Handle::record_gauges) of a rate limit does:
    /// `tower_throttle_waiting`, `tower_throttle_in_flight`, `tower_throttle_in_flight_limit` and
    /// `tower_throttle_largest_use_percent`.
    ///
    /// ```
    /// use tower_throttle::{Global, concurrency::{ConcurrencyLimitLayer, Gradient2}};
    ///
    /// let layer = ConcurrencyLimitLayer::adaptive(Gradient2::new()).name("busy");
    /// layer.handle().record_gauges();
    /// # let _: ConcurrencyLimitLayer<Global> = layer;
    /// ```
    pub fn record_gauges(&self) {
        let Permits { table, lines, .. } = self.backend();
        let (in_flight, percent) = table.fullness();
        let gauges = [
            ("tower_throttle_waiting", lines.waiting()),
            ("tower_throttle_in_flight", in_flight),
            ("tower_throttle_in_flight_limit", table.limit()),
            ("tower_throttle_largest_use_percent", percent),
        ];
        set_gauges(self.state().name(), &gauges);
    }

    /// Changes the limit.
    ///
    /// A higher one lets waiting requests go on at once. A lower one ends no request: permits beyond
    /// it are not granted again once they are released. In a fleet this changes the limit of this machine.
    ///
    /// # Errors
    /// If `limit` is 0, or the limit is [adaptive](crate::ConcurrencyLimitLayer::adaptive). It stays as it was.
    ///
    /// ```
    /// use tower_throttle::{Global, concurrency::ConcurrencyLimitLayer};
    ///
    /// let handle = ConcurrencyLimitLayer::new(Global, 10).handle();
    /// handle.set_limit(25)?;
    /// assert!(handle.set_limit(0).is_err());
    /// assert_eq!(handle.limit(), 25);
    /// # Ok::<(), tower_throttle::ConfigError>(())
    /// ```
    pub fn set_limit(&self, limit: u32) -> Result<(), ConfigError> {
        self.backend().set_limit(limit)
    }
}
