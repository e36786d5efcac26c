//! How many requests were admitted, denied, and so on, counted without contention between threads.

use std::{
    cell::Cell,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use crate::sync::CachePadded;

/// How many requests had each outcome since the layer was made.
///
/// Requests that other threads are counting at the moment of reading may be missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Went on at once.
    pub admitted: u64,
    /// Had to wait for their turn.
    pub waited: u64,
    /// Denied by a limit.
    pub denied: u64,
    /// Had no key and were rejected.
    pub rejected: u64,
    /// Were not limited.
    pub skipped: u64,
    /// The backend could not decide about them.
    pub store_errors: u64,
    /// Carried the client's address in a header that the key extractor ignores, such as
    /// `X-Forwarded-For` with [`ClientIp::peer`](crate::ClientIp::peer). If this is not 0, the
    /// application is probably behind a proxy whose clients all share one limit: use
    /// [`ClientIp::x_forwarded_for`](crate::ClientIp::x_forwarded_for).
    ///
    /// Only a sample is looked at: per thread, requests up to the 16th admitted one, then about every
    /// 1,024th.
    pub unread_proxy_headers: u64,
    /// Passed at once because of [`shadow`](crate::RateLimitLayer::shadow), and would have waited.
    pub shadow_waited: u64,
    /// Passed because of shadow mode, and would have been denied.
    pub shadow_denied: u64,
    /// Passed because of shadow mode, and would have been rejected.
    pub shadow_rejected: u64,
}

/// Counters in shards: one per thread for the first threads, and a shared one for all others.
///
/// Only one thread writes to a shard of its own, so counting needs no atomic read-modify-write. That
/// would take a third of the time of the whole decision.
#[derive(Debug)]
pub(crate) struct Counters {
    /// The last one is the shared one.
    shards: Box<[CachePadded<[AtomicU64; 10]>]>,
}

impl Counters {
    pub(crate) fn new() -> Self {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        // For the workers, and as many short-lived threads.
        let own = (2 * threads).clamp(4, 64);
        Self {
            shards: (0..=own).map(|_| CachePadded::default()).collect(),
        }
    }

    /// Counts an admitted request. Returns whether it is one of the [sample](Self::is_sampled).
    #[inline]
    pub(crate) fn record_admitted(&self) -> bool {
        is_sampled(self.count(0))
    }

    #[inline]
    pub(crate) fn record_waited(&self, shadow: bool) {
        self.count(if shadow { 7 } else { 1 });
    }

    #[inline]
    pub(crate) fn record_denied(&self, shadow: bool) {
        self.count(if shadow { 8 } else { 2 });
    }

    pub(crate) fn record_rejected(&self, shadow: bool) {
        self.count(if shadow { 9 } else { 3 });
    }

    #[inline]
    pub(crate) fn record_skipped(&self) {
        self.count(4);
    }

    pub(crate) fn record_store_error(&self) {
        self.count(5);
    }

    pub(crate) fn record_unread_proxy_header(&self) {
        self.count(6);
    }

    /// Whether the next request that this thread admits is one of the sample: the first 16, and
    /// every 1,024th.
    #[inline]
    pub(crate) fn is_sampled(&self) -> bool {
        let shard = thread_index().min(self.shards.len() - 1);
        is_sampled(self.shards[shard].0[0].load(Ordering::Relaxed))
    }

    /// Returns the count before.
    #[inline]
    fn count(&self, outcome: usize) -> u64 {
        let number = thread_index();
        let shared = self.shards.len() - 1;
        if number < shared {
            let count = &self.shards[number].0[outcome];
            // Only this thread writes it.
            let before = count.load(Ordering::Relaxed);
            count.store(before.wrapping_add(1), Ordering::Relaxed);
            before
        } else {
            self.shards[shared].0[outcome].fetch_add(1, Ordering::Relaxed)
        }
    }

    pub(crate) fn read(&self) -> Counts {
        let sum = |outcome: usize| {
            let shards = self.shards.iter();
            shards
                .map(|shard| shard.0[outcome].load(Ordering::Relaxed))
                .fold(0, u64::wrapping_add)
        };
        Counts {
            admitted: sum(0),
            waited: sum(1),
            denied: sum(2),
            rejected: sum(3),
            skipped: sum(4),
            store_errors: sum(5),
            unread_proxy_headers: sum(6),
            shadow_waited: sum(7),
            shadow_denied: sum(8),
            shadow_rejected: sum(9),
        }
    }
}

#[inline]
const fn is_sampled(count: u64) -> bool {
    count < 16 || count % 1_024 == 0
}

/// The index of this thread; no other living thread has it.
#[inline]
fn thread_index() -> usize {
    let number = THREAD_INDEX.get();
    if number == UNASSIGNED {
        assign_index()
    } else {
        number
    }
}

thread_local! {
    static THREAD_INDEX: Cell<usize> = const { Cell::new(UNASSIGNED) };
    /// Frees the index when the thread ends.
    static INDEX_GUARD: ThreadIndexGuard = const { ThreadIndexGuard };
}

const UNASSIGNED: usize = usize::MAX;
/// Counts in the shared shard.
const NO_INDEX: usize = usize::MAX - 1;

/// The freed indexes, and the next one that was never used.
static FREE_INDEXES: Mutex<(Vec<usize>, usize)> = Mutex::new((Vec::new(), 0));

struct ThreadIndexGuard;

/// Takes the lowest free index: while few threads live at a time, indexes stay small.
#[cold]
fn assign_index() -> usize {
    // In a thread that is ending, the index would never be freed.
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
        // From here on this thread counts in the shared shard. The lock orders what it has counted
        // before what the next owner of the index counts.
        let number = THREAD_INDEX.replace(NO_INDEX);
        let mut free = FREE_INDEXES.lock().unwrap_or_else(PoisonError::into_inner);
        free.0.push(number);
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, sync::Barrier};

    use super::*;

    /// Shows promise 39.
    #[test]
    fn counts_of_all_threads_are_summed() {
        let counters = Counters::new();
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..1_000 {
                        counters.record_admitted();
                        counters.record_denied(false);
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

    /// Shows promise 39.
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
                    for _ in 0..1_000 {
                        // Looks at the same shard.
                        counters.is_sampled();
                        counters.record_admitted();
                    }
                });
            }
        });
        assert_eq!(counters.read().admitted, 1_000 * threads as u64);
    }
}
