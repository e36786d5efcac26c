//! How many exchanges are under way at a time.

use std::time::Duration;

use crate::sync::{AtomicU64, Ordering};

/// The most exchanges that are under way at a time.
const MOST: u64 = 500;
/// A store that is slow by itself needs some at a time.
const LEAST: u64 = 16;

/// How many exchanges are under way at a time: fewer if they take long, more if they do not.
///
/// If a store cannot keep up, calls wait in its queue. With too many of them each call would end after
/// its deadline, so the store would work for nothing.
#[derive(Debug)]
pub(super) struct ExchangeLimit(AtomicU64);

impl ExchangeLimit {
    pub(super) fn new() -> Self {
        Self(AtomicU64::new(MOST))
    }

    pub(super) fn now(&self) -> usize {
        usize::try_from(self.0.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
    }

    /// Learns from an exchange that has ended. A quarter of the deadline is a long time, because an
    /// exchange may take several calls. One that fails at once, as while the breaker is open, says
    /// nothing.
    pub(super) fn learn(&self, is_ok: bool, took: Duration, deadline: Duration) {
        let next = |limit: u64| match (took > deadline / 4, is_ok) {
            (true, _) => Some(limit.saturating_sub(1).max(LEAST)),
            (false, true) => Some((limit + 1).min(MOST)),
            (false, false) => None,
        };
        let _ = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }
}

#[cfg(all(test, not(tower_throttle_loom), not(tower_throttle_shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn it_shrinks_if_exchanges_take_long_and_grows_if_they_do_not() {
        let limit = ExchangeLimit::new();
        let deadline = Duration::from_millis(100);
        let (long, short) = (Duration::from_millis(26), Duration::from_millis(25));
        let learn = |is_ok, took, times| {
            for _ in 0..times {
                limit.learn(is_ok, took, deadline);
            }
            limit.now()
        };
        assert_eq!(learn(true, short, 1), 500);
        assert_eq!(learn(true, long, 100), 400);
        assert_eq!(learn(false, long, 1_000), 16);
        assert_eq!(learn(false, short, 10), 16);
        assert_eq!(learn(true, short, 10), 26);
        assert_eq!(learn(true, short, 1_000), 500);
    }
}
