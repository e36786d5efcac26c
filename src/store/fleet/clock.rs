//! A clock that is ahead of the monotonic one by an amount that replies of the store change.

use std::{fmt, sync::Arc};

use crate::clock::{Clock, MonotonicClock, Tick, unix_now};
use crate::sync::{AtomicU64, CachePadded, Ordering};

/// The monotonic clock of this machine, moved. Nanoseconds since 1970.
///
/// `L` is what is known of the store's clock. Clones are the same clock.
pub(in crate::store) struct MovedClock<L> {
    shared: Arc<Shared<L>>,
}

struct Shared<L> {
    /// How far this time is ahead of the monotonic clock, modulo 2^64. Every decision reads it, and each
    /// exchange writes what is beside it.
    ahead: CachePadded<AtomicU64>,
    learned: L,
    /// The time of a simulation, unless it is zero.
    #[cfg(test)]
    simulated: AtomicU64,
}

impl<L> MovedClock<L> {
    /// The time of this machine.
    pub(in crate::store) fn new(learned: L) -> Self {
        let shared = Shared {
            ahead: CachePadded(AtomicU64::new(0)),
            learned,
            #[cfg(test)]
            simulated: AtomicU64::new(0),
        };
        let clock = Self {
            shared: Arc::new(shared),
        };
        clock.set(unix_now(), MonotonicClock.now());
        clock
    }

    /// What is known of the store's clock.
    pub(in crate::store) fn learned(&self) -> &L {
        &self.shared.learned
    }

    /// Shows `time` at the moment `monotonic` of the monotonic clock.
    pub(in crate::store) fn set(&self, time: Tick, monotonic: Tick) {
        let ahead = time.as_nanos().wrapping_sub(monotonic.as_nanos());
        let shown = &self.shared.ahead.0;
        // A write of the same number would make all processors fetch it again.
        if shown.load(Ordering::Relaxed) != ahead {
            shown.store(ahead, Ordering::Relaxed);
        }
    }

    /// The time at a moment of the monotonic clock.
    #[inline]
    pub(in crate::store) fn moved(&self, at: Tick) -> Tick {
        #[cfg(test)]
        match self.shared.simulated.load(Ordering::Relaxed) {
            0 => {}
            simulated => return Tick::from_nanos(simulated),
        }
        let ahead = self.shared.ahead.0.load(Ordering::Relaxed);
        Tick::from_nanos(at.as_nanos().wrapping_add(ahead))
    }

    /// Shows this time from now on.
    #[cfg(test)]
    pub(in crate::store) fn simulate(&self, now: Tick) {
        self.shared
            .simulated
            .store(now.as_nanos(), Ordering::Relaxed);
    }
}

impl<L: Send + Sync + 'static> Clock for MovedClock<L> {
    #[inline]
    fn now(&self) -> Tick {
        self.moved(MonotonicClock.now())
    }

    #[inline]
    fn now_unordered(&self) -> Tick {
        self.moved(MonotonicClock.now_unordered())
    }
}

/// Manual impl: derive would require `L: Clone` of the content, which is shared.
impl<L> Clone for MovedClock<L> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<L> fmt::Debug for MovedClock<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MovedClock").finish_non_exhaustive()
    }
}
