//! The latency of the service without a queue.

use super::window::Window;

/// How many windows at the least limit show that the service itself has become slower.
const WINDOWS_AT_LEAST: u32 = 5;

/// The latency of the service without a queue, as far as it is known.
///
/// It falls with every window that is faster. It rises only in windows in which no queue can have
/// formed: with at most half of the limit in flight, or after the limit has been the least one for
/// five windows. A baseline that rose under load would take the queue for the service. A window without
/// latencies, as in an outage, leaves it as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Baseline {
    /// 0 until the first window.
    ns: u64,
    /// So many windows in a row had the least limit.
    at_least: u32,
}

impl Baseline {
    pub(super) const fn ns(self) -> u64 {
        self.ns
    }

    /// The baseline after `window`, during which at most `limit` requests were in flight.
    pub(super) fn after(self, window: &Window, limit: u64, is_least: bool) -> Self {
        if window.samples == 0 {
            return self;
        }
        let latency = window.latency_ns;
        let at_least = if is_least { self.at_least + 1 } else { 0 };
        if self.ns == 0 || at_least >= WINDOWS_AT_LEAST {
            return Self {
                ns: latency,
                at_least: 0,
            };
        }
        let ns = if latency < self.ns {
            // A quarter of the way: one lucky window does not decide.
            self.ns - (self.ns - latency).div_ceil(4)
        } else if window.is_idle(limit) {
            self.ns + (latency - self.ns) / 8
        } else {
            self.ns
        };
        Self { ns, at_least }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn it_falls_by_a_quarter_and_rises_by_an_eighth_of_the_difference_if_idle() {
        let mut baseline = Baseline::default();
        for (latency, in_flight, expected) in [
            (100, 10, 100),
            (60, 10, 90),
            (90, 10, 90),
            (170, 10, 90),
            (170, 5, 100),
        ] {
            let window = Window::new(Duration::from_nanos(latency), 100, in_flight, 0);
            baseline = baseline.after(&window, 10, false);
            assert_eq!(
                baseline.ns(),
                expected,
                "{latency} ns, {in_flight} in flight"
            );
        }
    }
}
