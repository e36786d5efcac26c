//! A value that can be replaced while it is read.

use std::fmt;
use std::sync::Arc;

use crate::sync::Swap;

/// A list that can be replaced while requests are served.
///
/// Clones share the list. `examples/axum/lists.rs` loads it from a file again when that changes.
///
/// ```
/// use tower_throttle::key::{Networks, Watched};
///
/// let blocked = Watched::new(Networks::new(["203.0.113.0/24"]));
/// let same = blocked.clone();
/// blocked.set(Networks::new(["198.51.100.0/24"]));
/// assert!(same.get().contains("198.51.100.7".parse().unwrap()));
/// ```
#[derive(Clone)]
pub struct Watched<T>(Arc<Swap<T>>);

impl<T> Watched<T> {
    /// A list to begin with.
    pub fn new(list: T) -> Self {
        Self(Arc::new(Swap::new(list)))
    }

    /// Replaces the list. A request that is being compared with the old one is not affected.
    pub fn set(&self, list: T) {
        self.0.set(list);
    }

    /// The present list.
    pub fn get(&self) -> Arc<T> {
        self.0.get()
    }

    /// Reads the present list without counting a reference to it.
    pub(super) fn read<R>(&self, read: impl FnOnce(&T) -> R) -> R {
        self.0.read(read)
    }
}

impl<T> From<&Self> for Watched<T> {
    fn from(list: &Self) -> Self {
        Self(Arc::clone(&list.0))
    }
}

impl<T> From<T> for Watched<T> {
    fn from(list: T) -> Self {
        Self::new(list)
    }
}

/// Manual impl: a list may be long, and keys must not be logged.
impl<T> fmt::Debug for Watched<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").finish_non_exhaustive()
    }
}
