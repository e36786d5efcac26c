//! Key closures and what they may return.

use crate::error::Rejection;
use crate::key::{Extracted, Key, KeyExtractor};

/// What a key closure may return: a key, [`Extracted`], or a `Result` of one.
#[diagnostic::on_unimplemented(
    message = "a key closure returns a key, an `Extracted`, or a `Result` of one, and is not async; this one returns `{Self}`",
    label = "neither a key nor an `Extracted` or a `Result` of one",
    note = "a borrowed value such as `&str` is not a key: return an owned one, with `.to_owned()` or `.clone()`",
    note = "strings, integers, IP addresses, options and tuples of them are keys",
    note = "for a type of your own that is `Hash` and `Clone`, write `impl tower_throttle::key::Key for .. {{}}`"
)]
pub trait IntoKey {
    /// The type of the key.
    type Key: Key + Clone + Send + 'static;

    /// Converts the returned value.
    fn into_key(self) -> Extracted<Self::Key>;
}

impl<K: Key + Clone + Send + 'static> IntoKey for K {
    type Key = K;

    fn into_key(self) -> Extracted<K> {
        Extracted::Key(self)
    }
}

impl<K: Key + Clone + Send + 'static> IntoKey for Extracted<K> {
    type Key = K;

    fn into_key(self) -> Self {
        self
    }
}

impl<T: IntoKey, E: Into<Rejection>> IntoKey for Result<T, E> {
    type Key = T::Key;

    fn into_key(self) -> Extracted<T::Key> {
        match self {
            Ok(found) => found.into_key(),
            Err(error) => Extracted::Reject(error.into()),
        }
    }
}

impl<Req, F, T> KeyExtractor<Req> for F
where
    F: Fn(&Req) -> T,
    T: IntoKey,
{
    type Key = T::Key;

    fn extract(&self, request: &Req) -> Extracted<T::Key> {
        self(request).into_key()
    }
}
