//! The product of throughput and latency as a limit while the system is loaded, as in Sentinel, go-zero
//! and kratos, after TCP BBR.

use std::fmt;

use super::Adaptive;
use super::range::Range;
use super::window::Window;
use crate::clock::Tick;
use crate::error::{ConfigError, expect_valid};

/// No limit while the load of the system is low, and its capacity while the load is high.
///
/// The capacity is the highest throughput times the lowest mean latency of the windows of the last 11
/// seconds, rounded up. That many requests are in flight in a system that is busy and has no queue:
/// ```text
/// capacity = max(samples / length) * min(mean latency)
/// limit = capacity + √capacity    if the load is at least the threshold, or was in the window before
///       = the greatest one        otherwise
/// ```
/// The root lets the limit rise while the system can do more. A window that used at most half of a
/// limit does not lower it.
///
/// The load is what a closure returns when a window ends, in any unit: the load average, the use of the
/// processor, the length of a queue. If it stays high, the limit is halved for one window after 10
/// seconds in which more than half of it was used, and again for each further window as long as the mean
/// latency falls by a quarter: so the queue goes down, and the latency without it is seen again. That takes
/// up to a twentieth of the throughput. It does not work if requests take much longer than the window, a
/// second.
///
/// It counts requests and the time until their heads. So release permits then
/// ([`release_at_head`](super::super::ConcurrencyLimitLayer::release_at_head)), and let each request
/// [cost](super::super::ConcurrencyLimitLayer::cost) 1. With other settings, and if many responses are errors that
/// are [ignored](super::super::ConcurrencyLimitLayer::adaptive), more permits are taken than it knows of, and the
/// limit is too low.
///
/// It is for a system that is sometimes idle and does different work at a time, of which the load is the
/// better sign than latency. It learns most from quiet windows. In a lasting overload without any,
/// throughput times latency is what is in flight (Little's law), so a queue goes down only in the windows
/// with a halved limit, up to 10 seconds after it has come. [`Gradient2`](super::Gradient2) removes it sooner;
/// the example `overload` has both.
///
/// ```
/// use tower_throttle::concurrency::{ConcurrencyLimitLayer, SystemGuard};
///
/// /// The load average of the last minute, in thousandths.
/// fn load_average() -> u64 {
///     let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
///     let first = text.split(' ').next().and_then(|first| first.parse::<f64>().ok());
///     first.map_or(0, |load| (load * 1_000.0) as u64)
/// }
///
/// // From a load average of 4 on: one per processor.
/// let layer = ConcurrencyLimitLayer::adaptive(SystemGuard::new(4_000, load_average));
/// assert_eq!(layer.handle().limit(), 10_000); // no limit yet
/// ```
#[derive(Clone, Copy)]
#[must_use = "an algorithm does nothing until it is given to a layer"]
pub struct SystemGuard<F> {
    range: Range,
    threshold: u64,
    load: F,
}

/// The state of [`SystemGuard`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemGuardState {
    limit: u64,
    /// Whether the load was high when the last window ended.
    was_loaded: bool,
    /// Whether the limit is halved for a window.
    is_resting: bool,
    /// When the last window ended in which at most half of the limit was used.
    rested: Tick,
    /// The last windows with samples, at most [`WINDOWS`], oldest first.
    seen: Vec<Seen>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    ended: Tick,
    samples: u64,
    length_ns: u64,
    mean_ns: u64,
}

/// How long a window counts: until the one after the next rest, so that there is always one with the
/// latency of a rest.
const SPAN_NS: u64 = 11_000_000_000;
/// How long the limit applies under load before it is halved.
const REST_AFTER_NS: u64 = 10_000_000_000;
/// The most windows that count, if they are shorter than a second.
const WINDOWS: usize = 16;

impl<F: Fn() -> u64 + Send + Sync + 'static> SystemGuard<F> {
    /// Limits while `load` returns `threshold` or more. From 1 to 10,000, which is the limit while it
    /// returns less.
    ///
    /// # Panics
    /// If `threshold` is 0: the load would never be low.
    #[track_caller]
    pub fn new(threshold: u64, load: F) -> Self {
        if threshold == 0 {
            let allowed = "a load from 1 on";
            expect_valid(Err::<(), _>(ConfigError::out_of_range(
                "threshold",
                threshold,
                allowed,
            )));
        }
        Self {
            range: Range::new(10_000).with_bounds(1, 10_000),
            threshold,
            load,
        }
    }

    /// Keeps the limit from `min` to `max`, which is the limit while the load is low.
    ///
    /// # Panics
    /// If `min` is 0 or greater than `max`.
    #[track_caller]
    pub fn between(mut self, min: u32, max: u32) -> Self {
        self.range = self.range.with_bounds(min, max).with_start(max);
        self
    }
}

impl<F: Fn() -> u64 + Send + Sync + 'static> Adaptive for SystemGuard<F> {
    type State = SystemGuardState;

    fn start(&self) -> SystemGuardState {
        SystemGuardState {
            limit: self.range.greatest(),
            was_loaded: false,
            is_resting: false,
            rested: Tick::ZERO,
            seen: Vec::new(),
        }
    }

    fn next(&self, state: &SystemGuardState, window: &Window) -> SystemGuardState {
        let mut seen = state.seen.clone();
        let last_ns = seen.last().map(|seen| seen.mean_ns);
        if window.samples > 0 {
            seen.push(Seen {
                ended: window.ended,
                samples: window.samples,
                length_ns: window.length_ns.max(1),
                mean_ns: window.mean_ns.max(1),
            });
        }
        let is_recent = |seen: &Seen| window.ended.since(seen.ended).as_nanos() < SPAN_NS.into();
        seen.retain(is_recent);
        let old = seen.len().saturating_sub(WINDOWS);
        seen.drain(..old);
        let is_loaded = window.load >= self.threshold;
        let has_samples = window.samples > 0;
        let is_idle = has_samples && window.is_idle(state.limit);
        let has_rested = has_samples && (state.is_resting || is_idle);
        let rested = if state.was_loaded && !has_rested {
            state.rested
        } else {
            window.ended
        };
        let has_to_rest = window.ended.since(rested).as_nanos() >= REST_AFTER_NS.into();
        // While the latency falls with the limit, there is a queue.
        let has_queue = last_ns.is_some_and(|last| has_fallen(window.mean_ns, last));
        let rests_on = is_loaded && has_samples && state.is_resting && has_queue;
        let is_resting = is_loaded && has_to_rest || rests_on;
        let is_limited = state.limit < self.range.greatest();
        let limit = match capacity(&seen) {
            _ if rests_on => state.limit.div_ceil(2),
            _ if is_resting && state.is_resting => state.limit,
            Some(capacity) if is_resting => capacity.div_ceil(2),
            Some(capacity) if is_loaded || state.was_loaded => {
                let limit = capacity.saturating_add(root(capacity));
                if is_idle && is_limited && !state.is_resting {
                    limit.max(state.limit)
                } else {
                    limit
                }
            }
            _ if is_loaded => state.limit,
            _ => self.range.greatest(),
        };
        SystemGuardState {
            limit: self.range.clamp_whole(limit),
            was_loaded: is_loaded,
            is_resting,
            rested,
            seen,
        }
    }

    fn limit(&self, state: &SystemGuardState) -> u64 {
        state.limit
    }

    fn load(&self) -> u64 {
        (self.load)()
    }
}

/// The highest throughput times the lowest mean latency, rounded up. `None` without windows.
fn capacity(seen: &[Seen]) -> Option<u64> {
    let rate_order = |a: &&Seen, b: &&Seen| {
        let [a_to_b, b_to_a] = [(a, b), (b, a)]
            .map(|(one, other)| u128::from(one.samples) * u128::from(other.length_ns));
        a_to_b.cmp(&b_to_a)
    };
    let fastest = seen.iter().max_by(rate_order)?;
    let mean_ns = seen.iter().map(|seen| seen.mean_ns).min()?;
    let product = u128::from(fastest.samples) * u128::from(mean_ns);
    let capacity = product.div_ceil(fastest.length_ns.into());
    Some(u64::try_from(capacity).unwrap_or(u64::MAX))
}

/// Whether a mean is more than a quarter below the last one.
const fn has_fallen(mean_ns: u64, last_ns: u64) -> bool {
    mean_ns < last_ns - last_ns / 4
}

/// The square root, rounded up.
const fn root(number: u64) -> u64 {
    match number.checked_sub(1) {
        Some(less) => less.isqrt() + 1,
        None => 0,
    }
}

/// Manual impl: closures are not `Debug`.
impl<F> fmt::Debug for SystemGuard<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SystemGuard")
            .field("range", &self.range)
            .field("threshold", &self.threshold)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A window of a second that ended at `second`.
    fn window(second: u64, samples: u64, mean_ms: u64, load: u64) -> Window {
        let mean = Duration::from_millis(mean_ms);
        let begun = Tick::from_nanos((second - 1) * 1_000_000_000);
        Window::new(mean * 2, samples, 1_000, 0)
            .with_mean(mean)
            .with_times(begun, begun.plus(Duration::from_secs(1)))
            .with_load(load)
    }

    fn limits(windows: impl IntoIterator<Item = Window>) -> Vec<u64> {
        let guard = SystemGuard::new(800, || 0).between(5, 1_000);
        let mut state = guard.start();
        let next = windows.into_iter().map(|window| {
            state = guard.next(&state, &window);
            guard.limit(&state)
        });
        next.collect()
    }

    /// Shows promise 194.
    #[test]
    fn the_limit_is_the_highest_throughput_times_the_lowest_latency_while_loaded() {
        let windows = [
            window(1, 100, 50, 0),
            window(2, 400, 100, 799),
            // 400 per second times 50 ms, and its root.
            window(3, 300, 120, 800),
            // Once more after the load has fallen.
            window(4, 10, 40, 0),
            window(5, 10, 40, 0),
            // 16 and its root, and never below 5.
            window(6, 10, 40, 900),
            window(7, 10, 1, 900),
        ];
        assert_eq!(limits(windows), [1_000, 1_000, 25, 20, 1_000, 20, 5]);
    }

    /// Shows promise 194.
    #[test]
    fn a_window_counts_for_eleven_seconds() {
        let mut windows = vec![window(1, 1_000, 20, 0)];
        windows.extend((2..=12).map(|second| window(second, 100, 100, 900)));
        let mut expected = vec![1_000];
        expected.extend([25; 10]);
        // Half of the capacity after 10 seconds under load.
        expected.push(5);
        assert_eq!(limits(windows.clone()), expected);
        // A window without requests is no rest.
        windows[5] = Window {
            most_in_flight: 0,
            ..window(6, 0, 1, 900)
        };
        assert_eq!(limits(windows), expected);
    }

    /// Shows promise 194.
    #[test]
    fn windows_without_samples_leave_the_limit_as_it_is() {
        let windows = [
            window(1, 0, 50, 900),
            window(2, 400, 50, 900),
            window(3, 0, 1, 900),
            // Also when no window counts any more.
            window(20, 0, 1, 900),
        ];
        assert_eq!(limits(windows), [1_000, 25, 25, 25]);
        // Nor do they end a rest, although the capacity is no longer 20 then.
        let mut resting = vec![window(1, 1_000, 20, 900)];
        resting.extend((2..=11).map(|second| window(second, 1_000, 100, 900)));
        resting.push(window(12, 0, 1, 900));
        assert_eq!(limits(resting)[9..], [25, 10, 10]);
    }

    /// The limits of 300 windows under load. Twenty workers take 100 ms for a request, and as many
    /// requests as allowed, at most 500, are in flight.
    fn under_load(first: Window) -> Vec<u64> {
        let guard = SystemGuard::new(800, || 0);
        let mut state = guard.next(&guard.start(), &first);
        let next = (2..302_u64).map(|second| {
            let in_flight = guard.limit(&state).min(500);
            // Some windows serve a little less.
            let samples = in_flight.min(20) * (10 - second % 3 / 2);
            let mut window = window(second, samples, 5 * in_flight.max(20), 900);
            window.most_in_flight = in_flight;
            state = guard.next(&state, &window);
            guard.limit(&state)
        });
        next.collect()
    }

    /// Shows promise 194.
    #[test]
    fn in_a_lasting_overload_the_limit_stays_near_the_capacity() {
        let quiet = window(1, 10, 100, 0);
        let long_queue = window(1, 200, 2_500, 900);
        for first in [quiet, long_queue] {
            let limits = under_load(first);
            let settled = &limits[80..];
            let [least, most] = [settled.iter().min(), settled.iter().max()].map(Option::unwrap);
            assert!(*least >= 10 && *most <= 32, "{limits:?}");
            let low = settled.iter().filter(|limit| **limit < 20).count();
            assert!(low * 10 <= settled.len(), "{limits:?}");
        }
    }

    /// Ten workers take 100 ms for a request, and as many requests as allowed are in flight.
    ///
    /// Shows promise 194.
    #[test]
    fn a_queue_is_gone_after_a_few_windows_with_half_of_the_limit() {
        let served = |second: u64, in_flight: u64| Window {
            most_in_flight: in_flight,
            ..window(second, in_flight.min(10) * 10, 10 * in_flight.max(10), 900)
        };
        let guard = SystemGuard::new(800, || 0);
        let mut state = guard.next(&guard.start(), &served(1, 160));
        let mut limits = Vec::new();
        for second in 2..26 {
            let in_flight = guard.limit(&state).min(160);
            if in_flight == 80 {
                // It is halved no further when the load is low.
                let calm = guard.next(&state, &served(second, 80).with_load(0));
                assert_eq!(guard.limit(&calm), 89);
            }
            state = guard.next(&state, &served(second, in_flight));
            limits.push(guard.limit(&state));
        }
        // The latency falls with each of them until 10 are in flight.
        let first = limits.iter().position(|limit| *limit == 80).unwrap();
        assert_eq!(
            limits[first..first + 6],
            [80, 40, 20, 10, 5, 14],
            "{limits:?}"
        );
        assert_eq!(limits[first + 6..first + 10], [14; 4], "{limits:?}");
        // A queue is gone if the latency has fallen by no more than a quarter.
        assert!(has_fallen(74, 100) && !has_fallen(75, 100));
    }

    /// Shows promise 194.
    #[test]
    fn a_window_that_used_at_most_half_does_not_lower_the_limit() {
        let slower = |most_in_flight| Window {
            most_in_flight,
            ..window(14, 40, 50, 900)
        };
        // The first window is too old by then: 40 per second times 50 ms is 2.
        let first = || window(3, 400, 50, 900);
        assert_eq!(limits([first(), slower(12)]), [25, 25]);
        // More than half, after 10 seconds: the limit is half of the capacity, or the least one.
        assert_eq!(limits([first(), slower(13)]), [25, 5]);
    }

    /// Shows promise 194.
    #[test]
    fn throughput_is_per_time_and_not_per_window() {
        let long = window(1, 100, 50, 0).with_times(Tick::ZERO, Tick::from_nanos(4_000_000_000));
        // 25 per second are fewer than 80.
        assert_eq!(limits([long, window(5, 80, 500, 900)]), [1_000, 6]);
        assert_eq!(limits([window(5, 80, 500, 900)]), [47]);
        let longer = window(1, 400, 50, 0).with_times(Tick::ZERO, Tick::from_nanos(1_100_000_000));
        // 400 in 1.1 s are more per second than 100: 19, and its root.
        assert_eq!(limits([longer, window(5, 100, 50, 900)]), [1_000, 24]);
        let huge = window(5, u64::MAX, 500, 900);
        assert_eq!(limits([huge]), [1_000]);
        assert_eq!(SystemGuard::new(800, || 7).load(), 7);
    }
}
