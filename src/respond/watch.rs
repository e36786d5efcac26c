//! What happens to requests at a limit, and what is told of it.

use std::time::Duration;

use crate::error::{RateLimited, Rejection, StoreError};

/// What has happened to a request at a limit. Counts, logs and metrics are made of it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event<'a> {
    /// It goes on, at once or after its wait. One that goes on in an outage is a `StoreError`.
    Admitted,
    /// It waits, for so long if that is known.
    Waits(Option<Duration>),
    /// It was denied, at once or at the end of its wait.
    Denied(&'a RateLimited),
    /// It has no key, and was rejected.
    Rejected(&'a Rejection),
    /// It is not limited.
    Skipped,
    /// The backend could not decide about it.
    StoreError(&'a StoreError),
    /// It has a proxy header that the key extractor ignores.
    UnreadProxyHeader,
}

/// Learns which keys were admitted, with the cost, and denied.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot watch the keys of type `{K}`",
    note = "`.watch(..)` takes a closure `|key: &Key, decided: Result<u64, &RateLimited>| ..`"
)]
pub(crate) trait Watch<K> {
    fn saw(&self, key: &K, decided: Result<u64, &RateLimited>);
}

impl<K, F: Fn(&K, Result<u64, &RateLimited>)> Watch<K> for F {
    #[inline]
    fn saw(&self, key: &K, decided: Result<u64, &RateLimited>) {
        self(key, decided);
    }
}

/// Nothing is watched.
impl<K> Watch<K> for () {
    #[inline]
    fn saw(&self, _: &K, _: Result<u64, &RateLimited>) {}
}

/// Both, in this order.
impl<K, A: Watch<K>, B: Watch<K>> Watch<K> for (A, B) {
    #[inline]
    fn saw(&self, key: &K, decided: Result<u64, &RateLimited>) {
        self.0.saw(key, decided);
        self.1.saw(key, decided);
    }
}
