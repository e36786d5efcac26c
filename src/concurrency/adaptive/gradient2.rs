//! The gradient of latency, in the manner of Gradient2 of Netflix's concurrency-limits.

use super::Adaptive;
use super::baseline::Baseline;
use super::math::{ONE, scale, sqrt};
use super::range::{InRange, range_setters};
use super::window::Window;
use crate::clock::nanos;

/// A limit that follows the ratio of the latency without a queue to the latency of the last window.
///
/// With `g = 1.5 * baseline / latency`, from 0.5 to 1:
/// ```text
/// limit = (limit + limit * g) / 2     if g < 1: the service queues
///       = limit + √limit              otherwise
/// ```
/// So the limit rests where latency is 1.5 times that of the service without a queue. It doubles per window until the
/// service queues for the first time. It falls by a tenth in a window in which half of the requests or more were drops. It
/// does not change while at most half of it is used.
///
/// The original adds 4 to the target also while the service queues, and moves a fifth of the way there.
/// This one follows a change of capacity in a few windows. Unlike the original, the latency of a window is its median
/// rather than its mean, so a few slow requests do not lower the limit. The baseline is not an average of all latencies:
/// it rises only in windows with at most half of the limit in flight, and after five windows at the least limit. So a long
/// overload is not mistaken for the speed of the service, as long as the [least](Self::between) limit and the
/// [first](Self::start_at) one do not overload it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an algorithm does nothing until it is given to a layer"]
pub struct Gradient2 {
    limit: InRange,
    baseline: Baseline,
    /// The service has queued.
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
            limit: InRange::new(),
            baseline: Baseline::NONE,
            has_queued: false,
        }
    }

    range_setters!();
}

impl Adaptive for Gradient2 {
    fn limit(&self) -> u32 {
        self.limit.whole()
    }

    fn next(&mut self, window: &Window) {
        let (limit, is_idle) = (self.limit.exact(), window.is_idle(self.limit()));
        let gradient = window.latency().map(|latency| {
            let latency_ns = nanos(latency).max(1);
            self.baseline = self
                .baseline
                .after(latency_ns, is_idle, self.limit.is_least());
            scale(ONE * 3 / 2, self.baseline.ns(), latency_ns).clamp(ONE / 2, ONE)
        });
        self.has_queued |= gradient.is_none_or(|gradient| gradient < ONE);
        if is_idle {
            return;
        }
        self.limit.set(match gradient {
            None => scale(limit, 9, 10),
            Some(gradient) if gradient < ONE => limit.midpoint(scale(limit, gradient, ONE)),
            Some(_) if self.has_queued => limit + sqrt(limit),
            Some(_) => 2 * limit,
        });
    }
}
