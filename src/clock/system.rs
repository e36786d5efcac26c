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

/// The first reading.
#[derive(Debug)]
struct Anchor {
    first: Instant,
    tick: Duration,
    /// The zero of ticks, in seconds since 1970.
    zero: u64,
}

static ANCHOR: OnceLock<Anchor> = OnceLock::new();

impl Anchor {
    fn new(first: Instant) -> Self {
        let unix = unix_time();
        let tick = tick_of_wall_clock(unix);
        Self {
            first,
            tick,
            zero: unix.saturating_sub(tick).as_secs(),
        }
    }
}

pub(super) fn nanos_since_anchor(now: Instant) -> u64 {
    let Anchor { first, tick, .. } = ANCHOR.get_or_init(|| Anchor::new(now));
    // A paused tokio clock may be behind the first reading.
    nanos(match now.checked_duration_since(*first) {
        Some(after) => tick.saturating_add(after),
        None => tick.saturating_sub(first.duration_since(now)),
    })
}

/// The zero of [`MonotonicClock`](super::MonotonicClock) in seconds since 1970, by the wall clock at its
/// first reading.
pub(crate) fn zero_since_1970() -> u64 {
    let _ = system_nanos();
    ANCHOR.get().map_or(0, |anchor| anchor.zero)
}

/// The time since the start of the previous [`CYCLE`]. The zero is in the past, so windows that began
/// before the process are representable.
fn tick_of_wall_clock(unix: Duration) -> Duration {
    Duration::new(CYCLE + unix.as_secs() % CYCLE, unix.subsec_nanos())
}

/// The shortest time of whole weeks and of whole times of 30 days: 210 days, in seconds. Not all of the
/// time since 1970, because packed states hold moments of 56 bits.
const CYCLE: u64 = 210 * 86_400;

#[expect(
    clippy::disallowed_methods,
    reason = "the one place that reads the system's clock"
)]
fn unix_time() -> Duration {
    let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    unix.unwrap_or_default()
}

/// The wall clock in seconds since 1970, for headers that carry a time of day, and for the last time
/// to live that a store can represent. No decision uses it.
pub(crate) fn unix_seconds() -> u64 {
    unix_time().as_secs()
}

/// The wall clock in nanoseconds since 1970, for stores that do not tell their time.
#[cfg(feature = "cas")]
pub(crate) fn unix_now() -> super::Tick {
    super::Tick::from_nanos(nanos(unix_time()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_zero_of_the_clock_plus_its_time_is_the_time_since_1970() {
        let now = zero_since_1970() + system_nanos() / 1_000_000_000;
        assert!(now.abs_diff(unix_seconds()) <= 1, "{now}");
    }

    const DAY: u64 = 86_400;

    /// How many of the whole days that windows last begin elsewhere than on a multiple of their length
    /// since 1970, whenever the process starts.
    fn misplaced(tick: impl Fn(u64) -> u64) -> Vec<u64> {
        let starts = [0, 1, 11_111, 19_726, 20_000, 20_417, 33_333].map(|day| day * DAY + 7);
        let is_misplaced = |days: &u64| {
            let length = days * DAY;
            let differs = |unix: &u64| tick(*unix) % length != unix % length;
            starts.iter().any(differs)
        };
        [1, 2, 3, 5, 6, 7, 10, 14, 15, 30]
            .into_iter()
            .filter(is_misplaced)
            .collect()
    }

    /// Shows promise 33.
    #[test]
    fn windows_of_weeks_and_of_30_days_begin_as_since_1970() {
        let tick = |seconds| tick_of_wall_clock(Duration::from_secs(seconds)).as_secs();
        assert_eq!(misplaced(tick), [0; 0]);
        // Planted bug: a zero that is a whole number of weeks only.
        let weeks = |seconds| 7 * DAY + seconds % (7 * DAY);
        assert_eq!(misplaced(weeks), [2, 3, 5, 6, 10, 14, 15, 30]);
    }

    /// Shows promise 33.
    #[test]
    fn weeks_begin_on_thursday_at_midnight_utc() {
        // 2024-01-04 was a Thursday: 19,726 days after the Unix epoch.
        let thursday = 19_726 * DAY;
        let tick = |seconds| tick_of_wall_clock(Duration::from_secs(seconds)).as_secs();
        assert_eq!(tick(thursday) % (7 * DAY), 0, "a whole number of weeks");
        assert_eq!(tick(thursday + 5 * DAY + 3) % (7 * DAY), 5 * DAY + 3);
        assert_eq!(tick(thursday - 1) % (7 * DAY), 7 * DAY - 1);
        assert_eq!(tick(210 * DAY - 1), 420 * DAY - 1);
        assert_eq!(tick(210 * DAY), 210 * DAY);
    }
}
