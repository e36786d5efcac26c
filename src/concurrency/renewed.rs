//! What a policy file needs of a layer: another version of it.

use std::{marker::PhantomData, sync::Arc};

use super::ConcurrencyLayer;
use super::state::Options;

impl<K, R: Clone, H> ConcurrencyLayer<K, R, H> {
    /// Another layer of the same limit, with its permits, counters and queues. Settings begin with their
    /// defaults.
    pub(crate) fn renewed(&self, keys: K) -> Self {
        Self {
            keys,
            respond: self.respond.clone(),
            options: Options::default(),
            seats: None,
            state: Arc::clone(&self.state),
            hold: PhantomData,
        }
    }
}
