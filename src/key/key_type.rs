//! The key type of an extractor, without the request type.

use std::borrow::Borrow;

use crate::key::{
    Client, ClientIp, Either, FromExtension, Global, HeaderKey, IntoKey, Key, Or, Secret, With,
};

/// The key type of an extractor, known without the request type.
///
/// `RateLimitLayer::handle` uses it to give a handle the layer's key type. Closures and all provided
/// extractors implement it. `Marker` is inferred; it only keeps these implementations apart.
///
/// For an extractor of your own, implement this trait with `()` as the marker:
///
/// ```
/// use tower_throttle::{FixedWindow, Quota, RateLimitLayer, key::{Extracted, KeyExtractor, KeyType}};
///
/// #[derive(Clone)]
/// struct Shard { count: u64 }
///
/// impl KeyExtractor<u64> for Shard {
///     type Key = u64;
///
///     fn extract(&self, request: &u64) -> Extracted<u64> {
///         Extracted::Key(request % self.count)
///     }
/// }
///
/// impl KeyType<()> for Shard {
///     type Key = u64;
/// }
///
/// let layer = RateLimitLayer::new(Shard { count: 8 }, FixedWindow::new(Quota::per_day(100)));
/// drop(layer.handle().charge(&7, 10));
/// ```
#[diagnostic::on_unimplemented(
    message = "the key type of `{Self}` is not known without the request type",
    label = "a handle needs it",
    note = "write `impl tower_throttle::key::KeyType<()> for {Self} {{ type Key = ..; }}`"
)]
pub trait KeyType<Marker> {
    /// What requests are counted by.
    type Key: Key;
}

impl<F, Req, T> KeyType<fn(Req) -> T> for F
where
    F: Fn(&Req) -> T,
    T: IntoKey,
{
    type Key = T::Key;
}

impl KeyType<()> for Global {
    type Key = ();
}

impl KeyType<()> for ClientIp {
    type Key = Client;
}

impl KeyType<()> for HeaderKey {
    type Key = Secret;
}

impl<T: Key> KeyType<()> for FromExtension<T> {
    type Key = Option<T>;
}

impl<MA, MB, A: KeyType<MA>, B: KeyType<MB>> KeyType<(MA, MB)> for Or<A, B> {
    type Key = Either<A::Key, B::Key>;
}

impl<M, K: KeyType<M>, S> KeyType<M> for With<K, S> {
    type Key = K::Key;
}

impl<MA, MB, A: KeyType<MA>, B: KeyType<MB>> KeyType<(MA, MB)> for (A, B) {
    type Key = (A::Key, B::Key);
}

/// A key of type `K`, or what can be borrowed from one: `str` for `String`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a key of this layer: its keys are of type `{K}`",
    label = "give a `&{K}`",
    note = "each provided extractor makes its keys, as `ClientIp::peer().key(address)` and `HeaderKey::key(value)` do",
    note = "the keys of a closure are what it returns"
)]
pub trait KeyRef<K> {}

#[diagnostic::do_not_recommend]
impl<K: Borrow<Q>, Q: ?Sized> KeyRef<K> for Q {}
