//! The bytes that the process has allocated.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicI64, Ordering},
};

struct Counting;

static LIVE: AtomicI64 = AtomicI64::new(0);

fn add(layout: Layout, sign: i64) {
    let bytes = i64::try_from(layout.size()).unwrap_or(i64::MAX);
    LIVE.fetch_add(sign * bytes, Ordering::Relaxed);
}

pub(crate) fn allocated() -> i64 {
    LIVE.load(Ordering::Relaxed)
}

#[expect(unsafe_code, reason = "this test counts allocated bytes")]
// SAFETY: every call is forwarded to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout, 1);
        // SAFETY: the caller upholds the contract of the same method.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        add(layout, -1);
        // SAFETY: the caller upholds the contract of the same method.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;
