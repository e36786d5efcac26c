//! The standard library's synchronisation, or loom's when its models are checked.

#[cfg(not(all(test, tower_throttle_loom)))]
pub(crate) use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering, fence},
};

#[cfg(all(test, tower_throttle_loom))]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU64, Ordering, fence},
};
#[cfg(all(test, tower_throttle_loom))]
pub(crate) use std::sync::PoisonError;

/// Locks, whatever a panic elsewhere has done: every critical section of this crate leaves its data
/// valid at each step, so a poisoned lock holds nothing worse than a request that was counted.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets another thread finish what this one waits for: a few turns of the loop, then the
/// scheduler's help.
#[cold]
pub(crate) fn wait_a_little(turns: &mut u32) {
    #[cfg(not(all(test, tower_throttle_loom)))]
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
}
