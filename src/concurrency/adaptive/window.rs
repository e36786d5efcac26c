//! What was measured while a limit applied.

use std::time::Duration;

use crate::clock::{Tick, nanos};

/// How a request ended, for a limit that adapts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestEnd {
    /// Its latency is a sample.
    Success,
    /// It says nothing about the service: a bad request, or an error of the client.
    Ignored,
    /// It was cancelled before it ended, as by a client that timed out. Its latency would have been
    /// greater, so it is a sample only if it exceeds that of the last window.
    Cancelled,
    /// The service was overloaded: it timed out, or said so.
    Dropped,
}

/// What was measured in one window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Window {
    latency_ns: u64,
    /// The number of latencies, those of cancelled requests included.
    pub samples: u64,
    /// The most requests that were in flight at a time. Requests that must leave
    /// [reserved](super::super::ConcurrencyLimitLayer::reserve) permits free count in proportion: if they fill the part
    /// of the limit that they may use, all of it is used.
    pub most_in_flight: u64,
    /// The number of requests for which the service was overloaded.
    pub dropped: u64,
}

impl Window {
    /// A window of `samples` with this [latency](Self::latency), to try an algorithm.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::concurrency::{Adaptive, Aimd, Window};
    ///
    /// let mut aimd = Aimd::new(Duration::from_millis(100)).start_at(20);
    /// // 400 requests, at most 20 in flight, and 10 for which the service was overloaded.
    /// aimd.next(&Window::new(Duration::from_millis(180), 400, 20, 10));
    /// assert!(aimd.limit() < 20);
    /// ```
    pub fn new(latency: Duration, samples: u64, most_in_flight: u64, dropped: u64) -> Self {
        Self {
            latency_ns: nanos(latency),
            samples,
            most_in_flight,
            dropped,
        }
    }

    /// The latency which more than half of the requests did not exceed, at most a sixteenth too high. A drop counts as
    /// longer than any latency: `None` if half of the requests or more were drops.
    ///
    /// So a part of the requests less than half cannot move it beyond the latencies of the others, however slow they are.
    pub const fn latency(&self) -> Option<Duration> {
        if self.dropped >= self.samples {
            return None;
        }
        Some(Duration::from_nanos(self.latency_ns))
    }

    /// Whether at most half of `limit` was used. Then another limit would change nothing, and the
    /// service had no queue.
    pub(super) const fn is_idle(&self, limit: u32) -> bool {
        self.most_in_flight.saturating_mul(2) <= limit as u64
    }
}

/// The samples of the window so far.
#[derive(Clone, Debug)]
pub(in super::super) struct Samples {
    span_ns: u64,
    least: u64,
    begun: Option<Tick>,
    counts: Box<[u32; BUCKETS]>,
    latencies: u64,
    /// How many of the latencies are of cancelled requests.
    cancelled: u64,
    most_in_flight: u64,
    dropped: u64,
    /// The latency which 9 of 10 requests did not exceed in the last window in which almost all ended; 0 before.
    usual_ns: u64,
}

/// Sixteen buckets for each power of two from 16 ns on, and sixteen below.
const PER_POWER: u64 = 16;
const BUCKETS: usize = 61 * 16;

impl Samples {
    /// A window ends when it is as long as `span` and has `least` latencies and drops together.
    pub(in super::super) fn new(span: Duration, least: u64) -> Self {
        Self {
            span_ns: nanos(span),
            least,
            begun: None,
            counts: Box::new([0; BUCKETS]),
            latencies: 0,
            cancelled: 0,
            most_in_flight: 0,
            dropped: 0,
            usual_ns: 0,
        }
    }

    /// Adds a request that ended at `now` after `latency`. `in_flight` is how many were in flight,
    /// itself included. Returns the window if this request ends it.
    ///
    /// A moment that is older than the window counts as its beginning. Cancelled requests are ignored
    /// until there was a window, and are compared with the last one of which they were at most a tenth:
    /// if all clients time out, all of them are samples.
    pub(in super::super) fn record(
        &mut self,
        now: Tick,
        latency: Duration,
        in_flight: u64,
        outcome: RequestEnd,
    ) -> Option<Window> {
        let (begun, latency_ns) = (*self.begun.get_or_insert(now), nanos(latency));
        self.most_in_flight = self.most_in_flight.max(in_flight);
        match outcome {
            RequestEnd::Success => self.count(latency_ns),
            RequestEnd::Cancelled if self.usual_ns > 0 && latency_ns > self.usual_ns => {
                self.count(latency_ns);
                self.cancelled += 1;
            }
            RequestEnd::Ignored | RequestEnd::Cancelled => return None,
            RequestEnd::Dropped => self.dropped += 1,
        }
        let ended = self.latencies.saturating_add(self.dropped);
        if ended < self.least || nanos(now.since(begun)) < self.span_ns {
            return None;
        }
        let window = Window {
            latency_ns: self.latency_at(ended / 2 + 1),
            samples: self.latencies,
            most_in_flight: self.most_in_flight,
            dropped: self.dropped,
        };
        if self.latencies > 0 && self.cancelled <= self.latencies / 10 {
            self.usual_ns = self.latency_at(self.latencies.saturating_mul(9).div_ceil(10));
        }
        self.begun = Some(now);
        self.counts.fill(0);
        (self.latencies, self.cancelled) = (0, 0);
        (self.most_in_flight, self.dropped) = (0, 0);
        Some(window)
    }

    fn count(&mut self, latency_ns: u64) {
        let count = &mut self.counts[bucket(latency_ns)];
        *count = count.saturating_add(1);
        self.latencies += 1;
    }

    /// The end of the bucket that holds the latency of this rank; 0 if there is none.
    fn latency_at(&self, mut rank: u64) -> u64 {
        for (at, count) in self.counts.iter().enumerate() {
            rank = rank.saturating_sub((*count).into());
            if rank == 0 {
                return bucket_end(at as u64);
            }
        }
        0
    }
}

/// The bucket of a latency. Buckets below 16 ns hold one value, others a sixteenth of a power of two.
fn bucket(ns: u64) -> usize {
    let power = u64::from(ns.max(1).ilog2());
    let index = if power < 4 {
        ns
    } else {
        (power - 3) * PER_POWER + (ns >> (power - 4)) - PER_POWER
    };
    usize::try_from(index).unwrap_or_default()
}

/// The greatest latency of a bucket.
const fn bucket_end(index: u64) -> u64 {
    if index < PER_POWER {
        return index;
    }
    let shift = index / PER_POWER - 1;
    let start = (index % PER_POWER + PER_POWER) << shift;
    start + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows promise 185.
    #[test]
    fn buckets_are_in_order_and_at_most_a_sixteenth_wide() {
        let mut last = 0;
        for power in 0..63 {
            for part in 0..97 {
                let ns = (1_u64 << power) + (1_u64 << power) / 97 * part;
                let (index, end) = (bucket(ns), bucket_end(bucket(ns) as u64));
                assert!(
                    index >= last && ns <= end && end - ns <= ns / 16,
                    "{ns} {end}"
                );
                last = index;
            }
        }
        assert!(bucket(u64::MAX) < BUCKETS);
        assert_eq!([15, 16, 47].map(bucket_end), [15, 16, 63]);
    }

    /// Shows promise 185.
    #[test]
    fn a_cancelled_request_is_a_sample_if_it_lasted_longer_than_usual() {
        let mut samples = Samples::new(Duration::from_secs(1), 10);
        let mut window = |second: u64, ms: u64, outcome| {
            let latency = Duration::from_millis(ms);
            let ended = (0..=20).filter_map(|n| {
                let now = Tick::from_nanos(second * 1_000_000_000 + n * 50_000_000);
                samples.record(now, latency, 5, outcome)
            });
            let latency = ended.last().and_then(|window| window.latency());
            latency.map(|latency| latency.as_millis())
        };
        // Nothing is known yet.
        assert_eq!(window(0, 500, RequestEnd::Cancelled), None);
        assert!((20..22).contains(&window(1, 20, RequestEnd::Success).unwrap()));
        assert_eq!(window(2, 19, RequestEnd::Cancelled), None);
        // They go on to be samples when all requests are cancelled.
        for second in 3..10 {
            let latency = window(second, 500, RequestEnd::Cancelled).unwrap();
            assert!((500..535).contains(&latency), "{latency}");
        }
        // The usual latency is a greater one now.
        assert!((100..108).contains(&window(10, 100, RequestEnd::Success).unwrap()));
        assert_eq!(window(11, 90, RequestEnd::Cancelled), None);
        // An outage changes nothing about it.
        assert_eq!(window(12, 90, RequestEnd::Dropped), None);
        assert_eq!(window(13, 90, RequestEnd::Cancelled), None);
    }

    #[test]
    fn a_tenth_of_a_window_may_be_cancelled() {
        let usual = |cancelled: u64| {
            let mut samples = Samples::new(Duration::from_nanos(20), 20);
            samples.usual_ns = 10;
            for n in 0..=20 {
                let (latency, outcome) = match n {
                    // As long as usual is no sample.
                    0 => (10, RequestEnd::Cancelled),
                    n if n <= cancelled => (15, RequestEnd::Cancelled),
                    _ => (5, RequestEnd::Success),
                };
                let latency = Duration::from_nanos(latency);
                samples.record(Tick::from_nanos(n), latency, 1, outcome);
            }
            samples.usual_ns
        };
        assert_eq!((usual(0), usual(2), usual(3)), (5, 5, 10));
    }

    #[test]
    fn a_window_ends_by_its_length_and_its_number_of_samples() {
        let mut samples = Samples::new(Duration::from_secs(1), 3);
        let mut record = |ms: u64, in_flight, outcome| {
            let now = Tick::from_nanos(ms * 1_000_000);
            samples.record(now, Duration::from_millis(5), in_flight, outcome)
        };
        assert_eq!(record(0, 1, RequestEnd::Success), None);
        // It is long enough, but what is ignored is no sample.
        assert_eq!(record(1_000, 9, RequestEnd::Ignored), None);
        assert_eq!(record(1_000, 2, RequestEnd::Success), None);
        let window = record(1_600, 1, RequestEnd::Dropped).unwrap();
        assert_eq!(
            (window.samples, window.most_in_flight, window.dropped),
            (2, 9, 1)
        );
        // The next one begins empty; an older moment ends nothing.
        for _ in 0..10 {
            assert_eq!(record(100, 1, RequestEnd::Success), None);
        }
        let window = record(2_600, 1, RequestEnd::Success).unwrap();
        assert_eq!((window.samples, window.dropped), (11, 0));
    }

    /// The latency of a window of 100 requests of 10 ms with `slow` of 700 ms, and `dropped` ones.
    fn latency_ms(slow: u64, dropped: u64) -> Option<u128> {
        let mut samples = Samples::new(Duration::from_secs(1), 100 + slow + dropped);
        let each = |n: u64| match n {
            n if n < dropped => (0, RequestEnd::Dropped),
            n if n < dropped + slow => (700, RequestEnd::Success),
            _ => (10, RequestEnd::Success),
        };
        let ended = (0..100 + slow + dropped).filter_map(|n| {
            let (ms, outcome) = each(n);
            let now = Tick::from_nanos(n * 1_000_000_000);
            samples.record(now, Duration::from_millis(ms), 1, outcome)
        });
        let window = ended.last().unwrap();
        window.latency().map(|latency| latency.as_millis())
    }

    /// Shows promise 610.
    #[test]
    fn fewer_than_half_of_the_requests_do_not_move_the_latency() {
        for (slow, dropped) in [(0, 0), (99, 0), (0, 99), (49, 50), (12, 4)] {
            assert_eq!(latency_ms(slow, dropped), Some(10), "{slow} {dropped}");
        }
        // A drop counts as longer than any latency.
        for (slow, dropped) in [(100, 0), (50, 50), (1, 100)] {
            assert!(latency_ms(slow, dropped) >= Some(700), "{slow} {dropped}");
        }
        assert_eq!((latency_ms(0, 100), latency_ms(99, 300)), (None, None));
    }
}
