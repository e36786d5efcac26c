//! The algorithm of a table, which can be replaced while the table is in use.
//!
//! An epoch is the period during which one algorithm decides. The header of a set holds the epoch whose
//! algorithm packed its states. Every set is in the current epoch or in the one before it: a set
//! migrates when it is next used, and the next change first migrates those that are left. A state is
//! rescaled as of the time of the change, so the delay makes no difference.
//!
//! # How a change is published
//! There is one pointer to the current epoch, and `latest` is its number. Both are replaced in one
//! critical section. The first epoch is read without a lock. After a change, a thread uses the epoch in
//! its [`cache`](super::cache) if that is `latest`, and locks the pointer to copy it otherwise: once per
//! change.
//!
//! A thread that finds a set in a later epoch than its own view reads `latest` again. The writer of
//! that set has seen the new epoch, which was published before, so the second view is new enough.
//! A thread therefore starts again at most once per change.

use std::ops::Deref;
use std::sync::Arc;

use super::cache::{Loan, new_owner, take};
use crate::algorithm::{Facts, Inherit, Words};
use crate::clock::Tick;
use crate::sync::{AtomicU64, Mutex, Ordering, lock};

#[derive(Debug)]
pub(super) struct Epochs<A> {
    first: Epoch<A>,
    /// The number of the current epoch, which equals the number of changes.
    latest: AtomicU64,
    /// The current epoch. `None` before the first change.
    published: Mutex<Option<Arc<Epoch<A>>>>,
    /// The key of the current epoch in the caches of threads.
    owner: u64,
}

#[derive(Debug)]
pub(super) struct Epoch<A> {
    pub(super) number: u64,
    pub(super) algorithm: A,
    /// Those of the algorithm.
    pub(super) facts: Facts,
    /// The algorithm of the epoch before.
    pub(super) past: A,
    since: Tick,
    change: Change,
}

/// What a new epoch changes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    /// The algorithm is another one.
    Algorithm(Inherit),
    /// The algorithm packs its states for later times, and is the same otherwise.
    Rebase,
}

/// The current epoch at one point in time.
#[derive(Debug)]
pub(super) enum View<'a, A: Words> {
    First(&'a Epoch<A>),
    Later(Loan<Epoch<A>>),
}

impl<A: Words> Deref for View<'_, A> {
    type Target = Epoch<A>;

    #[inline]
    fn deref(&self) -> &Epoch<A> {
        match self {
            Self::First(epoch) => epoch,
            Self::Later(epoch) => epoch,
        }
    }
}

impl<A: Words> Epochs<A> {
    pub(super) fn new(algorithm: A) -> Self {
        let past = algorithm.clone();
        Self {
            first: Epoch::new(0, algorithm, past, Tick::ZERO, Change::Rebase),
            latest: AtomicU64::new(0),
            published: Mutex::new(None),
            owner: new_owner(),
        }
    }

    #[inline]
    pub(super) fn current(&self) -> View<'_, A> {
        match self.latest.load(Ordering::Acquire) {
            0 => View::First(&self.first),
            latest => self.later(latest),
        }
    }

    /// Epoch `latest` or a later one.
    #[inline(never)]
    fn later(&self, latest: u64) -> View<'_, A> {
        let cached = take::<Epoch<A>>(self.owner).filter(|epoch| epoch.number >= latest);
        match cached.or_else(|| lock(&self.published).clone()) {
            Some(epoch) => View::Later(Loan::new(self.owner, epoch)),
            None => View::First(&self.first),
        }
    }

    /// Starts an epoch of `algorithm`. All sets must be in the current one.
    ///
    /// Callers must hold the table's `change_lock`.
    pub(super) fn change(&self, algorithm: A, since: Tick, change: Change) {
        let now = self.current();
        let (number, past) = (now.number + 1, now.algorithm.clone());
        drop(now);
        let next = Arc::new(Epoch::new(number, algorithm, past, since, change));
        let mut published = lock(&self.published);
        let replaced = published.replace(next);
        // Before the lock is released: a thread that has the new epoch by now must not be sent back to
        // an older one.
        self.latest.store(number, Ordering::Release);
        drop(published);
        // Runs code of the user, which must not happen under the lock.
        drop(replaced);
    }
}

impl<A: Words> Epoch<A> {
    fn new(number: u64, algorithm: A, past: A, since: Tick, change: Change) -> Self {
        Self {
            number,
            facts: algorithm.facts(),
            algorithm,
            past,
            since,
            change,
        }
    }

    /// A state of the epoch before, as of the change. `None` if it had expired then: a key must not lose
    /// anything only because its expired state was still stored.
    pub(super) fn migrate(&self, mut state: A::State) -> Option<A::State> {
        if self.past.forgettable_at(&state) <= self.since {
            return None;
        }
        if let Change::Algorithm(inherit) = self.change {
            self.algorithm
                .rescale(&mut state, &self.past, self.since, inherit);
        }
        if self.algorithm.forgettable_at(&state) <= self.since {
            return None;
        }
        Some(state)
    }
}

#[cfg(all(test, not(tower_throttle_loom), not(tower_throttle_shuttle)))]
mod tests {
    use super::*;
    use crate::algorithm::{Algorithm, TokenBucket};
    use crate::quota::Quota;

    fn changed() -> Epochs<TokenBucket> {
        let bucket = |limit| TokenBucket::new(Quota::per_second(limit));
        let epochs = Epochs::new(bucket(1));
        for limit in 2..10 {
            epochs.change(bucket(limit), Tick::ZERO, Change::Algorithm(Inherit::AsIs));
            let view = epochs.current();
            assert_eq!(view.number, limit - 1);
            assert_eq!(view.algorithm.quota().limit(), limit);
            assert_eq!(view.past.quota().limit(), limit - 1);
        }
        epochs
    }

    #[test]
    fn a_view_is_the_latest_epoch_in_every_thread() {
        let epochs = changed();
        std::thread::scope(|scope| {
            let view = scope.spawn(|| epochs.current().number);
            assert_eq!(view.join().expect("no panic"), 8);
        });
    }

    #[test]
    fn a_thread_reads_the_epoch_again_without_its_lock() {
        let epochs = changed();
        drop(epochs.current());
        let guard = lock(&epochs.published);
        assert_eq!(epochs.current().number, 8);
        drop(guard);
    }
}
