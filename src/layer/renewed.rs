//! What a policy file needs of a layer: another version of it, and a handle of its limit.

use std::sync::Arc;

use super::options::LayerOptions;
use super::{LimitHandle, RateLimitLayer};

impl<K, L, R> RateLimitLayer<K, L, R> {
    /// Another layer of the same limit, with its usage, counters and queues. Settings begin with their
    /// defaults.
    pub(crate) fn renewed<T>(&self, keys: K, respond: T) -> RateLimitLayer<K, L, T> {
        RateLimitLayer {
            keys,
            respond,
            options: LayerOptions::default(),
            seats: None,
            state: Arc::clone(&self.state),
        }
    }

    pub(crate) fn backend(&self) -> &L {
        &self.state.backend
    }

    /// A handle of the limit that `part` finds in the backend.
    pub(crate) fn part_handle<Q, P>(
        &self,
        part: impl FnOnce(&L) -> Option<&P>,
    ) -> Option<LimitHandle<'_, Q, P>> {
        let state = &self.state;
        let part = part(&*state.backend)?;
        Some(LimitHandle::new(part, state.shared()))
    }
}
