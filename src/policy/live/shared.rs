//! What the layer, the services and the handles of a file share.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering},
};

use super::environment::Environment;
use super::generation::Generation;
use super::reload::OpenStores;
use crate::sync::Swap;

/// Shared by a layer, its clones, its services and its handles.
pub(super) struct Shared {
    pub(super) current: Swap<Generation>,
    pub(super) environment: Environment,
    /// How many files were given so far.
    pub(super) given: AtomicU64,
    /// Locked while the limits of a file are built, one file after the other.
    pub(super) loaded: Mutex<Loaded>,
    pub(super) denied: AtomicU64,
}

/// What the file that was loaded last leaves for the next one.
#[derive(Default)]
pub(super) struct Loaded {
    /// Its number among those that were given.
    pub(super) number: u64,
    pub(super) open_stores: OpenStores,
}

impl Shared {
    pub(super) fn current(&self) -> Arc<Generation> {
        self.current.get()
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
