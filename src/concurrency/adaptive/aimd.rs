//! Additive increase, multiplicative decrease.

use std::time::Duration;

use super::Adaptive;
use super::math::{ONE, scale};
use super::range::{InRange, range_setters};
use super::window::Window;

/// A limit that rises by one per window, and falls by a tenth in a window with a latency above a bound, or in which
/// half of the requests or more were drops.
///
/// It does not estimate the latency of the service. Use it where the latency that clients accept is known. It does not
/// change while at most half of it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an algorithm does nothing until it is given to a layer"]
pub struct Aimd {
    limit: InRange,
    max_latency: Duration,
}

impl Aimd {
    /// Falls if a window's latency exceeds `max_latency`. From 1 to 200, and 20 at first.
    pub const fn new(max_latency: Duration) -> Self {
        Self {
            limit: InRange::new(),
            max_latency,
        }
    }

    range_setters!();
}

impl Adaptive for Aimd {
    fn limit(&self) -> u32 {
        self.limit.whole()
    }

    fn next(&mut self, window: &Window) {
        let limit = self.limit.exact();
        if window.is_idle(self.limit()) {
            return;
        }
        self.limit.set(match window.latency() {
            Some(latency) if latency <= self.max_latency => limit + ONE,
            _ => scale(limit, 9, 10),
        });
    }
}
