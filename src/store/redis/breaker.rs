//! Not asking a server that does not answer.

use std::time::Duration;

use crate::clock::Tick;
use crate::store::events::SwitchEvent;

/// So many failures in a row open it.
const FAILURE_THRESHOLD: u32 = 3;
/// While it is open, one call in so long goes through to see.
const PROBE_INTERVAL: Duration = Duration::from_millis(250);

/// Counts failures in a row; open, it lets a probe through now and then.
///
/// ```text
/// closed --3 failures--> open --250 ms--> one probe --ok--> closed
///                          ^                 |
///                          +----- failed ----+
/// ```
#[derive(Debug, Default)]
pub(super) struct Breaker {
    failures: u32,
    /// When the next probe may go; `None` while it is closed.
    probe_at: Option<Tick>,
    opened: u64,
    probes: u64,
}

/// How it went with asking a Redis server; see [`Redis::breaker`](super::Redis::breaker).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BreakerCounts {
    /// Whether the server is left alone now.
    pub is_open: bool,
    /// How many times it began to be left alone.
    pub opened: u64,
    /// How many calls went to see whether it answers again.
    pub probes: u64,
}

impl Breaker {
    pub(super) const fn counts(&self) -> BreakerCounts {
        BreakerCounts {
            is_open: self.probe_at.is_some(),
            opened: self.opened,
            probes: self.probes,
        }
    }

    /// Whether a call may go to the server.
    pub(super) fn lets_through(&mut self, now: Tick) -> bool {
        match &mut self.probe_at {
            None => true,
            Some(at) if *at <= now => {
                // Only this one: the next probe is due if nothing is heard of it.
                *at = now.plus(PROBE_INTERVAL);
                self.probes += 1;
                true
            }
            Some(_) => false,
        }
    }

    pub(super) fn succeeded(&mut self) -> Option<SwitchEvent> {
        self.failures = 0;
        self.probe_at.take().map(|_| SwitchEvent::BreakerClosed)
    }

    pub(super) fn failed(&mut self, now: Tick) -> Option<SwitchEvent> {
        self.failures = self.failures.saturating_add(1);
        if self.failures < FAILURE_THRESHOLD {
            return None;
        }
        let was_closed = self.probe_at.is_none();
        self.opened += u64::from(was_closed);
        self.probe_at = Some(now.plus(PROBE_INTERVAL));
        was_closed.then_some(SwitchEvent::BreakerOpened)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Tick {
        Tick::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn three_failures_in_a_row_open_it_and_one_success_closes_it() {
        let mut breaker = Breaker::default();
        assert_eq!(breaker.failed(at(0)), None);
        assert_eq!(breaker.failed(at(0)), None);
        assert_eq!(breaker.succeeded(), None);
        assert_eq!(breaker.failed(at(1)), None);
        assert_eq!(breaker.failed(at(1)), None);
        assert!(breaker.lets_through(at(1)));
        assert_eq!(breaker.failed(at(1)), Some(SwitchEvent::BreakerOpened));
        assert!(!breaker.lets_through(at(250)));
        assert_eq!(breaker.succeeded(), Some(SwitchEvent::BreakerClosed));
        assert!(breaker.lets_through(at(250)));
    }

    #[test]
    fn while_it_is_open_one_probe_goes_through_in_each_interval() {
        let mut breaker = Breaker::default();
        for _ in 0..FAILURE_THRESHOLD {
            breaker.failed(at(0));
        }
        let through = |breaker: &mut Breaker, ms| breaker.lets_through(at(ms));
        assert!(!through(&mut breaker, 249));
        assert!(through(&mut breaker, 250));
        assert!(!through(&mut breaker, 251) && !through(&mut breaker, 499));
        assert!(through(&mut breaker, 500), "nothing was heard of the first");
        assert_eq!(breaker.failed(at(510)), None, "it was open already");
        let counts = breaker.counts();
        assert_eq!((counts.is_open, counts.opened, counts.probes), (true, 1, 2));
        assert!(!through(&mut breaker, 759) && through(&mut breaker, 760));
    }
}
