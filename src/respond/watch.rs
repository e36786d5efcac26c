//! What happens to requests at a limit, and what is told of it.

use std::time::Duration;

use crate::decision::Decision;
use crate::error::{RateLimited, Rejection, StoreError};

/// What has happened to a request at a limit. Counts, logs and metrics are made of it; what was given to
/// [`watch`](crate::RateLimitLayer::watch) is told of [`Admitted`](Self::Admitted) and [`Denied`](Self::Denied).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// It goes on, at once or after its wait, and has taken this cost. In shadow mode also one that would have been
    /// denied, which takes nothing. Not in an outage.
    Admitted(u64),
    /// It waits, for so long if that is known.
    Waits(&'a Decision, Option<Duration>),
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

/// Learns which keys were admitted and denied; given to [`watch`](crate::RateLimitLayer::watch).
///
/// It is called in the middle of requests, so it must not wait. A closure is one, and so is
/// [`TopKeys`](crate::layer::TopKeys).
///
/// ```
/// use tower_throttle::respond::{Event, Watch};
///
/// struct LogDenials;
///
/// impl Watch<String> for LogDenials {
///     fn saw(&self, key: &String, event: Event<'_>) {
///         if let Event::Denied(denied) = event {
///             eprintln!("{key}: {denied}");
///         }
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot watch the keys of type `{K}`",
    note = "`.watch(..)` takes a closure `|key: &Key, event: Event<'_>| ..`"
)]
pub trait Watch<K> {
    /// This has happened to a request of `key`.
    fn saw(&self, key: &K, event: Event<'_>);
}

impl<K, F: Fn(&K, Event<'_>)> Watch<K> for F {
    #[inline]
    fn saw(&self, key: &K, event: Event<'_>) {
        self(key, event);
    }
}

/// Nothing is watched.
impl<K> Watch<K> for () {
    #[inline]
    fn saw(&self, _: &K, _: Event<'_>) {}
}

/// Both, in this order.
impl<K, A: Watch<K>, B: Watch<K>> Watch<K> for (A, B) {
    #[inline]
    fn saw(&self, key: &K, event: Event<'_>) {
        self.0.saw(key, event);
        self.1.saw(key, event);
    }
}
