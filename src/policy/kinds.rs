//! The limits that a text can name.

use std::time::Duration;

use crate::algorithm::{
    AnyAlgorithm, CalendarWindow, FixedWindow, IntoAlgorithm, LeakyBucket, Lockout, MAX_WAIT,
    QUEUE, Setting, SlidingGrid, SlidingLog, SlidingWindow, TokenBucket, WarmUp, settings,
};
use crate::error::ConfigError;
use crate::quota::{MONTH, Quota};

/// A limit that a text can name. Its options are the settings of the algorithm, and those of the line.
#[derive(Debug)]
pub(super) struct AlgorithmKind {
    pub(super) name: &'static str,
    pub(super) make: Make,
}

#[derive(Debug)]
pub(super) enum Make {
    /// A rate follows the name: `10/s`. A setting without a default has its smallest value.
    Algorithm(fn(Quota) -> Result<AnyAlgorithm, ConfigError>),
    /// A number follows the name: `20`. It limits requests in flight.
    Concurrency,
}

const fn kind(
    name: &'static str,
    make: fn(Quota) -> Result<AnyAlgorithm, ConfigError>,
) -> AlgorithmKind {
    let make = Make::Algorithm(make);
    AlgorithmKind { name, make }
}

fn any(algorithm: impl IntoAlgorithm) -> AnyAlgorithm {
    AnyAlgorithm::new(algorithm)
}

pub(super) static KINDS: [AlgorithmKind; 10] = [
    kind("token_bucket", |quota| Ok(any(TokenBucket::new(quota)))),
    kind("leaky_bucket", |quota| Ok(any(LeakyBucket::new(quota)))),
    kind("fixed_window", |quota| Ok(any(FixedWindow::new(quota)))),
    kind("sliding_window", |quota| Ok(any(SlidingWindow::new(quota)))),
    kind("sliding_grid", |quota| Ok(any(SlidingGrid::new(quota)))),
    kind("sliding_log", |quota| Ok(any(SlidingLog::new(quota)))),
    kind("warm_up", |quota| {
        WarmUp::try_new(quota, Duration::from_nanos(1)).map(AnyAlgorithm::new)
    }),
    kind("lockout", |quota| Ok(any(Lockout::new(quota)))),
    kind("gcra", gcra),
    AlgorithmKind {
        name: "concurrency",
        make: Make::Concurrency,
    },
];

#[cfg(feature = "governor")]
fn gcra(quota: Quota) -> Result<AnyAlgorithm, ConfigError> {
    crate::algorithm::Gcra::try_new(quota).map(AnyAlgorithm::new)
}

#[cfg(not(feature = "governor"))]
fn gcra(_: Quota) -> Result<AnyAlgorithm, ConfigError> {
    Err(ConfigError::unsupported(
        "gcra",
        "enable the feature `governor`, or use token_bucket, which decides the same",
    ))
}

/// A fixed window that follows the calendar. A text calls it `fixed_window`.
pub(super) static CALENDAR: AlgorithmKind = kind("calendar_window", |quota| {
    CalendarWindow::new(quota, "UTC").map(AnyAlgorithm::new)
});

impl AlgorithmKind {
    /// The kind of a limit of this name, period and options. A fixed window of a month, or one that has a time
    /// zone or an anchor, follows the calendar.
    pub(super) fn of<'a>(
        name: &str,
        period: Duration,
        mut options: impl Iterator<Item = &'a str>,
    ) -> Option<&'static Self> {
        let is_calendar = period == MONTH || options.any(|name| ["zone", "anchor"].contains(&name));
        if name == "fixed_window" && is_calendar {
            return Some(&CALENDAR);
        }
        Self::named(name)
    }

    pub(super) fn named(name: &str) -> Option<&'static Self> {
        KINDS.iter().find(|kind| kind.name == name)
    }

    pub(super) fn names() -> impl Iterator<Item = &'static str> {
        KINDS.iter().map(|kind| kind.name)
    }

    /// Its options, in the order in which they are printed.
    pub(super) fn options(&self) -> Result<Vec<&'static Setting>, ConfigError> {
        match self.make {
            Make::Concurrency => Ok(vec![&QUEUE, &MAX_WAIT]),
            Make::Algorithm(make) => {
                let own = settings(&make(Quota::per_day(1))?).into_iter();
                Ok(own.chain([&QUEUE, &MAX_WAIT]).collect())
            }
        }
    }
}
