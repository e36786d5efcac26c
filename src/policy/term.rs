//! One limit of a text.

use std::{
    fmt,
    hash::{Hash, Hasher},
    time::Duration,
};

use super::kinds::{Kind, OptionName};
use crate::error::ConfigError;
use crate::quota::{Quota, in_largest_unit};

/// One algorithm with its settings.
#[derive(Clone)]
pub(super) struct Term {
    pub(super) kind: &'static Kind,
    pub(super) amount: Units,
    /// The options that differ from their defaults, in the order of the kind.
    pub(super) options: Vec<(&'static OptionName, Value)>,
}

/// What follows the name of an algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Units {
    /// Without the burst, which is an option.
    Rate(Quota),
    Count(u32),
}

/// The value of an option.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Value {
    Count(u64),
    /// In nanoseconds.
    Time(u64),
    Flag,
    Word(&'static str),
}

impl Term {
    /// The quota with the burst.
    pub(super) fn quota(&self) -> Result<Quota, ConfigError> {
        match (self.amount, self.value("burst")) {
            (Units::Rate(quota), Some(Value::Count(burst))) => quota.try_burst(*burst),
            (Units::Rate(quota), _) => Ok(quota),
            (Units::Count(count), _) => Quota::try_per(count.into(), Duration::from_secs(1)),
        }
    }

    pub(super) fn value(&self, name: &str) -> Option<&Value> {
        let mut options = self.options.iter();
        let found = options.find(|(option, _)| option.name == name);
        found.map(|(_, value)| value)
    }

    pub(super) fn count(&self, name: &str) -> Option<u64> {
        match self.value(name) {
            Some(Value::Count(count)) => Some(*count),
            _ => None,
        }
    }

    pub(super) fn time(&self, name: &str) -> Option<Duration> {
        match self.value(name) {
            Some(Value::Time(ns)) => Some(Duration::from_nanos(*ns)),
            _ => None,
        }
    }

    pub(super) fn is_set(&self, name: &str) -> bool {
        self.value(name).is_some()
    }

    /// What queues of a limit on requests in flight allow: how many, and how long.
    pub(super) fn queue(&self) -> (Option<u64>, Option<Duration>) {
        (self.count("queue"), self.time("max_wait"))
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.amount {
            Units::Rate(quota) => write!(f, "{} {quota}", self.kind.name)?,
            Units::Count(count) => write!(f, "{} {count}", self.kind.name)?,
        }
        for (option, value) in &self.options {
            write!(f, "; {}=", option.name)?;
            match value {
                Value::Count(count) => count.fmt(f)?,
                Value::Time(ns) => {
                    let (times, unit) = in_largest_unit(*ns);
                    write!(f, "{times}{unit}")?;
                }
                Value::Flag => f.write_str("true")?,
                Value::Word(word) => f.write_str(word)?,
            }
        }
        Ok(())
    }
}

/// Manual impl: the text form is shorter.
impl fmt::Debug for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Manual impl: a kind is one of a table and equal if its name is.
impl PartialEq for Term {
    fn eq(&self, other: &Self) -> bool {
        let names = |term: &Self| {
            let names = term.options.iter().map(|(option, _)| option.name);
            names.collect::<Vec<_>>()
        };
        let values = |term: &Self| {
            let values = term.options.iter().map(|(_, value)| value.clone());
            values.collect::<Vec<_>>()
        };
        self.kind.name == other.kind.name
            && self.amount == other.amount
            && names(self) == names(other)
            && values(self) == values(other)
    }
}

impl Eq for Term {}

/// Manual impl: as for `PartialEq`.
impl Hash for Term {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.kind.name, self.amount).hash(state);
        for (option, value) in &self.options {
            (option.name, value).hash(state);
        }
    }
}
