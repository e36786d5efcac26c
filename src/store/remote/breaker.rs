//! A circuit breaker: after repeated failures, only occasional probes are sent to the server.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

use crate::clock::{Tick, nanos};

/// How many failures in a row open a breaker.
const FAILURES: u32 = 3;
/// The time from opening to the first probe, and the longest one between two, without jitter. Each is twice as long as
/// the one before.
const PROBE_INTERVALS: [Duration; 2] = [Duration::from_millis(25), Duration::from_millis(250)];

/// Counts failures in a row. While open, it allows one call per interval: a probe.
///
/// ```text
/// closed --3 failures--> open --25 ms--> one probe --ok--> closed
///                          ^                |
///                          +-- twice as ----+ failed
///                              long, <= 250 ms
/// ```
///
/// An interval starts when its probe is sent, and jitter makes it up to a quarter longer. Any success
/// closes the breaker.
///
/// Calls that are in flight together and time out together are one failure: a failed call counts only
/// if it was not sent before the last failure that counted. So a stall of the server counts once per
/// call timeout, however many calls it delays.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    /// The failures that counted since the last success.
    failures: u32,
    /// When the last failure was counted.
    failed_at: Option<Tick>,
    /// When the next probe is due; `None` while closed.
    probe_at: Option<Tick>,
    /// How long the last one was scheduled for, since the last success.
    interval: Duration,
}

impl Breaker {
    pub(crate) const fn is_open(&self) -> bool {
        self.probe_at.is_some()
    }

    /// Decides whether a call may be sent. While open, allows the first call after a probe is due, and schedules the next
    /// one.
    pub(crate) fn try_start_call(&mut self, now: Tick) -> bool {
        let is_due = self.probe_at.is_none_or(|at| at <= now);
        if self.probe_at.is_some() && is_due {
            // Allows only this call. If its result never arrives, the next probe is still allowed.
            self.schedule_probe(now);
        }
        is_due
    }

    /// Records the success of a call, which closes the breaker. Returns whether it was open.
    pub(crate) fn record_success(&mut self) -> bool {
        self.failures = 0;
        self.interval = Duration::ZERO;
        self.probe_at.take().is_some()
    }

    /// Records the failure of a call that was sent at `sent_at`. Returns whether it opens the breaker.
    pub(crate) fn record_failure(&mut self, sent_at: Tick, now: Tick) -> bool {
        if self.failed_at.is_some_and(|last| sent_at < last) {
            return false;
        }
        self.failed_at = Some(now);
        self.failures = self.failures.saturating_add(1);
        if self.failures < FAILURES || self.probe_at.is_some() {
            return false;
        }
        self.schedule_probe(now);
        true
    }

    /// Schedules the next probe, each after twice the time, up to the maximum.
    fn schedule_probe(&mut self, now: Tick) {
        let [first, longest] = PROBE_INTERVALS;
        self.interval = (self.interval * 2).clamp(first, longest);
        // Up to a quarter longer, so that processes do not probe at the same time.
        let jitter = RandomState::new().hash_one(0) % (nanos(self.interval) / 4 + 1);
        self.probe_at = Some(now.plus(self.interval).plus(Duration::from_nanos(jitter)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Tick {
        Tick::from_nanos(ms * 1_000_000)
    }

    /// Shows promise 94.
    #[test]
    fn three_failures_in_a_row_open_it_and_one_success_closes_it() {
        let mut breaker = Breaker::default();
        let fail = |breaker: &mut Breaker, ms| breaker.record_failure(at(ms), at(ms));
        assert!(!fail(&mut breaker, 0));
        assert!(!fail(&mut breaker, 1));
        assert!(!breaker.record_success());
        assert!(!fail(&mut breaker, 2));
        assert!(!fail(&mut breaker, 3));
        assert!(breaker.try_start_call(at(3)));
        assert!(fail(&mut breaker, 4));
        assert!(!breaker.try_start_call(at(28)));
        assert!(breaker.record_success());
        assert!(breaker.try_start_call(at(28)));
        let opened = [100, 101, 102].map(|ms| fail(&mut breaker, ms));
        assert_eq!(opened, [false, false, true]);
        assert!(breaker.probe_at < Some(at(134)), "as early as at first");
        assert!(
            breaker
                .probe_at
                .is_some_and(|due| breaker.try_start_call(due))
        );
    }

    /// Shows promise 94.
    #[test]
    fn calls_that_fail_in_one_stall_are_one_failure() {
        let mut breaker = Breaker::default();
        // The calls are sent in the first 20 ms of a stall of 70 ms. Each has a deadline of 50 ms.
        for sent in 0..20 {
            assert!(!breaker.record_failure(at(sent), at(sent + 50)));
        }
        assert!(!breaker.is_open());
        // An outage: no call is sent before the last failure that counted.
        assert!(!breaker.record_failure(at(69), at(119)));
        assert!(breaker.record_failure(at(119), at(169)));
    }

    /// Shows promise 94.
    #[test]
    fn probes_come_early_then_less_often_and_with_jitter() {
        let mut all_gaps = Vec::new();
        for _ in 0..20 {
            let mut breaker = Breaker::default();
            for ms in 0..3 {
                breaker.record_failure(at(ms), at(ms));
            }
            let (mut now, mut last, mut gaps) = (2, 2, Vec::new());
            while gaps.len() < 7 {
                now += 1;
                if breaker.try_start_call(at(now)) {
                    gaps.push(now - last);
                    last = now;
                    assert!(!breaker.record_failure(at(now), at(now)), "is open");
                }
            }
            for (gap, least) in gaps.iter().zip([25, 50, 100, 200, 250, 250, 250]) {
                assert!((least..=least * 5 / 4 + 1).contains(gap), "{gaps:?}");
            }
            assert!(breaker.is_open());
            all_gaps.push(gaps);
        }
        for place in 0..7 {
            let is_same = |gaps: &Vec<u64>| gaps[place] == all_gaps[0][place];
            assert!(!all_gaps.iter().all(is_same), "no jitter: {all_gaps:?}");
        }
    }
}
