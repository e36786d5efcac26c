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

/// Locks a mutex that many threads hold for a few nanoseconds each. Calls `waited` if another one held it.
#[inline]
pub(crate) fn lock_busy<T>(mutex: &Mutex<T>, waited: impl Fn(&mut T)) -> MutexGuard<'_, T> {
    try_lock(mutex).unwrap_or_else(|| {
        let mut guard = wait_for(mutex);
        waited(&mut guard);
        guard
    })
}

/// Tries again after longer and longer pauses. A mutex of std looks at the lock all the time, so that the processors
/// take it from each other: two threads that are denied on one key would take 1.6 times as long.
#[cold]
fn wait_for<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    for doublings in 1..7 {
        for _ in 0..1 << doublings {
            std::hint::spin_loop();
        }
        if let Some(guard) = try_lock(mutex) {
            return guard;
        }
    }
    lock(mutex)
}

/// Locks a mutex as [`lock`] does, if no other thread holds it.
#[inline]
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
