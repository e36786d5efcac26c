//! The settings of the limits in a store.

use std::{sync::Arc, time::Duration};

use crate::error::{ConfigError, expect_valid};
use crate::store::remote::Breakers;

/// The settings of the limits in a store, unless they set others: the start of the names of their keys, how long a call may
/// take, and which circuit breakers they share. [`Redis`](crate::store::redis::Redis) changes them.
#[derive(Clone, Debug)]
pub struct Settings {
    pub(in crate::store) prefix: String,
    pub(in crate::store) deadline: Duration,
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
            has_own_threads: false,
            breakers: Arc::new(Breakers::new(store, false)),
        }
    }
}

/// What a setting of a limit changes, or a panic if a clone or a task shares it already.
#[track_caller]
pub(in crate::store) fn expect_unused<T>(shared: &mut Arc<T>) -> &mut T {
    expect_valid(Arc::get_mut(shared).ok_or_else(|| {
        let instead = "set it before the first use and before the first clone";
        ConfigError::unsupported("a setting of a limit that was used or cloned", instead)
    }))
}
