//! Which algorithm decides, while it may be exchanged under a running table.
//!
//! The states of a set are packed by one algorithm, whose number the set's header holds. A change
//! adds a link to a history; each set is carried along it, link by link, when it is next used. A
//! state is rescaled as of the moment of each change, so that it makes no difference how late.
//!
//! The first algorithm is read without a lock. After a change threads read the history from one of
//! several copies, so that they do not meet at one counter of references.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use crate::algorithm::{Algorithm, Inherit};
use crate::clock::Tick;
use crate::sync::{AtomicU64, Mutex, Ordering, lock};

/// How many changes are remembered. Numbers in headers are modulo 2^12, and two of them must be
/// told apart however far behind a set is.
pub(super) const MAX_EPOCHS: u64 = 1_000;
const REPLICAS: usize = 16;

#[derive(Debug)]
pub(super) struct Epochs<A> {
    first: A,
    /// How many changes there have been.
    changes: AtomicU64,
    copies: Box<[Replica<A>]>,
}

/// On a line of its own.
#[derive(Debug)]
#[repr(align(64))]
struct Replica<A>(Mutex<Arc<History<A>>>);

/// The regimes that sets may still be in, without a gap; the last one decides.
#[derive(Debug)]
pub(super) struct History<A> {
    list: Vec<Arc<Epoch<A>>>,
}

#[derive(Debug)]
struct Epoch<A> {
    number: u64,
    algorithm: A,
    since: Tick,
    inherit: Inherit,
}

/// One look at what decides.
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
        let copy = || {
            Replica(Mutex::new(Arc::new(History {
                list: vec![Arc::clone(&first)],
            })))
        };
        Self {
            first: algorithm,
            changes: AtomicU64::new(0),
            copies: (0..REPLICAS).map(|_| copy()).collect(),
        }
    }

    /// The first algorithm, while it decides.
    #[inline]
    pub(super) fn first(&self) -> Option<&A> {
        (self.changes.load(Ordering::Acquire) == 0).then_some(&self.first)
    }

    #[inline]
    pub(super) fn view(&self) -> EpochView<'_, A> {
        if self.changes.load(Ordering::Acquire) == 0 {
            EpochView::Initial(&self.first)
        } else {
            self.later()
        }
    }

    #[cold]
    #[inline(never)]
    fn later(&self) -> EpochView<'_, A> {
        EpochView::Changed(Arc::clone(&lock(&self.copies[thread_replica()].0)))
    }

    /// Puts `algorithm` in charge. One caller at a time.
    pub(super) fn change(&self, algorithm: A, since: Tick, inherit: Inherit) {
        let mut list = lock(&self.copies[0].0).list.clone();
        let number = list.last().map_or(0, |last| last.number) + 1;
        list.push(Arc::new(Epoch {
            number,
            algorithm,
            since,
            inherit,
        }));
        self.publish(&list, number);
    }

    /// Forgets all but the present regime, once no set is in an older one.
    pub(super) fn truncate_history(&self) {
        let mut list = lock(&self.copies[0].0).list.clone();
        let past = list.len() - 1;
        list.drain(..past);
        let number = list[0].number;
        self.publish(&list, number);
    }

    fn publish(&self, list: &[Arc<Epoch<A>>], number: u64) {
        for copy in &self.copies {
            *lock(&copy.0) = Arc::new(History {
                list: list.to_vec(),
            });
        }
        self.changes.store(number, Ordering::Release);
    }
}

impl<A: Algorithm> EpochView<'_, A> {
    #[inline]
    pub(super) fn algorithm(&self) -> &A {
        match self {
            Self::Initial(algorithm) => algorithm,
            Self::Changed(history) => &history.present().algorithm,
        }
    }

    #[inline]
    pub(super) fn number(&self) -> u64 {
        match self {
            Self::Initial(_) => 0,
            Self::Changed(history) => history.present().number,
        }
    }

    /// Since when this algorithm decides.
    pub(super) fn since(&self) -> Tick {
        match self {
            Self::Initial(_) => Tick::ZERO,
            Self::Changed(history) => history.present().since,
        }
    }

    /// How many changes are remembered.
    pub(super) fn remembered(&self) -> u64 {
        match self {
            Self::Initial(_) => 1,
            Self::Changed(history) => history.list.len() as u64,
        }
    }

    /// How many changes lie between a set's generation and this view; `None` if the set is newer.
    pub(super) fn behind(&self, generation: u64) -> Option<u64> {
        let behind = self.number().wrapping_sub(generation) & 0xFFF;
        (behind < 0x800).then_some(behind)
    }

    /// The algorithm that was in charge `behind` changes ago.
    pub(super) fn earlier(&self, behind: u64) -> &A {
        match self {
            Self::Initial(algorithm) => algorithm,
            Self::Changed(history) => &history.back(behind).algorithm,
        }
    }

    /// Carries a state over the last `behind` changes. False if it could have been forgotten at
    /// one of them: then it is, for a key must not fare worse for having been remembered.
    pub(super) fn carry(&self, state: &mut A::State, behind: u64) -> bool {
        if let Self::Changed(history) = self {
            for ago in (0..behind).rev() {
                let (from, to) = (history.back(ago + 1), history.back(ago));
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
    fn present(&self) -> &Epoch<A> {
        self.back(0)
    }

    fn back(&self, ago: u64) -> &Epoch<A> {
        let last = self.list.len() - 1;
        let ago = usize::try_from(ago).unwrap_or(last);
        &self.list[last.saturating_sub(ago)]
    }
}

/// The copy that this thread reads.
fn thread_replica() -> usize {
    static NEXT_THREAD: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static THREAD_INDEX: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    THREAD_INDEX.with(|mine| {
        if mine.get() == usize::MAX {
            mine.set(NEXT_THREAD.fetch_add(1, Ordering::Relaxed));
        }
        mine.get() % REPLICAS
    })
}
