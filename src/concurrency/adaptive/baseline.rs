//! The latency of the service without a queue.

/// How many windows at the least limit show that the service itself has become slower.
const WINDOWS_AT_LEAST: u32 = 5;

/// The latency of the service without a queue, as far as it is known.
///
/// It falls with every window that is faster. It rises only in windows in which no queue can have
/// formed: with at most half of the limit in flight, or after the limit has been the least one for
/// five windows. A baseline that rose under load would take the queue for the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Baseline {
    /// 0 until the first window.
    ns: u64,
    /// So many windows in a row had the least limit.
    at_least: u32,
}

impl Baseline {
    pub(super) const NONE: Self = Self { ns: 0, at_least: 0 };

    pub(super) const fn ns(self) -> u64 {
        self.ns
    }

    /// The baseline after a window with this latency. `is_idle` if at most half of the limit was in flight, and `is_least`
    /// if that was the least one.
    pub(super) fn after(self, latency_ns: u64, is_idle: bool, is_least: bool) -> Self {
        let at_least = if is_least { self.at_least + 1 } else { 0 };
        if self.ns == 0 || at_least >= WINDOWS_AT_LEAST {
            return Self {
                ns: latency_ns,
                at_least: 0,
            };
        }
        let ns = if latency_ns < self.ns {
            // A quarter of the way: one lucky window does not decide.
            self.ns - (self.ns - latency_ns).div_ceil(4)
        } else if is_idle {
            self.ns + (latency_ns - self.ns) / 8
        } else {
            self.ns
        };
        Self { ns, at_least }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_falls_by_a_quarter_and_rises_by_an_eighth_of_the_difference_if_idle() {
        let mut baseline = Baseline::NONE;
        for (latency_ns, is_idle, expected) in [
            (100, false, 100),
            (60, false, 90),
            (90, false, 90),
            (170, false, 90),
            (170, true, 100),
        ] {
            baseline = baseline.after(latency_ns, is_idle, false);
            assert_eq!(baseline.ns(), expected, "{latency_ns} ns, {is_idle}");
        }
    }
}
