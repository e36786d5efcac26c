//! The algorithm of a table, which can be replaced while the table is in use.
//!
//! An epoch is the period during which one algorithm decides. The header of a set holds the epoch
//! whose algorithm packed its states. A change appends an epoch to the history. When a set is next
//! used, it migrates through the epochs that it has missed. A state is rescaled as of the time of
//! each change, so the delay makes no difference.
//!
//! The initial algorithm is read without a lock. After a change, threads read the history from one
//! of several replicas, which spreads the contention on the reference count.

use std::sync::Arc;

use super::replica::{REPLICAS, thread_replica};
use crate::algorithm::{Algorithm, Inherit};
use crate::clock::Tick;
use crate::sync::{AtomicU64, Mutex, Ordering, lock};

/// The longest history. Headers hold epochs modulo 2^12, so no set may be more than half of that
/// behind.
pub(super) const MAX_EPOCHS: u64 = 1_000;

#[derive(Debug)]
pub(super) struct Epochs<A> {
    initial: A,
    /// The number of the latest epoch, which equals the number of changes.
    latest: AtomicU64,
    replicas: Box<[Replica<A>]>,
}

/// One copy of the history, in its own cache line.
#[derive(Debug)]
#[repr(align(64))]
struct Replica<A>(Mutex<Arc<History<A>>>);

/// The consecutive epochs that sets may still be in. The last one is the current one.
#[derive(Debug)]
pub(super) struct History<A> {
    epochs: Vec<Arc<Epoch<A>>>,
}

#[derive(Debug)]
struct Epoch<A> {
    number: u64,
    algorithm: A,
    since: Tick,
    inherit: Inherit,
}

/// The history at one point in time.
#[derive(Debug)]
pub(super) enum EpochView<'a, A> {
    Initial(&'a A),
    Changed(Arc<History<A>>),
}

impl<A: Algorithm> Epochs<A> {
    pub(super) fn new(algorithm: A) -> Self {
        let first = Arc::new(Epoch {
            number: 0,
            algorithm: algorithm.clone(),
            since: Tick::ZERO,
            inherit: Inherit::AsIs,
        });
        let replica = || {
            Replica(Mutex::new(Arc::new(History {
                epochs: vec![Arc::clone(&first)],
            })))
        };
        Self {
            initial: algorithm,
            latest: AtomicU64::new(0),
            replicas: (0..REPLICAS).map(|_| replica()).collect(),
        }
    }

    /// The initial algorithm, or `None` after the first change.
    #[inline]
    pub(super) fn initial(&self) -> Option<&A> {
        (self.latest.load(Ordering::Acquire) == 0).then_some(&self.initial)
    }

    #[inline]
    pub(super) fn current(&self) -> EpochView<'_, A> {
        if self.latest.load(Ordering::Acquire) == 0 {
            EpochView::Initial(&self.initial)
        } else {
            self.load_replica(thread_replica())
        }
    }

    #[cold]
    #[inline(never)]
    fn load_replica(&self, replica: usize) -> EpochView<'_, A> {
        EpochView::Changed(Arc::clone(&lock(&self.replicas[replica].0)))
    }

    /// Starts an epoch of `algorithm`. Callers must hold the table's `change_lock`.
    pub(super) fn change(&self, algorithm: A, since: Tick, inherit: Inherit) {
        let mut epochs = lock(&self.replicas[0].0).epochs.clone();
        let number = epochs.last().map_or(0, |last| last.number) + 1;
        epochs.push(Arc::new(Epoch {
            number,
            algorithm,
            since,
            inherit,
        }));
        self.publish(&epochs, number);
    }

    /// Drops all epochs but the latest. No set may be in an older one.
    pub(super) fn truncate_history(&self) {
        let mut epochs = lock(&self.replicas[0].0).epochs.clone();
        let past = epochs.len() - 1;
        epochs.drain(..past);
        let number = epochs[0].number;
        self.publish(&epochs, number);
    }

    fn publish(&self, epochs: &[Arc<Epoch<A>>], number: u64) {
        for replica in &self.replicas {
            *lock(&replica.0) = Arc::new(History {
                epochs: epochs.to_vec(),
            });
        }
        self.latest.store(number, Ordering::Release);
    }
}

impl<A: Algorithm> EpochView<'_, A> {
    #[inline]
    pub(super) fn algorithm(&self) -> &A {
        match self {
            Self::Initial(algorithm) => algorithm,
            Self::Changed(history) => &history.latest().algorithm,
        }
    }

    #[inline]
    pub(super) fn epoch(&self) -> u64 {
        match self {
            Self::Initial(_) => 0,
            Self::Changed(history) => history.latest().number,
        }
    }

    /// The start of the latest epoch.
    pub(super) fn since(&self) -> Tick {
        match self {
            Self::Initial(_) => Tick::ZERO,
            Self::Changed(history) => history.latest().since,
        }
    }

    /// The number of epochs in the history.
    pub(super) fn history_len(&self) -> u64 {
        match self {
            Self::Initial(_) => 1,
            Self::Changed(history) => history.epochs.len() as u64,
        }
    }

    /// By how many changes a set of `epoch` is behind this view. `None` if the set is newer.
    pub(super) fn epochs_behind(&self, epoch: u64) -> Option<u64> {
        let behind = self.epoch().wrapping_sub(epoch) & 0xFFF;
        (behind < 0x800).then_some(behind)
    }

    /// The algorithm of the epoch `behind` changes ago.
    pub(super) fn algorithm_before(&self, behind: u64) -> &A {
        match self {
            Self::Initial(algorithm) => algorithm,
            Self::Changed(history) => &history.nth_latest(behind).algorithm,
        }
    }

    /// Rescales a state through the last `behind` changes.
    ///
    /// Returns false if the state had expired at one of them. The caller then drops the state,
    /// because a key must not lose anything only because its expired state was still stored.
    pub(super) fn migrate_state(&self, state: &mut A::State, behind: u64) -> bool {
        if let Self::Changed(history) = self {
            for ago in (0..behind).rev() {
                let (from, to) = (history.nth_latest(ago + 1), history.nth_latest(ago));
                if from.algorithm.forgettable_at(state) <= to.since {
                    return false;
                }
                to.algorithm
                    .rescale(state, &from.algorithm, to.since, to.inherit);
            }
        }
        true
    }
}

impl<A> History<A> {
    fn latest(&self) -> &Epoch<A> {
        self.nth_latest(0)
    }

    fn nth_latest(&self, ago: u64) -> &Epoch<A> {
        let last = self.epochs.len() - 1;
        let ago = usize::try_from(ago).unwrap_or(last);
        &self.epochs[last.saturating_sub(ago)]
    }
}

#[cfg(all(test, not(tower_throttle_loom), not(tower_throttle_shuttle)))]
mod tests {
    use super::*;
    use crate::algorithm::TokenBucket;
    use crate::quota::Quota;

    #[test]
    fn every_replica_is_published() {
        let epochs = Epochs::new(TokenBucket::new(Quota::per_second(1)));
        for limit in 2..5 {
            let algorithm = TokenBucket::new(Quota::per_second(limit));
            epochs.change(algorithm, Tick::ZERO, Inherit::AsIs);
            for replica in 0..REPLICAS {
                let view = epochs.load_replica(replica);
                assert_eq!(view.epoch(), limit - 1, "replica {replica}");
                assert_eq!(view.algorithm().quota().limit(), limit);
            }
        }
        epochs.truncate_history();
        for replica in 0..REPLICAS {
            assert_eq!(epochs.load_replica(replica).history_len(), 1);
        }
    }
}
