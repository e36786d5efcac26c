//! The port: what a store must be able to do.

use std::{fmt, future::Future, sync::Arc, time::Duration};

use super::value::{Loaded, Swapped, Value, Version};
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

    /// Runs `program` on the value of its key and stores what it returns, while other machines that run programs
    /// on the key wait. Returns `false` if the store cannot let them wait: then machines that use one key at once
    /// wait at random, and try again after conflicts.
    ///
    /// A program may be executed again if what it returned was certainly not stored.
    fn run(
        &self,
        program: Arc<dyn Program>,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send {
        let _ = program;
        std::future::ready(Ok(false))
    }

    /// Whether all times that it reports are of one clock. Not if its keys are on several servers, of
    /// which each reports its own time.
    fn has_one_clock(&self) -> bool {
        true
    }
}

/// What is written depends on what the store holds, and on nothing else that changes.
pub trait Program: Send + Sync + 'static {
    /// The key whose value it reads and writes.
    fn key(&self) -> &str;

    /// The value to be written, and for how long it is kept at least; `None` to write nothing.
    fn execute(&self, loaded: Loaded) -> Option<(Value, Duration)>;
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

    fn run(
        &self,
        program: Arc<dyn Program>,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send {
        S::run(self, program)
    }

    fn has_one_clock(&self) -> bool {
        S::has_one_clock(self)
    }
}
