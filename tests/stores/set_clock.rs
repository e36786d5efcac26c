//! The clock of a store, which is set ahead and back.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use tower_throttle::clock::{Clock, MonotonicClock, Tick};

/// A clock that goes like that of this machine, and can be set.
#[derive(Clone, Debug, Default)]
pub(crate) struct SetClock(Arc<AtomicI64>);

impl SetClock {
    /// Sets it ahead by so many hours, or back.
    pub(crate) fn set_ahead(&self, hours: i64) {
        self.0
            .fetch_add(hours * 3_600_000_000_000, Ordering::Relaxed);
    }
}

impl Clock for SetClock {
    fn now(&self) -> Tick {
        let now = (1 << 60) + MonotonicClock.now().as_nanos();
        Tick::from_nanos(now.saturating_add_signed(self.0.load(Ordering::Relaxed)))
    }
}
