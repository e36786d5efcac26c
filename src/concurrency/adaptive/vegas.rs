//! TCP Vegas, as in Netflix's concurrency-limits.

use super::Adaptive;
use super::baseline::Baseline;
use super::math::{ONE, log10, scale};
use super::range::{Range, range_setters};
use super::window::Window;

/// A limit that keeps a few requests in the queue of the service.
///
/// Of L requests in flight, `L * (1 - baseline / latency)` are in the queue. With `g` the logarithm of
/// L to the base of 10, at least 1: the limit rises by `6g` if at most `g` queue, by `g` below `3g`, and
/// falls by `g` above `6g` and in a window in which 1 % of the requests or more are drops. It does not
/// rise while at most half of it is used. The baseline is the latency of the service without a queue.
///
/// It assumes that requests take about equally long. If they do not, it mistakes uneven request times
/// for a queue, and stays too low: use [`Gradient2`](super::Gradient2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an algorithm does nothing until it is given to a layer"]
pub struct Vegas {
    range: Range,
}

/// The state of [`Vegas`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VegasState {
    /// In fixed point.
    limit: u64,
    baseline: Baseline,
}

impl Default for Vegas {
    fn default() -> Self {
        Self::new()
    }
}

impl Vegas {
    /// From 1 to 200, and 20 at first. If the service queues with 20 requests in flight, set a lower
    /// [start](Self::start_at): the first window shows the latency without a queue.
    pub const fn new() -> Self {
        Self {
            range: Range::new(20),
        }
    }

    range_setters!();
}

impl Adaptive for Vegas {
    type State = VegasState;

    fn start(&self) -> VegasState {
        VegasState {
            limit: self.range.start(),
            baseline: Baseline::default(),
        }
    }

    fn next(&self, state: &VegasState, window: &Window) -> VegasState {
        let whole = state.limit / ONE;
        let g = log10(whole).max(1);
        if window.is_overloaded() {
            let limit = state.limit.saturating_sub(g * ONE);
            return VegasState {
                limit: self.range.clamp(limit),
                ..*state
            };
        }
        if window.samples == 0 {
            return *state;
        }
        let is_least = self.range.is_least(state.limit);
        let baseline = state.baseline.after(window, whole, is_least);
        // Rounded up, as in the original.
        let without_queue = scale(
            whole,
            baseline.ns().min(window.latency_ns),
            window.latency_ns,
        );
        let queued = whole - without_queue;
        let limit = if queued > 6 * g {
            state.limit.saturating_sub(g * ONE)
        } else if window.is_idle(whole) || queued >= 3 * g {
            state.limit
        } else if queued <= g {
            // At most twice the limit: from 1, six more would be a flood.
            state.limit + (6 * g).min(whole) * ONE
        } else {
            state.limit + g * ONE
        };
        VegasState {
            limit: self.range.clamp(limit),
            baseline,
        }
    }

    fn limit(&self, state: &VegasState) -> u64 {
        state.limit / ONE
    }
}
