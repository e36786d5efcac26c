//! What a thread has last read of a few tables, so that reading it again needs no lock.
//!
//! A reader takes its copy out of the cache and puts it back after use: that costs neither a write
//! to shared memory nor a reference count. A cached copy keeps an old algorithm in memory until the
//! thread uses the table again, uses another table with the same place, or ends.

use std::any::Any;
use std::cell::Cell;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(all(test, tower_throttle_loom))]
use loom::thread_local;
#[cfg(all(test, tower_throttle_shuttle))]
use shuttle::thread_local;

/// The number of tables that a thread remembers.
const PLACES: usize = 8;

type Cache = [Cell<Option<Entry>>; PLACES];

#[cfg(not(all(test, any(tower_throttle_loom, tower_throttle_shuttle))))]
thread_local! {
    static CACHE: Cache = const { [const { Cell::new(None) }; PLACES] };
}

#[cfg(all(test, any(tower_throttle_loom, tower_throttle_shuttle)))]
thread_local! {
    static CACHE: Cache = Cache::default();
}

struct Entry {
    owner: u64,
    value: Arc<dyn Any + Send + Sync>,
}

/// The number of a table, for [`take`] and [`Loan`].
pub(super) fn new_owner() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A value that was taken from the cache of this thread or from the table. Goes to the cache when
/// it is dropped.
#[derive(Debug)]
pub(super) struct Loan<T: Any + Send + Sync> {
    owner: u64,
    /// `None` only while it is dropped.
    value: Option<Arc<T>>,
}

impl<T: Any + Send + Sync> Loan<T> {
    pub(super) const fn new(owner: u64, value: Arc<T>) -> Self {
        Self {
            owner,
            value: Some(value),
        }
    }
}

impl<T: Any + Send + Sync> Deref for Loan<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.value.as_deref().expect("set until it is dropped")
    }
}

impl<T: Any + Send + Sync> Drop for Loan<T> {
    #[inline]
    fn drop(&mut self) {
        if let Some(value) = self.value.take() {
            put(self.owner, value);
        }
    }
}

/// Takes the value of this table out of the cache of this thread.
///
/// The cache is empty during the destruction of a thread, and for a table while an algorithm uses
/// its own table.
pub(super) fn take<T: Any + Send + Sync>(owner: u64) -> Option<Arc<T>> {
    let entry = CACHE.try_with(|cache| place(cache, owner).take());
    let entry = entry.ok().flatten()?;
    if entry.owner == owner {
        return entry.value.downcast().ok();
    }
    put(entry.owner, entry.value);
    None
}

fn put(owner: u64, value: Arc<dyn Any + Send + Sync>) {
    let entry = Entry { owner, value };
    // The previous entry is dropped here, after the place has its new one: that may run user code.
    let _ = CACHE.try_with(|cache| place(cache, owner).replace(Some(entry)));
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the remainder is below the number of places"
)]
fn place(cache: &Cache, owner: u64) -> &Cell<Option<Entry>> {
    &cache[(owner % PLACES as u64) as usize]
}

#[cfg(all(test, not(tower_throttle_loom), not(tower_throttle_shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn a_loan_returns_to_the_cache_and_only_to_its_owner() {
        let (owner, other) = (new_owner(), new_owner() + PLACES as u64 * 1_000_000);
        let value = Arc::new(7_u32);
        drop(Loan::new(owner, Arc::clone(&value)));
        assert_eq!(Arc::strong_count(&value), 2, "cached");
        assert_eq!(take::<u32>(owner + PLACES as u64), None, "another table");
        let taken = take::<u32>(owner).expect("cached");
        assert_eq!(take::<u32>(owner), None, "in use");
        drop(Loan::new(owner, taken));
        assert_eq!(take::<u64>(owner), None, "another type");
        assert_eq!(take::<u32>(other), None);
    }

    #[test]
    fn a_cache_holds_one_value_per_place() {
        let first = new_owner();
        let values: Vec<_> = (0..4_u64).map(Arc::new).collect();
        for (turn, value) in (0..).zip(&values) {
            let owner = first + turn * PLACES as u64;
            drop(Loan::new(owner, Arc::clone(value)));
        }
        let held = values.iter().filter(|value| Arc::strong_count(value) > 1);
        assert_eq!(held.count(), 1);
    }
}
