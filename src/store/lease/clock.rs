//! The time by which a machine spends its leases.

use crate::clock::{Clock, MonotonicClock, PAUSE_AVAILABLE, Tick, unix_now};
use crate::store::fleet::MovedClock;
use crate::sync::{AtomicU64, Mutex, Ordering, lock};

/// A time of the store that is never earlier than the store's own, in nanoseconds since 1970.
///
/// A reply shows the store's time at a moment after its request was sent. So the store's clock cannot be
/// further ahead of this machine's than that time is ahead of the moment of sending. A lease that has not
/// ended by this clock has not ended in the store either.
pub(super) type LeaseClock = MovedClock<StoreClock>;

/// What is known of the store's clock.
#[derive(Debug)]
pub(super) struct StoreClock {
    /// Whether all times of the store are of one clock.
    has_one_clock: bool,
    /// 1 if the store reports its time, 2 if it does not.
    source: AtomicU64,
    /// When the store's time was last learned, by the monotonic clock, and how far the wall clock was
    /// ahead of the monotonic clock then.
    learned: Mutex<(Tick, Option<u64>)>,
    /// 1 if the next call finds that the machine was suspended.
    #[cfg(test)]
    suspended: AtomicU64,
}

/// Two clocks differ by at most one part in this many.
const MAX_DRIFT: u64 = 2_000;
/// If the wall clock has gained more than this on the monotonic clock, the machine was suspended, or its
/// clock was set.
const MAX_GAIN: u64 = 100_000_000;

impl LeaseClock {
    /// The time of this machine, until the store reports its time. All of its times are of one clock
    /// or not.
    pub(super) fn of_store(has_one_clock: bool) -> Self {
        Self::new(StoreClock {
            has_one_clock,
            source: AtomicU64::new(0),
            learned: Mutex::default(),
            #[cfg(test)]
            suspended: AtomicU64::new(0),
        })
    }

    /// Whether the store has replied.
    pub(super) fn is_known(&self) -> bool {
        self.learned().source.load(Ordering::Acquire) != 0
    }

    /// Whether machines decide by clocks that may differ: by their own, because the store does not
    /// report its time, or by those of several servers.
    pub(super) fn may_differ(&self) -> bool {
        !self.learned().has_one_clock || self.learned().source.load(Ordering::Acquire) == 2
    }

    /// Learns the time of the store from a reply to a request that was sent at `sent_at`.
    pub(super) fn learn(&self, sent_at: Tick, server_time: Option<Tick>) {
        let mut learned = lock(&self.learned().learned);
        let monotonic = MonotonicClock.now();
        let Some(time) = server_time else {
            self.set(unix_now(), monotonic);
            return self.learned().source.store(2, Ordering::Release);
        };
        // The two clocks may have drifted apart since then.
        let drift = monotonic.as_nanos().saturating_sub(learned.0.as_nanos()) / MAX_DRIFT;
        learned.0 = monotonic;
        let latest = self.moved(monotonic).as_nanos().saturating_add(drift);
        let took = monotonic.as_nanos().saturating_sub(sent_at.as_nanos());
        let is_first = self.learned().source.load(Ordering::Acquire) != 1;
        let shown = (!is_first).then(|| Tick::from_nanos(latest));
        self.set(latest_time(time, took, shown), monotonic);
        // Last, so that a time of the clock as it was before does not pass for the store's.
        self.learned().source.store(1, Ordering::Release);
    }

    /// Whether this machine was suspended since the last call, so that the monotonic clock has stood
    /// still while leases ended.
    pub(super) fn was_suspended(&self) -> bool {
        #[cfg(test)]
        if self.learned().suspended.swap(0, Ordering::Relaxed) == 1 {
            return true;
        }
        // Paused time stands still too.
        !PAUSE_AVAILABLE && self.has_wall_clock_gained(unix_now(), MonotonicClock.now())
    }

    fn has_wall_clock_gained(&self, wall: Tick, monotonic: Tick) -> bool {
        let ahead = wall.as_nanos().wrapping_sub(monotonic.as_nanos());
        let before = lock(&self.learned().learned).1.replace(ahead);
        before.is_some_and(|before| {
            let gain = ahead.wrapping_sub(before);
            gain > MAX_GAIN && gain < u64::MAX / 2
        })
    }

    /// Shows this time of the store from now on.
    #[cfg(test)]
    pub(super) fn simulate_store(&self, now: Tick) {
        self.simulate_reply(true);
        self.simulate(now);
    }

    /// The store has replied, and reports its time or not.
    #[cfg(test)]
    pub(super) fn simulate_reply(&self, has_time: bool) {
        let source = if has_time { 1 } else { 2 };
        self.learned().source.store(source, Ordering::Relaxed);
    }

    /// Lets the next call of [`was_suspended`](Self::was_suspended) return true.
    #[cfg(test)]
    pub(super) fn simulate_suspension(&self) {
        self.learned().suspended.store(1, Ordering::Relaxed);
    }
}

/// The latest time that the store's clock can show when a reply arrives, `took` nanoseconds after its
/// request was sent, if it contains `time`. This machine's clock has `shown` a time that is not earlier
/// than the store's, unless this is the first reply.
pub(super) fn latest_time(time: Tick, took: u64, shown: Option<Tick>) -> Tick {
    let by_reply = Tick::from_nanos(time.as_nanos().saturating_add(took));
    // A clock that is behind a reply that has arrived is one of a store whose clock was set.
    match shown.filter(|shown| *shown >= time) {
        Some(shown) => by_reply.min(shown),
        None => by_reply,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_suspended_machine_is_noticed_by_the_wall_clock() {
        let clock = LeaseClock::of_store(true);
        let (second, hour) = (1_000_000_000, 3_600_000_000_000);
        let gained = |wall, monotonic| {
            let at = |ns| Tick::from_nanos(ns);
            clock.has_wall_clock_gained(at(hour + wall), at(monotonic))
        };
        assert!(!gained(0, 0));
        assert!(!gained(second, second), "both run");
        assert!(
            !gained(2 * second + MAX_GAIN, 2 * second),
            "it was adjusted"
        );
        assert!(gained(9 * second, 3 * second), "one stood still");
        assert!(!gained(10 * second, 4 * second));
        assert!(!gained(5 * second, 5 * second), "it was set back");
    }

    #[tokio::test(start_paused = true)]
    async fn the_clock_is_never_behind_the_store_and_converges() {
        let clock = LeaseClock::of_store(true);
        let start = MonotonicClock.now();
        // The store's clock shows an hour more than the monotonic clock.
        let hour = Duration::from_secs(3_600);
        let store = || MonotonicClock.now().plus(hour);
        for (there, back) in [(40, 5), (3, 90), (20, 20), (1, 0)] {
            let sent_at = MonotonicClock.now();
            tokio::time::sleep(ms(there)).await;
            let time = store();
            tokio::time::sleep(ms(back)).await;
            clock.learn(sent_at, Some(time));
            let ahead = clock.now().since(store());
            assert!(clock.now() >= store());
            assert!(ahead <= ms(there) + ms(1), "{ahead:?}");
        }
        tokio::time::sleep(ms(10_000)).await;
        let (sent_at, time) = (MonotonicClock.now(), store());
        tokio::time::sleep(ms(500)).await;
        clock.learn(sent_at, Some(time));
        assert!(clock.now().since(store()) <= ms(10));
        assert!(MonotonicClock.now() > start);
        // A clock that was set ahead is adopted at once.
        clock.learn(MonotonicClock.now(), Some(store().plus(hour)));
        assert!(clock.now() >= store().plus(hour));
    }
}
