//! Huge pages for the memory of a large table.
//!
//! A decision in a large table reads one random cache line. With pages of 4 KiB, the translation of
//! its address is usually not in the processor's buffer (TLB), and walking the page table takes a
//! second access to memory. With pages of 2 MiB it takes none. Most systems give them only to
//! memory that asks for them (`/sys/kernel/mm/transparent_hugepage/enabled` is `madvise`).

/// Smaller tables do not gain: their page tables fit the processor's caches.
const LEAST_BYTES: usize = 32 << 20;

/// The size and alignment of a huge page. A range of these is also a range of small pages,
/// whatever their size.
const HUGE_PAGE: usize = 2 << 20;

/// An empty vector for `len` elements. If it is large, the system is asked to use huge pages for
/// it. Must be called before the memory is written, because later nothing changes at once.
pub(super) fn vec_with_huge_pages<T>(len: usize) -> Vec<T> {
    let mut vec = Vec::with_capacity(len);
    let spare = vec.spare_capacity_mut();
    if size_of_val(spare) >= LEAST_BYTES {
        advise(spare);
    }
    vec
}

/// The largest range of whole huge pages in `bytes` bytes from `start` on: its offset and its
/// length.
fn huge_range(start: usize, bytes: usize) -> (usize, usize) {
    let offset = start.next_multiple_of(HUGE_PAGE) - start;
    let pages = bytes.saturating_sub(offset) / HUGE_PAGE;
    (offset, pages * HUGE_PAGE)
}

#[cfg(all(
    target_os = "linux",
    not(miri),
    not(all(test, any(tower_throttle_loom, tower_throttle_shuttle)))
))]
#[expect(
    unsafe_code,
    reason = "std has no `madvise`, and the crate libc would be one more dependency"
)]
fn advise<T>(memory: &mut [T]) {
    use std::ffi::{c_int, c_void};

    /// The value on every Linux system that Rust supports.
    const MADV_HUGEPAGE: c_int = 14;

    unsafe extern "C" {
        fn madvise(start: *mut c_void, bytes: usize, advice: c_int) -> c_int;
    }

    let start = memory.as_mut_ptr();
    let (offset, bytes) = huge_range(start.addr(), size_of_val(memory));
    // SAFETY: `madvise` is in the C library that std links, with this signature. The range is
    // within `memory`, which is borrowed mutably. This advice changes neither its contents nor its
    // permissions, only the size of the pages that the kernel may use. An error means that the
    // kernel does not use them.
    let _ = unsafe {
        madvise(
            start.cast::<u8>().wrapping_add(offset).cast(),
            bytes,
            MADV_HUGEPAGE,
        )
    };
}

/// Other systems have no such advice, and models and Miri do not know it.
#[cfg(not(all(
    target_os = "linux",
    not(miri),
    not(all(test, any(tower_throttle_loom, tower_throttle_shuttle)))
)))]
fn advise<T>(memory: &mut [T]) {
    let _ = huge_range(memory.as_ptr().addr(), size_of_val(memory));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_holds_every_whole_huge_page_and_no_other_memory() {
        let page = HUGE_PAGE;
        assert_eq!(huge_range(3 * page, 5 * page), (0, 5 * page));
        assert_eq!(huge_range(3 * page, 5 * page + 64), (0, 5 * page));
        assert_eq!(huge_range(3 * page + 64, 5 * page), (page - 64, 4 * page));
        assert_eq!(huge_range(4 * page - 64, 64 + page), (64, page));
        assert_eq!(huge_range(3 * page + 64, page - 64).1, 0);
        assert_eq!(huge_range(3 * page + 64, 64).1, 0);
    }
}
