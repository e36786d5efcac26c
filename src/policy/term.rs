//! One limit of a text.

use std::{fmt, time::Duration};

use super::kinds::{AlgorithmKind, Make};
use crate::algorithm::{Algorithm, AnyAlgorithm, MAX_WAIT, QUEUE, Setting, Takes, set, zone_name};
use crate::error::ConfigError;
use crate::quota::{Quota, in_largest_unit};

/// One algorithm with its settings.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Term {
    /// The name of its [`AlgorithmKind`].
    pub(super) kind: &'static str,
    pub(super) amount: Units,
    /// The options that differ from their defaults, in the order of the kind.
    pub(super) options: Vec<(&'static Setting, u64)>,
}

/// What follows the name of an algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Units {
    /// Without the burst, which is an option.
    Rate(Quota),
    Count(u32),
}

impl Units {
    pub(super) const fn count(self) -> Option<u32> {
        match self {
            Self::Rate(_) => None,
            Self::Count(count) => Some(count),
        }
    }

    /// The period of a rate.
    pub(super) const fn period(self) -> Duration {
        match self {
            Self::Rate(quota) => quota.period(),
            Self::Count(_) => Duration::ZERO,
        }
    }
}

impl Term {
    /// The algorithm, whose settings are checked.
    pub(super) fn algorithm(&self) -> Result<AnyAlgorithm, ConfigError> {
        let (Units::Rate(quota), Some(Make::Algorithm(make))) =
            (self.amount, self.kind().map(|kind| &kind.make))
        else {
            return Err(ConfigError::unsupported(
                "concurrency as an algorithm",
                "use a `ConcurrencyLimitLayer`, or a policy file",
            ));
        };
        let options = self.options.iter();
        let own = options.filter(|(setting, _)| !is_of_line(setting));
        let algorithm = own.fold(make(quota), |algorithm, (setting, value)| {
            set(algorithm?, setting.name, *value)
        })?;
        algorithm.validate()?;
        Ok(algorithm)
    }

    /// Its kind. The name differs from that in the text if a fixed window follows the calendar.
    pub(super) fn kind(&self) -> Option<&'static AlgorithmKind> {
        let options = self.options.iter().map(|(option, _)| option.name);
        AlgorithmKind::of(self.kind, self.amount.period(), options)
    }

    /// Refuses settings that are out of range or have no effect.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let quota = match self.amount {
            Units::Rate(quota) => {
                self.algorithm()?;
                quota
            }
            Units::Count(count) => Quota::try_per(count.into(), Duration::from_secs(1))?,
        };
        for (setting, value) in self.options.iter().filter(|(one, _)| is_of_line(one)) {
            setting.check(*value, &quota)?;
        }
        match (self.value(QUEUE.name), self.value(MAX_WAIT.name)) {
            (None, Some(wait)) => {
                let allowed = "a queue too: max_wait has no effect without it";
                Err(MAX_WAIT.refuse(wait, allowed))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn value(&self, name: &str) -> Option<u64> {
        let mut options = self.options.iter();
        let found = options.find(|(option, _)| option.name == name);
        found.map(|(_, value)| *value)
    }
}

/// Whether the setting is that of the line in front of the limit.
fn is_of_line(setting: &Setting) -> bool {
    [&QUEUE, &MAX_WAIT].contains(&setting)
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.amount {
            Units::Rate(quota) => write!(f, "{} {quota}", self.kind)?,
            Units::Count(count) => write!(f, "{} {count}", self.kind)?,
        }
        for (option, value) in &self.options {
            write!(f, "; {}=", option.name)?;
            match option.takes {
                Takes::Count => value.fmt(f)?,
                Takes::Time => {
                    let (times, unit) = in_largest_unit(*value);
                    write!(f, "{times}{unit}")?;
                }
                Takes::OneOf(words) => f.write_str(words[1])?,
                Takes::Zone => f.write_str(&zone_name(*value))?,
            }
        }
        Ok(())
    }
}
