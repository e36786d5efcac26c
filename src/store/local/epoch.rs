//! The algorithm of a table, which can be replaced while the table is in use.
//!
//! An epoch is the period during which one algorithm decides. The header of a set holds the epoch
//! whose algorithm packed its states. A change appends an epoch to the history. When a set is next
//! used, it migrates through the epochs that it has missed. A state is rescaled as of the time of
//! each change, so the delay makes no difference.
//!
//! # How a change is published
//! The history is immutable and there is one pointer to it. `latest` is the number of its last
//! epoch. Both are replaced in one critical section. The initial algorithm is read without a lock.
//! After a change, a thread uses the history in its [`cache`](super::cache) if that ends with
//! epoch `latest`, and locks the pointer to copy it otherwise: once per change.
//!
//! A thread that finds a set in a later epoch than its own view reads `latest` again. The writer of
//! that set has seen the new history, which was published before, so the second view is new enough.
//! A thread therefore starts again at most once per change.

use std::sync::Arc;

use super::cache::{Loan, new_owner, take};
use super::slot::{EPOCHS, epochs_between};
use crate::algorithm::{Facts, Inherit, Words};
use crate::clock::Tick;
use crate::store::cold;
use crate::sync::{AtomicU64, Mutex, Ordering, lock};

#[derive(Debug)]
pub(super) struct Epochs<A> {
    initial: Epoch<A>,
    /// The number of the latest epoch, which equals the number of changes.
    latest: AtomicU64,
    /// `None` before the first change.
    published: Mutex<Option<Arc<History<A>>>>,
    /// The key of the history in the caches of threads.
    owner: u64,
}

/// The consecutive epochs that sets may still be in. The last one is the current one.
#[derive(Debug)]
pub(super) struct History<A> {
    epochs: Vec<Epoch<A>>,
}

#[derive(Debug)]
struct Epoch<A>(Arc<EpochInner<A>>);

/// Manual impl: derive would require `A: Clone`, and clone an algorithm.
impl<A> Clone for Epoch<A> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

#[derive(Debug)]
struct EpochInner<A> {
    number: u64,
    algorithm: A,
    since: Tick,
    change: Change,
    facts: Facts,
}

/// What a new epoch changes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    /// The algorithm is another one.
    Algorithm(Inherit),
    /// The algorithm packs its states for later times, and is the same otherwise.
    Rebase,
}

/// The history at one point in time.
#[derive(Debug)]
pub(super) enum EpochView<'a, A: Words> {
    Initial(&'a A, &'a Facts),
    Changed(Loan<History<A>>),
}

impl<A: Words> Epochs<A> {
    pub(super) fn new(algorithm: A) -> Self {
        Self {
            initial: Epoch::new(0, algorithm, Tick::ZERO, Change::Rebase),
            latest: AtomicU64::new(0),
            published: Mutex::new(None),
            owner: new_owner(),
        }
    }

    #[expect(clippy::inline_always, reason = "as for `Table::decide`")]
    #[inline(always)]
    pub(super) fn current(&self) -> EpochView<'_, A> {
        let latest = self.latest.load(Ordering::Acquire);
        if latest == 0 {
            EpochView::Initial(&self.initial.0.algorithm, &self.initial.0.facts)
        } else {
            EpochView::Changed(self.current_history(latest))
        }
    }

    /// The history, which ends with epoch `latest` or a later one.
    #[inline(never)]
    fn current_history(&self, latest: u64) -> Loan<History<A>> {
        let cached = take::<History<A>>(self.owner);
        let cached = cached.filter(|history| history.latest().number >= latest);
        let history = cached.unwrap_or_else(|| self.published());
        Loan::new(self.owner, history)
    }

    #[cold]
    fn published(&self) -> Arc<History<A>> {
        let published = lock(&self.published).clone();
        published.unwrap_or_else(|| self.initial_history())
    }

    fn initial_history(&self) -> Arc<History<A>> {
        Arc::new(History {
            epochs: vec![self.initial.clone()],
        })
    }

    /// Starts an epoch of `algorithm`. No set may be in an older epoch than the last `keep` ones.
    ///
    /// Callers must hold the table's `change_lock`.
    pub(super) fn change(&self, algorithm: A, since: Tick, change: Change, keep: usize) {
        let past = self.published();
        let number = past.latest().number + 1;
        let kept = past.epochs.len().saturating_sub(keep);
        let mut epochs = Vec::with_capacity(past.epochs.len() - kept + 1);
        epochs.extend_from_slice(&past.epochs[kept..]);
        epochs.push(Epoch::new(number, algorithm, since, change));
        let next = Some(Arc::new(History { epochs }));
        let mut published = lock(&self.published);
        let replaced = std::mem::replace(&mut *published, next);
        // Before the lock is released: a thread that has the new history by now must not be sent
        // back to an older one.
        self.latest.store(number, Ordering::Release);
        drop(published);
        // Runs code of the user, which must not happen under the lock.
        drop((past, replaced));
    }
}

impl<A: Words> Epoch<A> {
    fn new(number: u64, algorithm: A, since: Tick, change: Change) -> Self {
        Self(Arc::new(EpochInner {
            number,
            facts: algorithm.facts(),
            algorithm,
            since,
            change,
        }))
    }
}

impl<A: Words> EpochView<'_, A> {
    /// The algorithm of the latest epoch. Not inlined: the slow paths need it in many places.
    #[inline(never)]
    pub(super) fn algorithm(&self) -> &A {
        self.algorithm_inlined()
    }

    /// [`algorithm`](Self::algorithm) for the fast path.
    #[inline]
    pub(super) fn algorithm_inlined(&self) -> &A {
        match self {
            Self::Initial(algorithm, _) => algorithm,
            Self::Changed(history) => &history.latest().algorithm,
        }
    }

    /// The number of the latest epoch. Not inlined, as [`algorithm`](Self::algorithm).
    #[inline(never)]
    pub(super) fn epoch(&self) -> u64 {
        self.epoch_inlined()
    }

    /// [`epoch`](Self::epoch) for the fast path.
    #[inline]
    pub(super) fn epoch_inlined(&self) -> u64 {
        match self {
            Self::Initial(..) => 0,
            Self::Changed(history) => history.latest().number,
        }
    }

    /// The start of the latest epoch.
    pub(super) fn since(&self) -> Tick {
        match self {
            Self::Initial(..) => Tick::ZERO,
            Self::Changed(history) => history.latest().since,
        }
    }

    /// Those of the algorithm.
    #[inline]
    pub(super) fn facts(&self) -> &Facts {
        match self {
            Self::Initial(_, facts) => facts,
            Self::Changed(history) => &history.latest().facts,
        }
    }

    /// By how many changes a set is behind this view, by the epoch in its header. `None` if the set
    /// is newer.
    pub(super) fn epochs_behind(&self, epoch: u64) -> Option<u64> {
        let behind = epochs_between(epoch, self.epoch());
        (behind < EPOCHS / 2).then_some(behind)
    }

    /// The algorithm of the epoch `behind` changes ago. `None` if no set was that far behind when
    /// the view was made.
    pub(super) fn algorithm_before(&self, behind: u64) -> Option<&A> {
        match self {
            Self::Initial(algorithm, _) => (behind == 0).then_some(*algorithm),
            Self::Changed(history) => Some(&history.nth_latest(behind)?.algorithm),
        }
    }

    /// Rescales a state through the last `behind` changes.
    ///
    /// Returns false if the state had expired at one of them. The caller then drops the state,
    /// because a key must not lose anything only because its expired state was still stored.
    pub(super) fn migrate_state(&self, state: &mut A::State, behind: u64) -> bool {
        let Self::Changed(history) = self else {
            return true;
        };
        for ago in (0..behind).rev() {
            let (Some(from), Some(to)) = (history.nth_latest(ago + 1), history.nth_latest(ago))
            else {
                return false;
            };
            if cold::forgettable_at(&from.algorithm, state) <= to.since {
                return false;
            }
            if let Change::Algorithm(inherit) = to.change {
                to.algorithm
                    .rescale(state, &from.algorithm, to.since, inherit);
            }
        }
        let latest = history.latest();
        if behind > 0 && cold::forgettable_at(&latest.algorithm, state) <= latest.since {
            return false;
        }
        A::raise_to_base(&latest.algorithm, state);
        true
    }
}

impl<A> History<A> {
    #[inline]
    fn latest(&self) -> &EpochInner<A> {
        &self.epochs[self.epochs.len() - 1].0
    }

    fn nth_latest(&self, ago: u64) -> Option<&EpochInner<A>> {
        let ago = usize::try_from(ago).ok()?;
        let at = self.epochs.len().checked_sub(ago.checked_add(1)?)?;
        self.epochs.get(at).map(|epoch| &*epoch.0)
    }
}

#[cfg(all(test, not(tower_throttle_loom), not(tower_throttle_shuttle)))]
mod tests {
    use super::*;
    use crate::algorithm::{Algorithm, TokenBucket};
    use crate::quota::Quota;

    fn changed(keep: usize) -> Epochs<TokenBucket> {
        let bucket = |limit| TokenBucket::new(Quota::per_second(limit));
        let epochs = Epochs::new(bucket(1));
        for limit in 2..10 {
            let change = Change::Algorithm(Inherit::AsIs);
            epochs.change(bucket(limit), Tick::ZERO, change, keep);
            let view = epochs.current();
            assert_eq!(view.epoch(), limit - 1);
            assert_eq!(view.algorithm().quota().limit(), limit);
        }
        epochs
    }

    #[test]
    fn a_view_is_the_latest_epoch_in_every_thread() {
        let epochs = changed(3);
        std::thread::scope(|scope| {
            let view = scope.spawn(|| epochs.current().epoch());
            assert_eq!(view.join().expect("no panic"), 8);
        });
    }

    #[test]
    fn a_history_keeps_only_the_epochs_that_sets_may_be_in() {
        let epochs = changed(3);
        let view = epochs.current();
        let before = |behind| view.algorithm_before(behind).map(|a| a.quota().limit());
        assert_eq!([0, 1, 3].map(before), [Some(9), Some(8), Some(6)]);
        assert_eq!(before(4), None);
    }

    #[test]
    fn a_thread_reads_the_history_again_without_its_lock() {
        let epochs = changed(3);
        drop(epochs.current());
        let guard = lock(&epochs.published);
        assert_eq!(epochs.current().epoch(), 8);
        drop(guard);
    }
}
