//! The port: what a store must be able to do.

use std::{fmt, future::Future, time::Duration};

use super::settings::Settings;
use super::value::{Loaded, Swapped, Value, Write};
use crate::error::StoreError;
#[cfg(feature = "redis")]
use crate::store::redis::Script;

/// Which programs a store runs in one step, with [`CasStore::run`]. Of others each key is loaded and swapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runs {
    /// None. Machines that use one key at once wait at random, and try again after conflicts.
    None,
    /// All, while other machines that run programs on the same keys wait. The exact limit of a key that one machine
    /// uses alone is swapped all the same, which takes fewer round trips.
    All,
    /// Those that have a script of Redis.
    Scripts,
}

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
/// use tower_throttle::store::{Backend, cas::{Cas, CasStore, Loaded, Swapped, Value}};
///
/// /// The value of the only key, which does not expire.
/// #[derive(Debug, Default)]
/// struct OneValue(Mutex<Option<Value>>);
///
/// impl CasStore for OneValue {
///     const NAME: &'static str = "one value";
///
///     async fn load(&self, _key: &str) -> Result<Loaded, StoreError> {
///         Ok(Loaded { value: self.0.lock().unwrap().clone(), server_time: None })
///     }
///
///     async fn swap(
///         &self,
///         _key: &str,
///         expected: Option<u64>,
///         new: &Value,
///         _ttl: Duration,
///     ) -> Result<Swapped, StoreError> {
///         let mut value = self.0.lock().unwrap();
///         if value.as_ref().map(|value| value.version) != expected {
///             return Ok(Swapped::Conflict(Some(Loaded { value: value.clone(), server_time: None })));
///         }
///         *value = Some(new.clone());
///         Ok(Swapped::Done(None))
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let window = FixedWindow::new(Quota::per_hour(1));
/// let limit = Cas::new(OneValue::default(), "jobs", window)?;
/// assert!(limit.decide("all", 1).await?.is_admitted());
/// assert!(limit.decide("all", 1).await?.is_denied());
/// # Ok(())
/// # }
/// ```
pub trait CasStore: fmt::Debug + Send + Sync + 'static {
    /// The store's name in errors and logs.
    const NAME: &'static str = "store";

    /// Which programs it runs in one step.
    const RUNS: Runs = Runs::None;

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
        expected: Option<u64>,
        new: &Value,
        ttl: Duration,
    ) -> impl Future<Output = Result<Swapped, StoreError>> + Send;

    /// Runs `program` in one step, if [`RUNS`](Self::RUNS) says that it can.
    ///
    /// In a transaction: lock the values of [`Program::keys`], in their order sorted by name; call
    /// [`Program::execute`] with them; write what it returns. Only a transaction that has no effect may be
    /// tried again.
    fn run<P: Program>(
        &self,
        program: &P,
    ) -> impl Future<Output = Result<P::Reply, StoreError>> + Send {
        let _ = program;
        let message = format!("{}: runs no programs", Self::NAME);
        std::future::ready(Err(StoreError::new(message, false)))
    }

    /// The number of the keys with which this one may be in a program, if the store has one clock. `None` if keys are on
    /// several servers, each of which has a clock of its own: then a program has one key.
    fn group_of(&self, key: &str) -> Option<usize> {
        let _ = key;
        Some(0)
    }

    /// The settings of limits in this store, unless they set others.
    fn settings(&self) -> Settings {
        Settings::new(Self::NAME)
    }
}

/// What is written depends on what the store holds, and on nothing else that changes.
pub trait Program: Send + Sync + 'static {
    /// What comes of it.
    type Reply: Send + 'static;

    /// The keys whose values it reads and writes, each once.
    fn keys(&self) -> Vec<&str>;

    /// Executes it on the values of its keys, in their order. Returns what the store writes in the same step, and
    /// the reply.
    fn execute(&self, values: &[Loaded]) -> (Vec<Write>, Self::Reply);

    /// What Redis runs in its place.
    #[cfg(feature = "redis")]
    fn script(&self) -> Option<Script<'_, Self::Reply>> {
        None
    }
}
