//! A value that can be replaced while it is read.

use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};

/// A reader keeps the value that it got, also after it was replaced.
#[derive(Debug, Default)]
pub(crate) struct Swap<T>(RwLock<Arc<T>>);

impl<T> Swap<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(RwLock::new(Arc::new(value)))
    }

    pub(crate) fn get(&self) -> Arc<T> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the value without counting a reference to it.
    pub(crate) fn read<R>(&self, read: impl FnOnce(&T) -> R) -> R {
        // A panic of a reader leaves a whole value.
        read(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn set(&self, value: T) {
        let replaced = std::mem::replace(&mut *self.write(), Arc::new(value));
        // Without the lock: that may take long.
        drop(replaced);
    }

    /// Changes a copy of the value if a reader has it, and else the value itself.
    pub(crate) fn update<R>(&self, change: impl FnOnce(&mut T) -> R) -> R
    where
        T: Clone,
    {
        change(Arc::make_mut(&mut self.write()))
    }

    fn write(&self) -> RwLockWriteGuard<'_, Arc<T>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}
