//! Prefetch hints.
//!
//! The data of a waiter in a queue, and the set of a random key in a large table, have usually left
//! the caches, so each access waits for memory. If the next accesses are known, the memory can be
//! fetched in the meantime.

/// The size of a cache line in bytes.
#[cfg(target_arch = "x86_64")]
const CACHE_LINE: usize = 64;

/// Prefetches `bytes` bytes from `start` on.
#[cfg(target_arch = "x86_64")]
#[expect(
    unsafe_code,
    reason = "the intrinsic takes a raw pointer and has no safe form"
)]
#[inline]
pub(crate) fn prefetch<T>(start: *const T, bytes: usize) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

    let start = start.cast::<i8>();
    for offset in (0..bytes).step_by(CACHE_LINE) {
        // SAFETY: a prefetch is a hint. It has no visible effect and faults at no address, so the
        // pointer need not be valid. Every x86-64 processor has the instruction.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(offset)) };
    }
}

/// Stable Rust has no prefetch for other architectures.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn prefetch<T>(_: *const T, _: usize) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefetch_accepts_any_address() {
        let here = [1_u64, 2, 3];
        for bytes in [0, 1, 64, 1_000] {
            prefetch(here.as_ptr(), bytes);
            prefetch(std::ptr::null::<u64>(), bytes);
            prefetch(std::ptr::without_provenance::<u64>(usize::MAX), bytes);
        }
        assert_eq!(here, [1, 2, 3]);
    }
}
