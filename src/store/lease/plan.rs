//! How long leases are, how many units they hold, and when a machine asks for more.

use std::time::Duration;

use crate::clock::{Tick, nanos};
use crate::error::ConfigError;
use crate::store::fleet::WhenCutOff;

/// The most units that a machine takes ahead of a key.
pub(super) const MAX_UNITS: u32 = u32::MAX >> 1;

/// A lease is exchanged this often in its life.
const RENEWALS_PER_LIFE: u32 = 3;
/// The task looks for leases that are due this often in the life of one.
const TICKS_PER_LIFE: u32 = 12;
/// Machines that have reported within so many lives count as present.
const PRESENT_LIVES: u32 = 3;

#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// The most units that a machine takes ahead of a key.
    pub(super) most: u64,
    /// How long a machine may use what it has taken.
    pub(super) life: Duration,
    /// How far the clocks of machines or servers differ at most, unless the store reports the time of one.
    pub(super) clock_error: Duration,
    pub(super) capacity: usize,
    pub(super) when_cut_off: WhenCutOff,
    /// After so many looks without a reply.
    pub(super) cut_off_after: u32,
    /// How many machines there are, if that is configured.
    pub(super) nodes: Option<u64>,
}

impl Settings {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        if !(1..=u64::from(MAX_UNITS)).contains(&self.most) {
            let allowed = format!("a number from 1 to {MAX_UNITS}");
            return Err(ConfigError::out_of_range("units", self.most, allowed));
        }
        let check = |field, value: Duration, least, allowed: &'static str| {
            if (least..=Duration::from_secs(3_600)).contains(&value) {
                return Ok(());
            }
            let value = format!("{value:?}");
            Err(ConfigError::out_of_range(field, value, allowed))
        };
        let least = Duration::from_millis(10);
        check("life", self.life, least, "10 ms to 1 hour")?;
        check(
            "clock_error",
            self.clock_error,
            Duration::ZERO,
            "0 to 1 hour",
        )?;
        if self.nodes == Some(0) {
            return Err(ConfigError::out_of_range("nodes", 0, "1 or more"));
        }
        if self.cut_off_after == 0 {
            return Err(ConfigError::out_of_range("rounds", 0, "1 or more"));
        }
        Ok(())
    }

    /// The life of the leases of a limit with this period, unless it is set.
    pub(super) fn default_life(period: Duration) -> Duration {
        (period / 10).clamp(Duration::from_secs(1), Duration::from_secs(30))
    }

    /// The time between two exchanges of a key in use.
    pub(super) fn renewal(&self) -> Duration {
        self.life / RENEWALS_PER_LIFE
    }

    /// The time between two looks for leases that are due.
    pub(super) fn tick(&self) -> Duration {
        self.life / TICKS_PER_LIFE
    }

    /// Units that are used within this time count as of its end.
    pub(super) fn slice(&self) -> Duration {
        self.tick()
    }

    pub(super) fn presence(&self) -> Duration {
        self.life * PRESENT_LIVES
    }

    /// How much earlier a machine stops than the store ends the lease: for what the drift of clocks and
    /// rounding may add up to in the life of a lease, and for the difference of the clocks if they may
    /// differ.
    pub(super) fn margin(&self, may_differ: bool) -> Duration {
        let margin = self.life / 1_000 + Duration::from_millis(1);
        if may_differ {
            margin + self.clock_error
        } else {
            margin
        }
    }
}

/// How many units a machine takes ahead of one key. It follows the rate at which they are used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk {
    pub(super) size: u64,
    /// What is used between two renewals at the last rate.
    per_renewal: u64,
    /// For so many exchanges, far fewer units have been used.
    quiet: u32,
}

impl Chunk {
    pub(super) fn new(most: u64) -> Self {
        Self {
            size: (most / 16).max(1),
            per_renewal: 0,
            quiet: 0,
        }
    }

    /// Learns that `used` units were used in `elapsed`. It grows to a quarter more than is used between
    /// two renewals, but at most to twice its size, and shrinks to a half if less than that was used
    /// twice.
    pub(super) fn adapt(&mut self, used: u64, elapsed: Duration, settings: &Settings) {
        let renewal = settings.renewal().as_nanos();
        let per_renewal = u128::from(used) * renewal / elapsed.as_nanos().max(1);
        self.per_renewal = u64::try_from(per_renewal).unwrap_or(u64::MAX);
        let target = (per_renewal * 5).div_ceil(4).min(settings.most.into());
        let target = u64::try_from(target).unwrap_or(settings.most).max(1);
        if target * 2 < self.size {
            self.quiet += 1;
            if self.quiet == 2 {
                self.size /= 2;
                self.quiet = 0;
            }
            return;
        }
        self.quiet = 0;
        if target > self.size {
            self.size = target.min(self.size * 2);
        }
    }

    /// With how many units left of `left` the machine asks for more: with as many as are used in the
    /// time of two exchanges, at least a quarter and at most a half.
    pub(super) fn low_mark(&self, left: u64, round_trip: Duration, settings: &Settings) -> u64 {
        let renewal = u128::from(nanos(settings.renewal())).max(1);
        let needed = u128::from(self.per_renewal) * 2 * round_trip.as_nanos() / renewal;
        let needed = u64::try_from(needed).unwrap_or(u64::MAX);
        needed.clamp(left / 4, left / 2)
    }
}

/// When nothing of a lease may be used any more, by this machine's clock.
pub(super) fn stop_of(ends_at: Tick, settings: &Settings, may_differ: bool) -> Tick {
    let margin = nanos(settings.margin(may_differ));
    Tick::from_nanos(ends_at.as_nanos().saturating_sub(margin))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings {
            most: 100,
            life: Duration::from_secs(3),
            clock_error: Duration::ZERO,
            capacity: 1,
            when_cut_off: WhenCutOff::Fail,
            cut_off_after: 3,
            nodes: None,
        }
    }

    #[test]
    fn a_chunk_follows_the_rate() {
        let (settings, second) = (settings(), Duration::from_secs(1));
        let mut chunk = Chunk::new(settings.most);
        let mut sizes = Vec::new();
        for _ in 0..4 {
            chunk.adapt(40, second, &settings);
            sizes.push(chunk.size);
        }
        assert_eq!(sizes, [12, 24, 48, 50], "doubled, up to a quarter more");
        chunk.adapt(1_000, second, &settings);
        assert_eq!(chunk.size, 100, "at most what is set");
        for (used, size) in [(2, 100), (60, 100), (2, 100), (2, 50), (2, 50), (2, 25)] {
            chunk.adapt(used, second, &settings);
            assert_eq!(chunk.size, size);
        }
        for _ in 0..100 {
            chunk.adapt(0, second, &settings);
        }
        assert_eq!(chunk.size, 1);
    }

    #[test]
    fn more_is_asked_for_before_the_units_run_out() {
        let (settings, second) = (settings(), Duration::from_secs(1));
        let mut chunk = Chunk::new(settings.most);
        chunk.adapt(40, second, &settings);
        let low = |left, ms| chunk.low_mark(left, Duration::from_millis(ms), &settings);
        assert_eq!(low(50, 1), 12, "a quarter");
        assert_eq!(low(50, 200), 16, "the use of two exchanges");
        assert_eq!(low(50, 2_000), 25, "a half");
        assert_eq!(low(1, 2_000), 0);
    }

    #[test]
    fn a_machine_stops_before_its_lease_ends() {
        let settings = Settings {
            clock_error: Duration::from_secs(1),
            ..settings()
        };
        let ends_at = Tick::from_nanos(10_000_000_000);
        assert_eq!(stop_of(ends_at, &settings, false).as_nanos(), 9_996_000_000);
        assert_eq!(stop_of(ends_at, &settings, true).as_nanos(), 8_996_000_000);
    }
}
