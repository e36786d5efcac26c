//! The settings of the limits in a store.

use std::{sync::Arc, time::Duration};

use crate::store::remote::Breakers;

/// The settings of the limits in a store: the start of the names of their keys, how long a call may take, and which
/// circuit breakers they share. [`CasBuilder`](super::CasBuilder) and [`Redis`](crate::store::redis::Redis) change them.
#[derive(Clone, Debug)]
pub struct Settings {
    pub(in crate::store) prefix: String,
    pub(in crate::store) deadline: Duration,
    /// Of how many keys the last record is kept.
    pub(in crate::store) cached_keys: usize,
    pub(in crate::store) caches_denials: bool,
    /// Whether batches run on threads of this crate. A runtime that is busy must neither delay all its calls nor hold locks.
    pub(in crate::store) has_own_threads: bool,
    pub(in crate::store) breakers: Arc<Breakers>,
}

impl Settings {
    /// Those of the limits in a store of this name, unless something else is set.
    pub fn new(store: &'static str) -> Self {
        Self {
            prefix: "throttle".to_owned(),
            deadline: Duration::from_millis(100),
            cached_keys: 10_000,
            caches_denials: true,
            has_own_threads: false,
            breakers: Arc::new(Breakers::new(store, false)),
        }
    }
}
