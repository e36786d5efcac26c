//! The system's clocks, and the only code that reads them.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

use super::nanos;

/// The present moment of `Instant`.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place that reads the system's clock"
)]
pub(super) fn system_nanos() -> u64 {
    nanos_since_anchor(Instant::now())
}

/// The first reading, and the time since 1970 then.
static ANCHOR: OnceLock<(Instant, Duration)> = OnceLock::new();

pub(super) fn nanos_since_anchor(now: Instant) -> u64 {
    let (first, unix) = ANCHOR.get_or_init(|| (now, unix_time()));
    // A paused tokio clock may be behind the first reading.
    nanos(match now.checked_duration_since(*first) {
        Some(after) => unix.saturating_add(after),
        None => unix.saturating_sub(first.duration_since(now)),
    })
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one place that reads the system's clock"
)]
/// The wall clock since 1970, for headers that carry a time of day, and for the last time to live that a store can
/// represent. No decision uses it.
pub(crate) fn unix_time() -> Duration {
    let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    unix.unwrap_or_default()
}

/// The wall clock in nanoseconds since 1970, for stores that do not tell their time.
#[cfg(feature = "cas")]
pub(crate) fn unix_now() -> super::Tick {
    super::Tick::from_nanos(nanos(unix_time()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows promise 33.
    #[test]
    fn the_clock_counts_from_1970() {
        let now = system_nanos() / 1_000_000_000;
        assert!(now.abs_diff(unix_time().as_secs()) <= 1, "{now}");
    }
}
