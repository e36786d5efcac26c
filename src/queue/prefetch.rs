//! Tells the processor what is needed soon.
//!
//! What waits has not been looked at for a while, so that each look is a wait for memory. Where it
//! is known beforehand what will be looked at, the memory can arrive meanwhile.

/// Of a cache, in bytes.
#[cfg(target_arch = "x86_64")]
const CACHE_LINE: usize = 64;

/// Lets the memory come, so many bytes from there on.
#[cfg(target_arch = "x86_64")]
#[expect(
    unsafe_code,
    reason = "the hint has no safe form, for its pointer may be any"
)]
#[inline]
pub(super) fn fetch<T>(start: *const T, bytes: usize) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

    let start = start.cast::<i8>();
    for offset in (0..bytes).step_by(CACHE_LINE) {
        // SAFETY: a hint to the processor. It reads nothing that the program could see, faults at
        // no address, and is part of every x86-64; so the pointer need not be valid, and it is not
        // known whether it is.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(offset)) };
    }
}

/// There is no such hint in the language for others.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn fetch<T>(_: *const T, _: usize) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_address_will_do() {
        let here = [1_u64, 2, 3];
        for bytes in [0, 1, 64, 1_000] {
            fetch(here.as_ptr(), bytes);
            fetch(std::ptr::null::<u64>(), bytes);
            fetch(std::ptr::without_provenance::<u64>(usize::MAX), bytes);
        }
        assert_eq!(here, [1, 2, 3]);
    }
}
