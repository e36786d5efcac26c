//! What was measured while a limit applied.

use std::time::Duration;

use crate::clock::{Tick, nanos};

/// How a request ended, for a limit that adapts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
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
    pub(super) latency_ns: u64,
    /// The number of latencies, those of cancelled requests included.
    pub samples: u64,
    /// The most requests that were in flight at a time. A layer with
    /// [priorities](super::super::ConcurrencyLimitLayer::priority) counts, at a request that may use `p` % of the limit,
    /// 100 / `p` as many: so requests that fill their part have used the limit.
    pub most_in_flight: u64,
    /// The number of requests for which the service was overloaded.
    pub dropped: u64,
    /// The [load](super::Adaptive::load) of the system at its end; 0 unless the algorithm measures it.
    pub load: u64,
    pub(super) mean_ns: u64,
    pub(super) ended: Tick,
    pub(super) length_ns: u64,
}

impl Window {
    /// A window of a second with this latency: a high percentile of all in it.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::clock::Tick;
    /// use tower_throttle::concurrency::{Adaptive, Aimd, Window};
    ///
    /// let ms = Duration::from_millis;
    /// let aimd = Aimd::new(ms(100)).start_at(20);
    /// // 400 requests, at most 20 in flight, and 10 for which the service was overloaded.
    /// let window = Window::new(ms(80), 400, 20, 10)
    ///     .with_mean(ms(30))
    ///     .with_times(Tick::ZERO, Tick::from_nanos(500_000_000))
    ///     .with_load(3);
    /// assert_eq!((window.mean(), window.length(), window.load), (ms(30), ms(500), 3));
    /// let next = aimd.next(&aimd.start(), &window);
    /// assert!(aimd.limit(&next) < 20);
    /// ```
    pub fn new(latency: Duration, samples: u64, most_in_flight: u64, dropped: u64) -> Self {
        let latency_ns = nanos(latency).max(1);
        Self {
            latency_ns,
            samples,
            most_in_flight,
            dropped,
            load: 0,
            mean_ns: latency_ns,
            ended: Tick::from_nanos(1_000_000_000),
            length_ns: 1_000_000_000,
        }
    }

    /// The mean of all latencies in it; [`latency`](Self::latency) unless set.
    #[must_use]
    pub fn with_mean(mut self, mean: Duration) -> Self {
        self.mean_ns = nanos(mean);
        self
    }

    /// When it began and ended.
    #[must_use]
    pub fn with_times(mut self, begun: Tick, ended: Tick) -> Self {
        self.ended = ended;
        self.length_ns = nanos(ended.since(begun));
        self
    }

    /// The load of the system at its end.
    #[must_use]
    pub const fn with_load(mut self, load: u64) -> Self {
        self.load = load;
        self
    }

    /// The mean of all latencies in it.
    pub const fn mean(&self) -> Duration {
        Duration::from_nanos(self.mean_ns)
    }

    /// When it ended.
    pub const fn ended(&self) -> Tick {
        self.ended
    }

    /// How long it was.
    pub const fn length(&self) -> Duration {
        Duration::from_nanos(self.length_ns)
    }

    /// The latency: of [`Samples`], that which 9 of 10 requests did not exceed. It means nothing if
    /// there are no `samples`, as in an outage, in which all requests are drops.
    pub const fn latency(&self) -> Duration {
        Duration::from_nanos(self.latency_ns)
    }

    /// Whether at least 1 of 100 requests was a drop. A single one among many says little.
    pub(super) const fn is_overloaded(&self) -> bool {
        let ended = self.samples.saturating_add(self.dropped);
        self.dropped > 0 && self.dropped.saturating_mul(100) >= ended
    }

    /// Whether at most half of `limit` was used. Then a higher limit would change nothing, and the
    /// service had no queue.
    pub(super) const fn is_idle(&self, limit: u64) -> bool {
        self.most_in_flight.saturating_mul(2) <= limit
    }
}

/// The samples of the window so far.
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::{clock::Tick, concurrency::{Outcome, Samples}};
///
/// let mut samples = Samples::new(Duration::from_secs(1), 10);
/// let start = Tick::ZERO;
/// for n in 1..=20 {
///     let (now, latency) = (start.plus(Duration::from_millis(40 * n)), Duration::from_millis(n));
///     assert!(samples.record(now, latency, 3, Outcome::Success).is_none());
/// }
/// let end = start.plus(Duration::from_millis(1_040));
/// let window = samples.record(end, Duration::from_millis(21), 3, Outcome::Success).unwrap();
/// assert_eq!((window.samples, window.most_in_flight, window.dropped), (21, 3, 0));
/// // The 19th of 21 latencies, at most a sixteenth too high.
/// assert!((19..=20).contains(&window.latency().as_millis()), "{window:?}");
/// ```
#[derive(Clone, Debug)]
pub struct Samples {
    span_ns: u64,
    least: u64,
    begun: Option<Tick>,
    /// When the last window without samples ended, if that was after the beginning.
    emptied: Option<Tick>,
    counts: Box<[u32; BUCKETS]>,
    latencies: u64,
    total_ns: u64,
    /// How many of the latencies are of cancelled requests.
    cancelled: u64,
    most_in_flight: u64,
    dropped: u64,
    /// The latency of the last window in which almost all requests ended; 0 before.
    usual_ns: u64,
}

/// Sixteen buckets for each power of two from 16 ns on, and sixteen below.
const PER_POWER: u64 = 16;
const BUCKETS: usize = 61 * 16;

impl Samples {
    /// A window ends when it is as long as `span` and has `least` latencies and drops together.
    pub fn new(span: Duration, least: u64) -> Self {
        Self {
            span_ns: nanos(span),
            least,
            begun: None,
            emptied: None,
            counts: Box::new([0; BUCKETS]),
            latencies: 0,
            total_ns: 0,
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
    ///
    /// If there are too few latencies and drops for a window after its time, as when all responses are
    /// ignored, it returns one without any, and keeps them for the next.
    pub fn record(
        &mut self,
        now: Tick,
        latency: Duration,
        in_flight: u64,
        outcome: Outcome,
    ) -> Option<Window> {
        let begun = *self.begun.get_or_insert(now);
        self.most_in_flight = self.most_in_flight.max(in_flight);
        let mut is_sample = true;
        match outcome {
            Outcome::Success => self.count(nanos(latency)),
            Outcome::Cancelled if self.usual_ns > 0 && nanos(latency) > self.usual_ns => {
                self.count(nanos(latency));
                self.cancelled += 1;
            }
            Outcome::Ignored | Outcome::Cancelled => is_sample = false,
            Outcome::Dropped => self.dropped += 1,
        }
        let is_long = nanos(now.since(begun)) >= self.span_ns;
        if !is_long {
            return None;
        }
        if !is_sample || self.latencies.saturating_add(self.dropped) < self.least {
            return self.empty_window(now, begun);
        }
        let window = Window {
            latency_ns: self.percentile().max(1),
            samples: self.latencies,
            most_in_flight: self.most_in_flight,
            dropped: self.dropped,
            load: 0,
            mean_ns: self.total_ns.checked_div(self.latencies).unwrap_or(0),
            ended: now,
            length_ns: nanos(now.since(begun)),
        };
        if self.latencies > 0 && self.cancelled <= self.latencies / 10 {
            self.usual_ns = window.latency_ns;
        }
        (self.begun, self.emptied) = (Some(now), None);
        self.counts.fill(0);
        (self.latencies, self.cancelled, self.total_ns) = (0, 0, 0);
        (self.most_in_flight, self.dropped) = (0, 0);
        Some(window)
    }

    /// A window without latencies and drops, if the last one was long enough ago.
    fn empty_window(&mut self, now: Tick, begun: Tick) -> Option<Window> {
        let last = self.emptied.unwrap_or(begun);
        if nanos(now.since(last)) < self.span_ns {
            return None;
        }
        self.emptied = Some(now);
        let window = Window::new(Duration::ZERO, 0, self.most_in_flight, 0);
        Some(window.with_times(last, now))
    }

    fn count(&mut self, latency_ns: u64) {
        let count = &mut self.counts[bucket(latency_ns)];
        *count = count.saturating_add(1);
        self.latencies += 1;
        self.total_ns = self.total_ns.saturating_add(latency_ns);
    }

    /// The end of the bucket that holds the latency which 9 of 10 did not exceed.
    fn percentile(&self) -> u64 {
        let mut left = self.latencies.saturating_mul(9).div_ceil(10);
        for (at, count) in self.counts.iter().enumerate() {
            left = left.saturating_sub((*count).into());
            if left == 0 {
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

    /// Shows promise 186.
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

    /// Shows promise 187.
    #[test]
    fn a_cancelled_request_is_a_sample_if_it_lasted_longer_than_usual() {
        let mut samples = Samples::new(Duration::from_secs(1), 10);
        let mut window = |second: u64, ms: u64, outcome| {
            let latency = Duration::from_millis(ms);
            let ended = (0..=20).filter_map(|n| {
                let now = Tick::from_nanos(second * 1_000_000_000 + n * 50_000_000);
                samples.record(now, latency, 5, outcome)
            });
            let ended = ended.filter(|window| window.samples > 0);
            ended.last().map(|window| window.latency().as_millis())
        };
        // Nothing is known yet.
        assert_eq!(window(0, 500, Outcome::Cancelled), None);
        assert!((20..22).contains(&window(1, 20, Outcome::Success).unwrap()));
        assert_eq!(window(2, 19, Outcome::Cancelled), None);
        // They go on to be samples when all requests are cancelled.
        for second in 3..10 {
            let latency = window(second, 500, Outcome::Cancelled).unwrap();
            assert!((500..535).contains(&latency), "{latency}");
        }
        // The usual latency is a greater one now.
        assert!((100..108).contains(&window(10, 100, Outcome::Success).unwrap()));
        assert_eq!(window(11, 90, Outcome::Cancelled), None);
        // An outage changes nothing about it.
        assert_eq!(window(12, 90, Outcome::Dropped), None);
        assert_eq!(window(13, 90, Outcome::Cancelled), None);
    }

    #[test]
    fn a_tenth_of_a_window_may_be_cancelled() {
        let usual = |cancelled: u64| {
            let mut samples = Samples::new(Duration::from_nanos(20), 20);
            samples.usual_ns = 10;
            for n in 0..=20 {
                let (latency, outcome) = match n {
                    // As long as usual is no sample.
                    0 => (10, Outcome::Cancelled),
                    n if n <= cancelled => (15, Outcome::Cancelled),
                    _ => (5, Outcome::Success),
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
        let tick = |ms: u64| Tick::from_nanos(ms * 1_000_000);
        let latency = Duration::from_millis(5);
        let mut samples = Samples::new(Duration::from_secs(1), 3);
        assert!(
            samples
                .record(tick(0), latency, 1, Outcome::Success)
                .is_none()
        );
        // It is long enough, but what is ignored is no sample.
        let window = samples.record(tick(1_000), latency, 9, Outcome::Ignored);
        let window = window.map(|window| (window.samples, window.dropped, window.length()));
        assert_eq!(window, Some((0, 0, Duration::from_secs(1))));
        assert!(
            samples
                .record(tick(1_000), latency, 2, Outcome::Success)
                .is_none()
        );
        let window = samples
            .record(tick(1_600), latency, 1, Outcome::Dropped)
            .unwrap();
        assert_eq!(
            (window.samples, window.most_in_flight, window.dropped),
            (2, 9, 1)
        );
        assert_eq!((window.mean(), window.ended()), (latency, tick(1_600)));
        assert_eq!(window.length(), Duration::from_millis(1_600));
        // The next one begins empty; an older moment ends nothing.
        for _ in 0..10 {
            assert!(
                samples
                    .record(tick(100), latency, 1, Outcome::Success)
                    .is_none()
            );
        }
        let window = samples
            .record(tick(2_600), latency, 1, Outcome::Success)
            .unwrap();
        assert_eq!((window.samples, window.dropped), (11, 0));
    }
}
