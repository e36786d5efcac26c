//! Synchronization primitives of the standard library, or of loom in its models.

mod swap;

pub(crate) use self::swap::Swap;

#[cfg(not(all(test, tower_throttle_loom)))]
pub(crate) use std::sync::{
    Mutex, MutexGuard, PoisonError, TryLockError,
    atomic::{AtomicU64, Ordering},
};

#[cfg(all(test, tower_throttle_loom))]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU64, Ordering},
};
#[cfg(all(test, tower_throttle_loom))]
pub(crate) use std::sync::{PoisonError, TryLockError};

/// A value that shares no cache line with others: a write to one of them would make all processors
/// fetch the line again.
///
/// Aligned to two cache lines, since processors fetch them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct CachePadded<T>(pub(crate) T);

/// Locks a mutex and ignores poisoning.
///
/// Every critical section of this crate keeps its data valid at each step. The worst effect of a
/// panic in one is that a request was counted although it failed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks a mutex as [`lock`] does, if no other thread holds it.
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
