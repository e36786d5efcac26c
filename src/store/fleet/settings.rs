//! The settings of a limiter of a fleet.

use std::time::Duration;

use crate::error::ConfigError;

/// See the methods of the builder.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) interval: Duration,
    pub(super) deadline: Option<Duration>,
    pub(super) life: Option<Duration>,
    pub(super) machines: Option<u64>,
    pub(super) capacity: usize,
}

impl Settings {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let allowed = Duration::from_millis(1)..=Duration::from_secs(3_600);
        let check = |field, value: Duration, allowed: &str| {
            Err(ConfigError::out_of_range(
                field,
                format!("{value:?}"),
                allowed.to_owned(),
            ))
        };
        if !allowed.contains(&self.interval) {
            return check("interval", self.interval, "1 ms to 1 hour");
        }
        let lives = 2 * self.interval..=Duration::from_secs(86_400);
        if let Some(life) = self.life.filter(|life| !lives.contains(life)) {
            return check("life", life, "two intervals to 1 day");
        }
        let deadlines = Duration::from_millis(1)..=Duration::from_secs(86_400);
        if let Some(deadline) = self.deadline.filter(|time| !deadlines.contains(time)) {
            return check("deadline", deadline, "1 ms to 1 day");
        }
        if self
            .machines
            .is_some_and(|machines| !(1..=100_000).contains(&machines))
        {
            let machines = self.machines.unwrap_or(0);
            return Err(ConfigError::out_of_range(
                "machines",
                machines,
                "1 to 100,000",
            ));
        }
        if self.capacity == 0 {
            return Err(ConfigError::out_of_range("capacity", 0, "1 or more"));
        }
        Ok(())
    }
}
