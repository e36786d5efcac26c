//! The settings of a limiter of a fleet.

use std::time::Duration;

use crate::error::ConfigError;

/// See the methods of the builder.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) interval: Duration,
    pub(super) deadline: Option<Duration>,
    pub(super) life: Option<Duration>,
    pub(super) capacity: usize,
}

impl Settings {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let check =
            |field, value: Option<Duration>, [least, most]: [Duration; 2], allowed: &str| {
                match value.filter(|value| !(least..=most).contains(value)) {
                    Some(value) => Err(ConfigError::out_of_range(
                        field,
                        format!("{value:?}"),
                        allowed.to_owned(),
                    )),
                    None => Ok(()),
                }
            };
        let (milli, day) = (Duration::from_millis(1), Duration::from_secs(86_400));
        let (interval, lives) = (self.interval, [2 * self.interval.min(day), day]);
        check(
            "interval",
            Some(interval),
            [milli, day / 24],
            "1 ms to 1 hour",
        )?;
        check("life", self.life, lives, "two intervals to 1 day")?;
        check("deadline", self.deadline, [milli, day], "1 ms to 1 day")?;
        if self.capacity == 0 {
            return Err(ConfigError::out_of_range("capacity", 0, "1 or more"));
        }
        Ok(())
    }
}
