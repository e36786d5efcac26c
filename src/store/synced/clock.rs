//! The time by which a machine decides between two exchanges.

use std::time::Duration;

use crate::clock::{Clock, MonotonicClock, Tick};
use crate::store::fleet::MovedClock;
use crate::sync::{Mutex, lock};

/// The fleet's time: this machine's monotonic clock, moved by as much as the store's clock was ahead
/// at the last exchange. Nanoseconds since 1970.
pub(super) type FleetClock = MovedClock<LearnedAt>;

/// When the store's time was last learned, by the monotonic clock.
#[derive(Debug, Default)]
pub(super) struct LearnedAt(Mutex<Option<Tick>>);

/// Two clocks differ by at most one part in this many.
const MAX_DRIFT: u64 = 2_000;
/// A time that is earlier by more than this is not that of a late reply: the store's clock was set
/// back.
const MAX_LATENESS: Duration = Duration::from_secs(2);

impl FleetClock {
    /// The time of this machine, until the store reports its time.
    pub(super) fn of_this_machine() -> Self {
        Self::new(LearnedAt::default())
    }

    /// Learns the time of the store from a reply that has just arrived: it is not later than the
    /// store's time, and earlier by as long as the reply took.
    ///
    /// So the latest of all replies is the best one. The clock goes back only as far as the two clocks
    /// may have drifted apart since then, or if the store's clock was set back.
    pub(super) fn learn(&self, time: Tick) {
        let mut learned_at = lock(&self.learned().0);
        let monotonic = MonotonicClock.now();
        let Some(last) = learned_at.replace(monotonic) else {
            return self.set(time, monotonic);
        };
        let drift = monotonic.as_nanos().saturating_sub(last.as_nanos()) / MAX_DRIFT;
        let earliest = Tick::from_nanos(self.moved(monotonic).as_nanos().saturating_sub(drift));
        let was_set_back = earliest.since(time) > MAX_LATENESS;
        self.set(
            if was_set_back {
                time
            } else {
                time.max(earliest)
            },
            monotonic,
        );
    }
}
