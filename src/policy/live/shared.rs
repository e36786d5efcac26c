//! What the layer, the services and the handles of a file share.

use std::sync::{
    Arc, Mutex, PoisonError, RwLock,
    atomic::{AtomicU64, Ordering},
};

use super::environment::Environment;
use super::generation::Generation;
use super::reload::OpenStores;

/// Shared by a layer, its clones, its services and its handles.
pub(super) struct Shared {
    pub(super) current: RwLock<Arc<Generation>>,
    pub(super) environment: Environment,
    /// Locked while a file is loaded, one after the other.
    pub(super) open_stores: Mutex<OpenStores>,
    pub(super) denied: AtomicU64,
}

impl Shared {
    pub(super) fn current(&self) -> Arc<Generation> {
        let current = self.current.read();
        Arc::clone(&current.unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn record_denied_client(&self) {
        self.denied.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn names(&self) -> Vec<String> {
        let generation = self.current();
        let limits = generation.limits.iter();
        limits.map(|active| active.limit.name.clone()).collect()
    }
}
