//! The time by which all machines decide.

use std::time::Duration;

use crate::clock::{Clock, MonotonicClock, Tick, unix_now};
use crate::sync::{Mutex, lock};

/// How long the time of a reply is good for. After that the next reply is awaited.
const MAX_AGE: Duration = Duration::from_secs(10);

/// The store's time, computed from its replies, or that of this machine if the store does not report
/// its time.
///
/// A request is dated no earlier than it was made: the time of a reply counts from when its call was
/// sent, so it is ahead of the store's by as long as that call took to get there. Of all replies the one
/// counts by which that is the shortest. A reply that is read late changes nothing, and one that reports
/// a later time than there can be shows that the store's clock was set, or is the faster one.
#[derive(Debug, Default)]
pub(in crate::store) struct StoreTime(Mutex<Source>);

#[derive(Clone, Copy, Debug, Default)]
enum Source {
    /// Nothing has been read yet.
    #[default]
    Unknown,
    /// The store does not report its time.
    ThisMachine,
    /// The store's time, and when the call that read it was sent.
    Store { time: Tick, sent_at: Tick },
}

impl Source {
    /// The store's time at `at`, or somewhat later; `None` if that is not known.
    fn latest_at(self, at: Tick) -> Option<Tick> {
        let Self::Store { time, sent_at } = self else {
            return None;
        };
        let age = at.since(sent_at);
        (age <= MAX_AGE).then(|| time.plus(age))
    }
}

impl StoreTime {
    /// The present moment; `None` if a reply of the store is needed first.
    pub(in crate::store) fn now(&self) -> Option<Tick> {
        match *lock(&self.0) {
            Source::ThisMachine => Some(unix_now()),
            source => source.latest_at(MonotonicClock.now()),
        }
    }

    /// Whether it is that of this machine, because the store does not report its time.
    pub(in crate::store) fn is_of_this_machine(&self) -> bool {
        matches!(*lock(&self.0), Source::ThisMachine)
    }

    /// Learns from a reply to a call that was sent at `sent_at`. Returns the moment that it reports.
    pub(in crate::store) fn learn(&self, sent_at: Tick, server_time: Option<Tick>) -> Tick {
        let mut source = lock(&self.0);
        let Some(time) = server_time else {
            *source = Source::ThisMachine;
            return unix_now();
        };
        let read_at = MonotonicClock.now();
        let reply = Source::Store { time, sent_at };
        let is_better = match (source.latest_at(read_at), reply.latest_at(read_at)) {
            (Some(known), Some(by_reply)) => by_reply <= known || time > known,
            (None, _) => true,
            // The reply is too old.
            (Some(_), None) => false,
        };
        if is_better {
            *source = reply;
        }
        time
    }

    /// Forgets the store's time: another server may reply next.
    pub(in crate::store) fn forget(&self) {
        let mut source = lock(&self.0);
        if matches!(*source, Source::Store { .. }) {
            *source = Source::Unknown;
        }
    }
}

#[cfg(all(test, not(tower_throttle_loom)))]
mod tests {
    use tokio::time::advance;

    use super::*;

    /// Shows promise 91.
    #[tokio::test(start_paused = true)]
    async fn the_reply_with_the_earliest_time_counts() {
        let at = |ms: u64| Tick::from_nanos(ms * 1_000_000);
        let time = StoreTime::default();
        assert_eq!(time.now(), None);
        // How long the call took, the time that its reply reports, and the time from then on.
        for (took, reported, learned) in [
            (10, 5, 15),
            // It took less time to get there.
            (4, 12, 16),
            // It was read late.
            (20, 30, 36),
            // It may be as late as that, and no later.
            (5, 41, 41),
            (3, 45, 48),
            // The clock was set back.
            (2, 10, 12),
        ] {
            let sent_at = MonotonicClock.now();
            advance(Duration::from_millis(took)).await;
            assert_eq!(time.learn(sent_at, Some(at(reported))), at(reported));
            assert_eq!(time.now(), Some(at(learned)), "{reported} ms");
        }
        advance(MAX_AGE).await;
        assert_eq!(time.now(), None, "it is too old");
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_of_a_store_is_forgotten_and_that_of_this_machine_is_not() {
        let time = StoreTime::default();
        let now = MonotonicClock.now();
        time.learn(now, Some(now));
        assert!(time.now().is_some() && !time.is_of_this_machine());
        time.forget();
        assert_eq!(time.now(), None);
        time.learn(now, None);
        time.forget();
        assert!(time.now().is_some() && time.is_of_this_machine());
    }
}
