//! The standard library's synchronisation, or that of loom or shuttle when their models are checked.

#[cfg(not(all(test, any(tower_throttle_loom, tower_throttle_shuttle))))]
pub(crate) use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering, fence},
};

#[cfg(all(test, tower_throttle_loom))]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU64, Ordering, fence},
};
#[cfg(all(test, tower_throttle_shuttle))]
pub(crate) use shuttle::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU64, Ordering, fence},
};
#[cfg(all(test, any(tower_throttle_loom, tower_throttle_shuttle)))]
pub(crate) use std::sync::PoisonError;

/// Locks, whatever a panic elsewhere has done: every critical section of this crate leaves its data
/// valid at each step, so a poisoned lock holds nothing worse than a request that was counted.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets another thread finish what this one waits for: a few turns of the loop, then the
/// scheduler's help.
#[cold]
pub(crate) fn backoff(turns: &mut u32) {
    #[cfg(not(all(test, any(tower_throttle_loom, tower_throttle_shuttle))))]
    if *turns < 64 {
        *turns += 1;
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
    #[cfg(all(test, tower_throttle_loom))]
    {
        *turns += 1;
        loom::thread::yield_now();
    }
    #[cfg(all(test, tower_throttle_shuttle))]
    {
        *turns += 1;
        shuttle::thread::yield_now();
    }
}
