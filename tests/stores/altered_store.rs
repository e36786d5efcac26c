//! A store that does what another one does, except for one change.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use tower_throttle::StoreError;
use tower_throttle::store::cas::{CasStore, Loaded, Program, Runs, Swapped, Value};

/// What is different from the store `S`. Loads and swaps that are not overridden are those of the store. It runs
/// no programs, so that all is done by these two.
pub(crate) trait Change<S: CasStore>: fmt::Debug + Send + Sync + 'static {
    fn load(
        &self,
        store: &S,
        key: &str,
    ) -> impl Future<Output = Result<Loaded, StoreError>> + Send {
        store.load(key)
    }

    fn swap(
        &self,
        store: &S,
        swap: Swap<'_>,
    ) -> impl Future<Output = Result<Swapped, StoreError>> + Send {
        swap.run(store)
    }

    /// Which programs it runs, all of which fail.
    const RUNS: Runs = Runs::None;
    /// Whether its keys are on several servers.
    const IS_CLUSTER: bool = false;

    /// The error of a program.
    fn run(&self) -> StoreError {
        StoreError::new("runs no programs", false)
    }
}

/// The arguments of a swap.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Swap<'a> {
    pub(crate) key: &'a str,
    pub(crate) expected: Option<u64>,
    pub(crate) new: &'a Value,
    pub(crate) ttl: Duration,
}

impl Swap<'_> {
    pub(crate) async fn run<S: CasStore>(self, store: &S) -> Result<Swapped, StoreError> {
        let Self {
            key,
            expected,
            new,
            ttl,
        } = self;
        store.swap(key, expected, new, ttl).await
    }
}

/// A store with a change.
#[derive(Clone, Debug)]
pub(crate) struct Altered<S, C>(pub(crate) S, pub(crate) C);

impl<S: CasStore, C: Change<S>> CasStore for Altered<S, C> {
    const RUNS: Runs = C::RUNS;

    async fn load(&self, key: &str) -> Result<Loaded, StoreError> {
        self.1.load(&self.0, key).await
    }

    async fn swap(
        &self,
        key: &str,
        expected: Option<u64>,
        new: &Value,
        ttl: Duration,
    ) -> Result<Swapped, StoreError> {
        let swap = Swap {
            key,
            expected,
            new,
            ttl,
        };
        self.1.swap(&self.0, swap).await
    }

    async fn run<P: Program>(&self, _: &P) -> Result<P::Reply, StoreError> {
        Err(self.1.run())
    }

    fn group_of(&self, _: &str) -> Option<usize> {
        (!C::IS_CLUSTER).then_some(0)
    }
}
