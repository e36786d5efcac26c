//! The standard library's synchronisation, or loom's when its models are checked.

#[cfg(not(all(test, tower_throttle_loom)))]
pub(crate) use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering},
};

#[cfg(all(test, tower_throttle_loom))]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU64, Ordering},
};
#[cfg(all(test, tower_throttle_loom))]
pub(crate) use std::sync::PoisonError;

/// Locks, whatever a panic elsewhere has done: every critical section of this crate leaves its data
/// valid at each step, so a poisoned lock holds nothing worse than a request that was counted.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
