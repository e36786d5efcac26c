//! Who learns of each decision.

use crate::error::RateLimited;

/// Learns which keys were admitted and denied; set by `RateLimitLayer::watch`.
///
/// It is called in the middle of requests, so it must not wait. [`TopKeys`](crate::layer::TopKeys) is one; for
/// denials alone a closure is enough, `RateLimitLayer::on_denied`.
///
/// ```
/// use std::sync::{Arc, atomic::{AtomicU64, Ordering}};
/// use tower_throttle::{FixedWindow, Quota, RateLimitLayer, RateLimited, respond::Watch};
///
/// /// Counts the denials of one customer.
/// #[derive(Clone, Debug)]
/// struct Observed(u64, Arc<AtomicU64>);
///
/// impl Watch<u64> for Observed {
///     fn denied(&self, customer: &u64, _: &RateLimited) {
///         if *customer == self.0 {
///             self.1.fetch_add(1, Ordering::Relaxed);
///         }
///     }
/// }
///
/// let observed = Observed(7, Arc::default());
/// let layer = RateLimitLayer::new(|customer: &u64| *customer, FixedWindow::new(Quota::per_day(100)))
///     .watch(observed.clone());
/// # let _ = layer;
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot watch the keys of type `{K}`",
    note = "`.on_denied(..)` takes a closure `|key: &Key, denied: &RateLimited| ..`"
)]
pub trait Watch<K> {
    /// A request of `key` was admitted, at once or after its wait, and has taken `cost`. In shadow mode also
    /// called for one that would have been denied, which takes nothing. Not called in an outage.
    fn admitted(&self, key: &K, cost: u64) {
        let _ = (key, cost);
    }

    /// A request of `key` was denied, or its wait has ended in a denial.
    fn denied(&self, key: &K, denied: &RateLimited);
}

/// Nobody watches.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unwatched;

impl<K> Watch<K> for Unwatched {
    #[inline]
    fn admitted(&self, _: &K, _: u64) {}

    #[inline]
    fn denied(&self, _: &K, _: &RateLimited) {}
}

/// A closure that is called for each denial; made by `RateLimitLayer::on_denied`.
#[derive(Clone, Copy, Debug)]
pub struct OnDenied<F>(pub(crate) F);

impl<K, F: Fn(&K, &RateLimited)> Watch<K> for OnDenied<F> {
    fn denied(&self, key: &K, denied: &RateLimited) {
        (self.0)(key, denied);
    }
}

/// Both, in this order.
impl<K, A: Watch<K>, B: Watch<K>> Watch<K> for (A, B) {
    #[inline]
    fn admitted(&self, key: &K, cost: u64) {
        self.0.admitted(key, cost);
        self.1.admitted(key, cost);
    }

    #[inline]
    fn denied(&self, key: &K, denied: &RateLimited) {
        self.0.denied(key, denied);
        self.1.denied(key, denied);
    }
}
