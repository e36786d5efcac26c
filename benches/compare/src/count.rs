//! Counts allocations of the current thread, and the bytes that stay allocated.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Bytes allocated and not yet freed since counting began.
static LIVE: AtomicI64 = AtomicI64::new(0);
static COUNTS: AtomicBool = AtomicBool::new(false);

fn note(bytes: usize, sign: i64) {
    if COUNTS.load(Ordering::Relaxed) {
        LIVE.fetch_add(sign * bytes as i64, Ordering::Relaxed);
    }
}

// SAFETY: every call is forwarded unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        note(layout.size(), 1);
        // SAFETY: the caller upholds the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        note(layout.size(), -1);
        note(size, 1);
        // SAFETY: the caller upholds the contract.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        note(layout.size(), 1);
        // SAFETY: the caller upholds the contract. Forwarded so that a large table of zeros is not
        // written.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        note(layout.size(), -1);
        // SAFETY: the caller upholds the contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Allocations of this thread so far.
pub(crate) fn allocations() -> u64 {
    ALLOCATIONS.get()
}

/// Starts counting the bytes that stay allocated, of all threads.
pub(crate) fn count_live() {
    LIVE.store(0, Ordering::Relaxed);
    COUNTS.store(true, Ordering::Relaxed);
}

/// Stops counting. Returns the bytes that are still allocated.
pub(crate) fn live() -> i64 {
    COUNTS.store(false, Ordering::Relaxed);
    LIVE.load(Ordering::Relaxed)
}
