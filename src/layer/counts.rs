//! How many requests met which fate, counted without a line that all cores fight for.

use std::{
    array,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
    thread,
};

/// How many requests met which fate since the layer was made.
///
/// A shadowed denial counts as denied. Requests that are being counted by other threads at the
/// moment of reading may be missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// They went on at once.
    pub admitted: u64,
    /// They had to wait for their turn.
    pub waited: u64,
    /// A limit turned them away.
    pub denied: u64,
    /// They had no key and were turned away.
    pub rejected: u64,
    /// They were not limited.
    pub skipped: u64,
    /// The limiter could not decide about them.
    pub store_errors: u64,
}

/// Counters in shards, of which each thread uses one.
#[derive(Debug)]
pub(crate) struct Counters {
    /// A power of two of them.
    shards: Box<[Shard]>,
}

/// On a cache line of its own; two, since processors fetch them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard([AtomicU64; 6]);

impl Counters {
    pub(super) fn new() -> Self {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let shards = threads.next_power_of_two().min(64);
        Self {
            shards: (0..shards).map(|_| Shard::default()).collect(),
        }
    }

    #[inline]
    pub(super) fn admitted(&self) {
        self.count(0);
    }

    #[inline]
    pub(super) fn waited(&self) {
        self.count(1);
    }

    #[inline]
    pub(super) fn denied(&self) {
        self.count(2);
    }

    pub(super) fn rejected(&self) {
        self.count(3);
    }

    #[inline]
    pub(super) fn skipped(&self) {
        self.count(4);
    }

    pub(super) fn failed(&self) {
        self.count(5);
    }

    #[inline]
    fn count(&self, fate: usize) {
        let shard = &self.shards[thread_number() & (self.shards.len() - 1)];
        shard.0[fate].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Counts {
        let [admitted, waited, denied, rejected, skipped, store_errors] = array::from_fn(|fate| {
            let shards = self.shards.iter();
            shards
                .map(|shard| shard.0[fate].load(Ordering::Relaxed))
                .fold(0, u64::wrapping_add)
        });
        Counts {
            admitted,
            waited,
            denied,
            rejected,
            skipped,
            store_errors,
        }
    }
}

/// Threads are numbered as they come, so that the first ones all have a shard to themselves.
#[inline]
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    // A thread that is being taken down counts with the first.
    NUMBER.try_with(|number| *number).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_count_into_one_sum() {
        let counters = Counters::new();
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..1_000 {
                        counters.admitted();
                        counters.denied();
                    }
                });
            }
        });
        let counts = counters.read();
        assert_eq!((counts.admitted, counts.denied), (8_000, 8_000));
        assert_eq!((counts.waited, counts.skipped), (0, 0));
    }
}
