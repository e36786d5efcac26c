//! Additive increase, multiplicative decrease.

use std::time::Duration;

use super::Adaptive;
use super::math::{ONE, scale};
use super::range::{Range, range_setters};
use super::window::Window;
use crate::clock::nanos;

/// A limit that rises by one per window, and falls by a tenth in a window with drops, 1 % or more, or a
/// latency above a bound.
///
/// It does not estimate the latency of the service. Use it where errors say when the service is
/// overloaded, or where the latency that clients accept is known. It does not rise while at most half
/// of it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an algorithm does nothing until it is given to a layer"]
pub struct Aimd {
    range: Range,
    max_latency_ns: u64,
}

/// The state of [`Aimd`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AimdState {
    /// In fixed point.
    limit: u64,
}

impl Aimd {
    /// Falls if a window's latency exceeds `max_latency`. From 1 to 200, and 20 at first.
    pub fn new(max_latency: Duration) -> Self {
        Self {
            range: Range::new(20),
            max_latency_ns: nanos(max_latency),
        }
    }

    range_setters!();
}

impl Adaptive for Aimd {
    type State = AimdState;

    fn start(&self) -> AimdState {
        AimdState {
            limit: self.range.start(),
        }
    }

    fn next(&self, state: &AimdState, window: &Window) -> AimdState {
        let limit = state.limit;
        let is_slow = window.samples > 0 && window.latency_ns > self.max_latency_ns;
        let limit = if window.is_overloaded() || is_slow {
            scale(limit, 9, 10)
        } else if window.samples == 0 || window.is_idle(limit / ONE) {
            limit
        } else {
            limit + ONE
        };
        AimdState {
            limit: self.range.clamp(limit),
        }
    }

    fn limit(&self, state: &AimdState) -> u64 {
        state.limit / ONE
    }
}
