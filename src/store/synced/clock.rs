//! The time by which a machine decides between two exchanges.

use std::{sync::Arc, time::Duration};

use crate::clock::{Clock, MonotonicClock, Tick, unix_now};
use crate::sync::{AtomicU64, Mutex, Ordering, lock};

/// The fleet's time: this machine's monotonic clock, moved by as much as the store's clock was ahead
/// at the last exchange. Nanoseconds since 1970.
#[derive(Clone, Debug)]
pub(super) struct FleetClock {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// How far the fleet's time is ahead of the monotonic clock, modulo 2^64.
    ahead: AtomicU64,
    /// When the store's time was last learned, by the monotonic clock.
    learned_at: Mutex<Option<Tick>>,
    /// The time of a simulation, unless it is zero.
    #[cfg(test)]
    simulated: AtomicU64,
}

/// Two clocks differ by at most one part in this many.
const MAX_DRIFT: u64 = 2_000;
/// A time that is earlier by more than this is not that of a late reply: the store's clock was set
/// back.
const MAX_LATENESS: Duration = Duration::from_secs(2);

impl FleetClock {
    /// The time of this machine, until the store reports its time.
    pub(super) fn of_this_machine() -> Self {
        let clock = Self {
            shared: Arc::default(),
        };
        clock.go_on_from(unix_now(), MonotonicClock.now());
        clock
    }

    /// Learns the time of the store from a reply that has just arrived: it is not later than the
    /// store's time, and earlier by as long as the reply took.
    ///
    /// So the latest of all replies is the best one. The clock goes back only as far as the two clocks
    /// may have drifted apart since then, or if the store's clock was set back.
    pub(super) fn learn(&self, time: Tick) {
        let mut learned_at = lock(&self.shared.learned_at);
        let monotonic = MonotonicClock.now();
        let Some(last) = learned_at.replace(monotonic) else {
            return self.go_on_from(time, monotonic);
        };
        let drift = monotonic.as_nanos().saturating_sub(last.as_nanos()) / MAX_DRIFT;
        let earliest = Tick::from_nanos(self.moved(monotonic).as_nanos().saturating_sub(drift));
        let was_set_back = earliest.since(time) > MAX_LATENESS;
        self.go_on_from(
            if was_set_back {
                time
            } else {
                time.max(earliest)
            },
            monotonic,
        );
    }

    fn go_on_from(&self, time: Tick, monotonic: Tick) {
        let ahead = time.as_nanos().wrapping_sub(monotonic.as_nanos());
        self.shared.ahead.store(ahead, Ordering::Relaxed);
    }

    /// Shows this time from now on.
    #[cfg(test)]
    pub(super) fn simulate(&self, now: Tick) {
        self.shared
            .simulated
            .store(now.as_nanos(), Ordering::Relaxed);
    }

    #[inline]
    fn moved(&self, at: Tick) -> Tick {
        #[cfg(test)]
        match self.shared.simulated.load(Ordering::Relaxed) {
            0 => {}
            simulated => return Tick::from_nanos(simulated),
        }
        let ahead = self.shared.ahead.load(Ordering::Relaxed);
        Tick::from_nanos(at.as_nanos().wrapping_add(ahead))
    }
}

impl Clock for FleetClock {
    #[inline]
    fn now(&self) -> Tick {
        self.moved(MonotonicClock.now())
    }

    #[inline]
    fn now_unordered(&self) -> Tick {
        self.moved(MonotonicClock.now_unordered())
    }
}
