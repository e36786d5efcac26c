//! An algorithm in a store, and the quota that changes while the fleet runs.

use std::{fmt, sync::Arc, time::Duration};

use super::{CasStore, Swapped, Value, decider::Decider, error::Failure, shared::Shared};
use crate::algorithm::Portable;
use crate::error::{ConfigError, StoreError};
use crate::store::remote::{self, Server};

/// A change of a quota holds until the next one.
const CHANGE_TTL: Duration = Duration::from_secs(20 * 365 * 86_400);
/// What the name of such a value ends with.
const CHANGE_SUFFIX: &str = ":quota";

/// The name of the value that a change of the quota of a limit is stored in.
pub(in crate::store) fn change_key(prefix: &str, name: &str) -> Arc<str> {
    format!("{{{prefix}:{name}}}{CHANGE_SUFFIX}").into()
}

/// Whether a value is such a change. The names of keys end with a brace.
#[cfg(feature = "postgres")]
pub(super) fn is_change_key(key: &str) -> bool {
    key.ends_with(CHANGE_SUFFIX)
}

/// An algorithm, and the store of its states.
pub(in crate::store) struct CasPolicy<S: CasStore, A> {
    pub(in crate::store) decider: Decider<A>,
    shared: Arc<Shared<S>>,
    /// Where a change of the quota is stored.
    change_key: Arc<str>,
}

impl<S: CasStore, A: Portable> CasPolicy<S, A> {
    pub(in crate::store) fn new(
        decider: Decider<A>,
        shared: Arc<Shared<S>>,
        change_key: Arc<str>,
    ) -> Self {
        Self {
            decider,
            shared,
            change_key,
        }
    }
}

impl<S: CasStore, A: Portable> remote::Policy for CasPolicy<S, A> {
    type Algorithm = A;

    const STORE: &'static str = S::NAME;

    fn algorithm(&self) -> &A {
        &self.decider.algorithm
    }

    fn with_algorithm(&self, algorithm: A) -> Self {
        Self {
            decider: Decider::of_same_type(algorithm),
            shared: Arc::clone(&self.shared),
            change_key: Arc::clone(&self.change_key),
        }
    }

    fn prepared(algorithm: A) -> Result<A, ConfigError> {
        algorithm.validate().map(|()| algorithm)
    }

    fn is_unavailable(&self) -> bool {
        self.shared.breakers.is_open(&Server::Single)
    }

    async fn load_change(&self) -> Result<String, StoreError> {
        let shared = &self.shared;
        let loaded = shared.call(shared.store.load(&self.change_key)).await?;
        let Some(value) = loaded.value else {
            return Ok(String::new());
        };
        String::from_utf8(value.bytes).map_err(|_| Failure::Damaged.in_store(S::NAME))
    }

    async fn store_change(&self, change: Option<String>) -> Result<(), StoreError> {
        let shared = &self.shared;
        let bytes = change.unwrap_or_default().into_bytes();
        let mut loaded = shared.call(shared.store.load(&self.change_key)).await?;
        loop {
            let expected = loaded.value.map(|value| value.version);
            let new = Value::new(shared.next_version(), bytes.clone());
            let swap = shared
                .store
                .swap(&self.change_key, expected, &new, CHANGE_TTL);
            match shared.call(swap).await? {
                Swapped::Done(_) => return Ok(()),
                Swapped::Conflict(Some(current)) => loaded = current,
                Swapped::Conflict(None) => {
                    loaded = shared.call(shared.store.load(&self.change_key)).await?;
                }
            }
        }
    }
}

/// Manual impl: the store may hold a password.
impl<S: CasStore, A: fmt::Debug> fmt::Debug for CasPolicy<S, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CasPolicy")
            .field("decider", &self.decider)
            .finish_non_exhaustive()
    }
}
