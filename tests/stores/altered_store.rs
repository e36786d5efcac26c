//! A store that does what another one does, except for one change.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tower_throttle::StoreError;
use tower_throttle::store::cas::{CasStore, Loaded, Program, Swapped, Value, Version};
use tower_throttle::store::fleet::{Batch, Replies};

/// What is different from the store `S`. Loads and swaps that are not overridden are those of the store. It has
/// no batches and no turns, so that all is done by these two.
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

    fn exchange(&self) -> Result<Option<Replies>, StoreError> {
        Ok(None)
    }

    fn run(&self) -> Result<bool, StoreError> {
        Ok(false)
    }

    fn has_one_clock(&self, store: &S) -> bool {
        store.has_one_clock()
    }
}

/// The arguments of a swap.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Swap<'a> {
    pub(crate) key: &'a str,
    pub(crate) expected: Option<Version>,
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
    async fn load(&self, key: &str) -> Result<Loaded, StoreError> {
        self.1.load(&self.0, key).await
    }

    async fn swap(
        &self,
        key: &str,
        expected: Option<Version>,
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

    async fn exchange(&self, _: &Arc<Batch>) -> Result<Option<Replies>, StoreError> {
        self.1.exchange()
    }

    async fn run(&self, _: Arc<dyn Program>) -> Result<bool, StoreError> {
        self.1.run()
    }

    fn has_one_clock(&self) -> bool {
        self.1.has_one_clock(&self.0)
    }
}
