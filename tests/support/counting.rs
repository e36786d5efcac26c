//! An allocator that counts, for tests.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    sync::atomic::{AtomicI64, Ordering},
};

/// A test binary that counts says `#[global_allocator] static COUNTING: Counting = Counting;`.
#[derive(Debug)]
pub struct Counting;

thread_local! {
    /// How often this thread has allocated.
    pub static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
    /// How much it has allocated.
    pub static BYTES: Cell<usize> = const { Cell::new(0) };
    /// How much of it is left: less than nothing if it has freed what others allocated.
    pub static LIVE: Cell<i64> = const { Cell::new(0) };
    /// The most that was left of it since [`peak_of`] began.
    static PEAK: Cell<i64> = const { Cell::new(0) };
}

/// What is left of all that the process has allocated.
static PROCESS_LIVE: AtomicI64 = AtomicI64::new(0);

/// The bytes that the process has allocated and not freed.
pub fn process_live() -> i64 {
    PROCESS_LIVE.load(Ordering::Relaxed)
}

/// How many bytes `run` allocated at once, in this thread: others may free theirs meanwhile.
pub fn peak_of<T>(run: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE.get();
    PEAK.set(before);
    let made = run();
    let most = usize::try_from(PEAK.get() - before);
    (made, most.expect("no less than before"))
}

/// Notes that a block was allocated, or freed if `sign` is negative.
fn add(layout: Layout, sign: i64) {
    let bytes = sign * i64::try_from(layout.size()).unwrap_or(i64::MAX);
    let live = LIVE.try_with(|live| {
        live.set(live.get() + bytes);
        live.get()
    });
    let _ = PEAK.try_with(|peak| peak.set(peak.get().max(live.unwrap_or(0))));
    PROCESS_LIVE.fetch_add(bytes, Ordering::Relaxed);
}

// SAFETY: every call is forwarded unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let size = layout.size();
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        let _ = BYTES.try_with(|bytes| bytes.set(bytes.get() + size));
        add(layout, 1);
        // SAFETY: the caller upholds the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        add(layout, -1);
        // SAFETY: the caller upholds the contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}
