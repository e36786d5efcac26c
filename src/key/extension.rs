//! A key in the extensions of the request.

use std::{any::type_name, marker::PhantomData};

use http::Request;

use super::missing::{Absent, Missing, assert_unset, resolve};
use super::or::{FindKey, Or};
use crate::key::{Extracted, Key, KeyExtractor};

/// Counts by a `T` in the request's extensions, where an outer layer has put it.
///
/// For example the user that an authentication layer has found. A request without a `T` is rejected with
/// status 500 and a text that names the remedy, unless [`if_missing`](Self::if_missing) or
/// [`or`](Self::or) is set: such a layer is usually missing, or inside of the limit. The key is an `Option<T>`, and
/// `None` that of all requests without a `T` with [`Missing::Shared`].
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
/// let users = FromExtension::<UserId>::new();
/// assert_eq!(users.extract(&request), Extracted::Key(Some(UserId(7))));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct FromExtension<T> {
    missing: Option<Missing>,
    marker: PhantomData<fn() -> T>,
}

impl<T> FromExtension<T> {
    /// Counts by the extension.
    pub const fn new() -> Self {
        Self {
            missing: None,
            marker: PhantomData,
        }
    }

    /// What happens to requests without a `T`.
    #[must_use]
    pub const fn if_missing(mut self, missing: Missing) -> Self {
        self.missing = Some(missing);
        self
    }

    /// Counts a request without a `T` by `other`; see [`HeaderKey::or`](crate::HeaderKey::or).
    ///
    /// # Panics
    /// If [`if_missing`](Self::if_missing) is set.
    #[track_caller]
    pub const fn or<B>(self, other: B) -> Or<Self, B> {
        assert_unset(self.missing);
        Or::new(self, other)
    }
}

impl<T> Default for FromExtension<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<B, T> FindKey<Request<B>> for FromExtension<T>
where
    T: Key + Clone + Send + Sync + 'static,
{
    fn find(&self, request: &Request<B>) -> Option<Option<T>> {
        request.extensions().get::<T>().cloned().map(Some)
    }
}

impl<B, T> KeyExtractor<Request<B>> for FromExtension<T>
where
    T: Key + Clone + Send + Sync + 'static,
{
    type Key = Option<T>;

    fn extract(&self, request: &Request<B>) -> Extracted<Option<T>> {
        resolve(
            self.find(request),
            self.missing,
            None,
            &Absent::ByOperator(
                &"the sender of the request is not known",
                &format_args!(
                    "tower-throttle: no layer around this limit has put a `{}` into the extensions of the \
                     request. In axum, the layer that was added last comes first. If some requests have \
                     none, add `.or(ClientIp::peer())` or `.if_missing(Missing::Shared)`. See \
                     https://docs.rs/tower-throttle/latest/tower_throttle/guide/proxies/index.html#an-extension-that-is-missing",
                    type_name::<T>()
                ),
            ),
        )
    }
}
