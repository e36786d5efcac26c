//! The gradient of latency, in the manner of Gradient2 of Netflix's concurrency-limits.

use super::Adaptive;
use super::baseline::Baseline;
use super::math::{ONE, scale, sqrt};
use super::range::{Range, range_setters};
use super::window::Window;

/// A limit that follows the ratio of the latency without a queue to the latency of the last window.
///
/// With `g = 1.5 * baseline / latency`, from 0.5 to 1:
/// ```text
/// limit = (limit + limit * g) / 2     if g < 1: the service queues
///       = limit + √limit              otherwise
/// ```
/// So the limit rests where latency is 1.5 times that of the service without a queue. It doubles per
/// window until the service queues or there are drops for the first time. It falls by a tenth in a
/// window in which 1 % of the requests or more are drops. It does not change otherwise while at most
/// half of it is used.
///
/// The original adds 4 to the target also while the service queues, and moves a fifth of the way there.
/// This one follows a change of capacity in a few windows. Unlike the original, the baseline is not an
/// average of all latencies: it rises only in windows with at most half of the limit in flight, and
/// after five windows at the least limit. So a long overload is not mistaken for the speed of the
/// service, as long as the [least](Self::between) limit and the [first](Self::start_at) one do not
/// overload it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an algorithm does nothing until it is given to a layer"]
pub struct Gradient2 {
    range: Range,
}

/// The state of [`Gradient2`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gradient2State {
    /// In fixed point.
    limit: u64,
    baseline: Baseline,
    /// The service has queued, or there were drops.
    has_queued: bool,
}

impl Default for Gradient2 {
    fn default() -> Self {
        Self::new()
    }
}

impl Gradient2 {
    /// From 1 to 200, and 20 at first. If the service queues with 20 requests in flight, set a lower
    /// [start](Self::start_at): the first window shows the latency without a queue.
    pub const fn new() -> Self {
        Self {
            range: Range::new(20),
        }
    }

    range_setters!();
}

impl Adaptive for Gradient2 {
    type State = Gradient2State;

    fn start(&self) -> Gradient2State {
        Gradient2State {
            limit: self.range.start(),
            baseline: Baseline::default(),
            has_queued: false,
        }
    }

    fn next(&self, state: &Gradient2State, window: &Window) -> Gradient2State {
        let limit = state.limit;
        if window.is_overloaded() {
            return Gradient2State {
                limit: self.range.clamp(scale(limit, 9, 10)),
                has_queued: true,
                ..*state
            };
        }
        if window.samples == 0 {
            return *state;
        }
        let whole = limit / ONE;
        let is_least = self.range.is_least(limit);
        let baseline = state.baseline.after(window, whole, is_least);
        let gradient = scale(ONE * 3 / 2, baseline.ns(), window.latency_ns).clamp(ONE / 2, ONE);
        let has_queued = state.has_queued || gradient < ONE;
        let limit = if window.is_idle(whole) {
            limit
        } else if has_queued {
            if gradient < ONE {
                limit.midpoint(scale(limit, gradient, ONE))
            } else {
                limit + sqrt(limit)
            }
        } else {
            2 * limit
        };
        Gradient2State {
            limit: self.range.clamp(limit),
            baseline,
            has_queued,
        }
    }

    fn limit(&self, state: &Gradient2State) -> u64 {
        state.limit / ONE
    }
}
