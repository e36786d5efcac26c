//! What a policy file needs of a layer: another version of it.

use super::options::LayerOptions;
use super::{LimitLayer, Limiting};

impl<K, G: Limiting, R> LimitLayer<K, G, R> {
    /// Another layer of the same limit, with its usage, counters and queues. Settings of requests begin
    /// with their defaults.
    pub(crate) fn renewed<T>(&self, keys: K, respond: T) -> LimitLayer<K, G, T> {
        LimitLayer {
            keys,
            respond,
            options: LayerOptions::default(),
            seats: None,
            gate: self.gate.clone(),
        }
    }

    pub(crate) fn limiter(&self) -> &G::Limiter {
        &self.gate.state().backend
    }
}
