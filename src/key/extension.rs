//! A key that an outer layer has left among the extensions of the request.

use std::{any::type_name, fmt, marker::PhantomData};

use http::Request;

use super::missing::Missing;
use crate::key::{Extracted, Key, KeyExtractor};

/// Counts by a `T` among the request's extensions, where an outer layer has left it: the user that
/// authentication found, also if finding it took a query.
///
/// ```
/// use tower_throttle::key::{Extracted, FromExtension, Key, KeyExtractor};
///
/// #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
/// struct UserId(u64);
///
/// impl Key for UserId {}
///
/// let mut request = http::Request::new(());
/// request.extensions_mut().insert(UserId(7));
/// assert_eq!(FromExtension::<UserId>::new().extract(&request), Extracted::Key(Some(UserId(7)).into()));
/// ```
pub struct FromExtension<T> {
    missing: Missing,
    of: PhantomData<fn() -> T>,
}

impl<T> FromExtension<T> {
    /// Counts by the extension.
    pub const fn new() -> Self {
        Self {
            missing: Missing::Shared,
            of: PhantomData,
        }
    }

    /// What becomes of requests without it.
    #[must_use]
    pub const fn if_missing(mut self, missing: Missing) -> Self {
        self.missing = missing;
        self
    }
}

impl<T> Default for FromExtension<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// By hand: `T` itself is not in it.
impl<T> Clone for FromExtension<T> {
    fn clone(&self) -> Self {
        *self
    }
}

/// By hand: `T` itself is not in it.
impl<T> Copy for FromExtension<T> {}

/// By hand: `T` itself is not in it.
impl<T> fmt::Debug for FromExtension<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FromExtension<{}>", type_name::<T>())
    }
}

/// A `T`, or that there was none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExtensionKey<T>(Option<T>);

impl<T> From<Option<T>> for ExtensionKey<T> {
    fn from(found: Option<T>) -> Self {
        Self(found)
    }
}

impl<T: Key> Key for ExtensionKey<T> {}

impl<B, T> KeyExtractor<Request<B>> for FromExtension<T>
where
    T: Key + Clone + Send + Sync + 'static,
{
    type Key = ExtensionKey<T>;

    fn extract(&self, request: &Request<B>) -> Extracted<ExtensionKey<T>> {
        let found = request.extensions().get::<T>().cloned();
        self.missing.or(
            found.map(|key| ExtensionKey(Some(key))),
            ExtensionKey(None),
            "the sender of the request is not known",
        )
    }
}
