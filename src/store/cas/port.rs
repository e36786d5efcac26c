//! The port: what a store must be able to do.

use std::{fmt, future::Future, sync::Arc, time::Duration};

use crate::clock::Tick;
use crate::error::StoreError;
use crate::store::fleet::{Batch, Replies};

/// A store with a compare-and-swap, in which [`Cas`](super::Cas) keeps the states of keys.
///
/// Implement it for a database of your own: two operations on values of some hundred bytes, or of a few bytes per request for a log. Both
/// may fail at any time, also after the store has executed them: `Cas` finds out
/// whether a swap was executed by the version that it wrote. So an implementation never retries a
/// swap, and needs no deadline of its own.
///
/// The value that is there after a conflict saves a load. [`MemoryStore`](super::MemoryStore) is an
/// implementation in some fifty lines. A store that keeps one value:
///
/// ```
/// use std::{sync::Mutex, time::Duration};
///
/// use tower_throttle::{FixedWindow, Quota, StoreError};
/// use tower_throttle::store::{Backend, cas::{CasBuilder, CasStore, Loaded, Swapped, Value, Version}};
///
/// /// The value of the only key, which does not expire.
/// #[derive(Debug, Default)]
/// struct OneValue(Mutex<Option<Value>>);
///
/// impl CasStore for OneValue {
///     const NAME: &'static str = "one value";
///
///     async fn load(&self, _key: &str) -> Result<Loaded, StoreError> {
///         Ok(Loaded::new(self.0.lock().unwrap().clone()))
///     }
///
///     async fn swap(
///         &self,
///         _key: &str,
///         expected: Option<Version>,
///         new: &Value,
///         _ttl: Duration,
///     ) -> Result<Swapped, StoreError> {
///         let mut value = self.0.lock().unwrap();
///         if value.as_ref().map(|value| value.version) != expected {
///             return Ok(Swapped::Conflict(Some(Loaded::new(value.clone()))));
///         }
///         *value = Some(new.clone());
///         Ok(Swapped::Done(None))
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let window = FixedWindow::new(Quota::per_hour(1));
/// let limit = CasBuilder::new(OneValue::default())
///     .without_quota_changes()
///     .build("jobs", window)?;
/// assert!(limit.decide("all", 1).await?.is_admitted());
/// assert!(limit.decide("all", 1).await?.is_denied());
/// # Ok(())
/// # }
/// ```
pub trait CasStore: fmt::Debug + Send + Sync + 'static {
    /// The store's name in errors and logs.
    const NAME: &'static str = "store";

    /// Reads the value of `key`, with all swaps that have succeeded before.
    ///
    /// A value whose time to live is over may be returned or not.
    fn load(&self, key: &str) -> impl Future<Output = Result<Loaded, StoreError>> + Send;

    /// Replaces the value of `key` by `new`, in one atomic step, if its version is `expected`.
    ///
    /// `None` expects that there is no value, or one whose time to live is over. The new value is
    /// kept for at least `ttl`.
    fn swap(
        &self,
        key: &str,
        expected: Option<Version>,
        new: &Value,
        ttl: Duration,
    ) -> impl Future<Output = Result<Swapped, StoreError>> + Send;

    /// Executes the reports of a machine of a [fleet](crate::store::fleet) in one step, if the store can read
    /// and write several values in one. `None` if not: then each key is a swap of its own.
    ///
    /// In a transaction: lock the values of [`Batch::keys`], in their order sorted by name; call
    /// [`Batch::execute`] with them; write what it returns. Only a transaction that has no effect may be
    /// tried again.
    fn exchange(
        &self,
        batch: &Arc<Batch>,
    ) -> impl Future<Output = Result<Option<Replies>, StoreError>> + Send {
        let _ = batch;
        std::future::ready(Ok(None))
    }

    /// Whether all times that it reports are of one clock. Not if its keys are on several servers, of
    /// which each reports its own time.
    fn has_one_clock(&self) -> bool {
        true
    }
}

/// A store that several limits share.
impl<S: CasStore> CasStore for Arc<S> {
    const NAME: &'static str = S::NAME;

    fn load(&self, key: &str) -> impl Future<Output = Result<Loaded, StoreError>> + Send {
        S::load(self, key)
    }

    fn swap(
        &self,
        key: &str,
        expected: Option<Version>,
        new: &Value,
        ttl: Duration,
    ) -> impl Future<Output = Result<Swapped, StoreError>> + Send {
        S::swap(self, key, expected, new, ttl)
    }

    fn exchange(
        &self,
        batch: &Arc<Batch>,
    ) -> impl Future<Output = Result<Option<Replies>, StoreError>> + Send {
        S::exchange(self, batch)
    }

    fn has_one_clock(&self) -> bool {
        S::has_one_clock(self)
    }
}

/// The version of a value. Each swap writes a version that no other swap ever writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Version(u64);

/// A value in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Value {
    /// Its version.
    pub version: Version,
    /// Its contents, which mean nothing to the store.
    pub bytes: Vec<u8>,
}

/// What a store read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Loaded {
    /// The value of the key, if it has one.
    pub value: Option<Value>,
    /// The store's time, if it reports it: see [`Loaded::at`].
    pub server_time: Option<Tick>,
}

/// What a swap did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Swapped {
    /// The new value is stored. With the store's time, if it reports it.
    Done(Option<Tick>),
    /// The value had another version. Nothing was written. If the store returns the value that is
    /// there, that saves a load.
    Conflict(Option<Loaded>),
}

impl Version {
    /// The version with this number.
    pub const fn from_u64(number: u64) -> Self {
        Self(number)
    }

    /// Its number, to be stored and compared.
    pub const fn as_u64(self) -> u64 {
        self.0
    }
}

impl Value {
    /// A value as it was read.
    pub const fn new(version: Version, bytes: Vec<u8>) -> Self {
        Self { version, bytes }
    }
}

impl Loaded {
    /// A value, or none.
    pub const fn new(value: Option<Value>) -> Self {
        Self {
            value,
            server_time: None,
        }
    }

    /// The same with the store's time, in nanoseconds since 1970, read while it executed the
    /// operation.
    ///
    /// If a store reports its time, all machines decide by that clock. Otherwise each machine uses its
    /// own, and a machine whose clock is ahead by `e` admits what refills in `e` once more.
    #[must_use]
    pub const fn at(mut self, server_time: Tick) -> Self {
        self.server_time = Some(server_time);
        self
    }
}
