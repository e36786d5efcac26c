//! How many requests met which fate, counted without a line that all cores fight for.

use std::{
    array,
    cell::Cell,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
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

/// Counters in shards: one for each of the threads that came first, and one for all others.
///
/// A shard of one thread is written by nobody else, so that counting needs no operation that the
/// processors have to agree on; those take a third of what the whole decision does.
#[derive(Debug)]
pub(crate) struct Counters {
    /// The last one is the shared one.
    shards: Box<[Shard]>,
}

/// On a cache line of its own; two, since processors fetch them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard([AtomicU64; 6]);

impl Counters {
    pub(super) fn new() -> Self {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        // The workers, and as many that come and go.
        let own = (2 * threads).clamp(4, 64);
        Self {
            shards: (0..=own).map(|_| Shard::default()).collect(),
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
        let number = thread_index();
        let shared = self.shards.len() - 1;
        if number < shared {
            let count = &self.shards[number].0[fate];
            // No other thread has this number.
            count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        } else {
            self.shards[shared].0[fate].fetch_add(1, Ordering::Relaxed);
        }
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

/// The number of this thread, that no other living thread has.
#[inline]
fn thread_index() -> usize {
    let number = THREAD_INDEX.get();
    if number == UNASSIGNED {
        numbered()
    } else {
        number
    }
}

thread_local! {
    static THREAD_INDEX: Cell<usize> = const { Cell::new(UNASSIGNED) };
    /// Gives the number back when the thread ends.
    static INDEX_GUARD: ThreadIndexGuard = const { ThreadIndexGuard };
}

const UNASSIGNED: usize = usize::MAX;
/// Counts with all others.
const NO_INDEX: usize = usize::MAX - 1;

/// The numbers that were given back, and the next one that nobody has had.
static FREE_INDEXES: Mutex<(Vec<usize>, usize)> = Mutex::new((Vec::new(), 0));

struct ThreadIndexGuard;

/// Takes the least free number: while few threads live at a time, the numbers stay small.
#[cold]
#[inline(never)]
fn numbered() -> usize {
    // In a thread that is being taken down nobody would give the number back.
    let number = if INDEX_GUARD.try_with(|_| ()).is_ok() {
        let (free, next) = &mut *FREE_INDEXES.lock().unwrap_or_else(PoisonError::into_inner);
        let least = (0..free.len()).min_by_key(|at| free[*at]);
        least.map_or_else(
            || {
                *next += 1;
                *next - 1
            },
            |at| free.swap_remove(at),
        )
    } else {
        NO_INDEX
    };
    THREAD_INDEX.set(number);
    number
}

impl Drop for ThreadIndexGuard {
    fn drop(&mut self) {
        // What this thread counts after this, it counts with all others. The lock orders what it
        // has counted before what the next owner of the number will count.
        let number = THREAD_INDEX.replace(NO_INDEX);
        let mut free = FREE_INDEXES.lock().unwrap_or_else(PoisonError::into_inner);
        free.0.push(number);
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, sync::Barrier};

    use super::*;

    #[test]
    fn counts_of_all_threads_are_summed() {
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

    #[test]
    fn live_threads_have_unique_indexes_and_dead_ones_are_reused() {
        let mut most = 0;
        for _ in 0..50 {
            let all_there = Barrier::new(4);
            let numbers: Vec<_> = thread::scope(|scope| {
                let begun: Vec<_> = (0..4)
                    .map(|_| {
                        scope.spawn(|| {
                            let number = thread_index();
                            all_there.wait();
                            assert_eq!(thread_index(), number);
                            number
                        })
                    })
                    .collect();
                begun.into_iter().map(|one| one.join().unwrap()).collect()
            });
            let different: HashSet<_> = numbers.iter().collect();
            assert_eq!(different.len(), 4, "{numbers:?}");
            most = most.max(*numbers.iter().max().unwrap());
        }
        // Other tests run beside this one; 200 threads have come and gone here.
        assert!(most < 100, "{most}");
    }

    #[test]
    fn more_threads_than_shards_lose_no_counts() {
        let counters = Counters::new();
        let threads = counters.shards.len() + 8;
        let all_there = Barrier::new(threads);
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    thread_index();
                    all_there.wait();
                    (0..1_000).for_each(|_| counters.admitted());
                });
            }
        });
        assert_eq!(counters.read().admitted, 1_000 * threads as u64);
    }
}
