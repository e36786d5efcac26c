//! The algorithms that a text can name, and their options.

use std::time::Duration;

use super::spec::{Term, Value};
#[cfg(feature = "governor")]
use crate::algorithm::Gcra;
use crate::algorithm::{
    Algorithm, AnyAlgorithm, Charge, FixedWindow, LeakyBucket, Lockout, SlidingGrid, SlidingLog,
    SlidingWindow, TokenBucket, WarmUp,
};
use crate::error::ConfigError;

/// An algorithm that a text can name.
#[derive(Debug)]
pub(super) struct Kind {
    pub(super) name: &'static str,
    pub(super) takes: Amount,
    /// In the order in which they are printed.
    pub(super) options: &'static [OptionName],
    build: fn(&Term) -> Result<AnyAlgorithm, ConfigError>,
}

/// What follows the name of an algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Amount {
    /// `10/s`.
    Rate,
    /// `20`.
    Count,
}

/// An option of an algorithm.
#[derive(Debug)]
pub(super) struct OptionName {
    pub(super) name: &'static str,
    pub(super) takes: Takes,
    /// The option without which this one has no effect.
    pub(super) needs: Option<&'static str>,
    /// The option beside which this one has no effect.
    pub(super) not_with: Option<&'static str>,
}

/// The values of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    Count,
    Time,
    Flag,
    /// The first one is the default.
    OneOf(&'static [&'static str]),
}

const fn option(name: &'static str, takes: Takes) -> OptionName {
    OptionName {
        name,
        takes,
        needs: None,
        not_with: None,
    }
}

const fn with_queue(name: &'static str, takes: Takes) -> OptionName {
    OptionName {
        needs: Some("queue"),
        ..option(name, takes)
    }
}

const BURST: OptionName = option("burst", Takes::Count);
const QUEUE: OptionName = option("queue", Takes::Count);
const MAX_WAIT: OptionName = with_queue("max_wait", Takes::Time);
const OFFSET: OptionName = option("offset", Takes::Time);

/// All algorithms, and the limit on requests in flight.
pub(super) static KINDS: [Kind; 10] = [
    Kind {
        name: "token_bucket",
        takes: Amount::Rate,
        options: &[BURST, option("initial", Takes::Count), QUEUE, MAX_WAIT],
        build: token_bucket,
    },
    Kind {
        name: "leaky_bucket",
        takes: Amount::Rate,
        options: &[
            OptionName {
                not_with: Some("queue"),
                ..BURST
            },
            QUEUE,
            MAX_WAIT,
            with_queue("max_cost", Takes::Count),
            with_queue("charge", Takes::OneOf(&["after", "before"])),
        ],
        build: leaky_bucket,
    },
    Kind {
        name: "fixed_window",
        takes: Amount::Rate,
        options: &[
            option("anchored", Takes::Flag),
            OptionName {
                not_with: Some("anchored"),
                ..OFFSET
            },
        ],
        build: fixed_window,
    },
    Kind {
        name: "sliding_window",
        takes: Amount::Rate,
        options: &[OFFSET],
        build: sliding_window,
    },
    Kind {
        name: "sliding_grid",
        takes: Amount::Rate,
        options: &[
            option("cells", Takes::Count),
            option("strict", Takes::Flag),
            OFFSET,
        ],
        build: sliding_grid,
    },
    Kind {
        name: "sliding_log",
        takes: Amount::Rate,
        options: &[],
        build: |term| Ok(AnyAlgorithm::new(SlidingLog::new(term.quota()?))),
    },
    Kind {
        name: "warm_up",
        takes: Amount::Rate,
        options: &[
            option("warm_up", Takes::Time),
            option("cold_factor", Takes::Count),
            QUEUE,
            MAX_WAIT,
            option("max_cost", Takes::Count),
        ],
        build: warm_up,
    },
    Kind {
        name: "lockout",
        takes: Amount::Rate,
        options: &[
            option("block", Takes::Time),
            option("max_block", Takes::Time),
            option("forget", Takes::Time),
            option("parole", Takes::Count),
            option("on_success", Takes::OneOf(&["keep", "clear"])),
        ],
        build: lockout,
    },
    Kind {
        name: "gcra",
        takes: Amount::Rate,
        options: &[BURST],
        build: gcra,
    },
    Kind {
        name: "concurrency",
        takes: Amount::Count,
        options: &[QUEUE, MAX_WAIT],
        build: |_| {
            Err(ConfigError::Unsupported {
                what: "concurrency as an algorithm",
                instead: "use a `ConcurrencyLayer`, or a policy file",
            })
        },
    },
];

impl Kind {
    pub(super) fn named(name: &str) -> Option<&'static Self> {
        KINDS.iter().find(|kind| kind.name == name)
    }

    pub(super) fn names() -> impl Iterator<Item = &'static str> {
        KINDS.iter().map(|kind| kind.name)
    }

    pub(super) fn option_names(&self) -> impl Iterator<Item = &'static str> {
        self.options.iter().map(|option| option.name)
    }

    /// Builds the algorithm and checks its settings.
    pub(super) fn build(&self, term: &Term) -> Result<AnyAlgorithm, ConfigError> {
        let algorithm = (self.build)(term)?;
        algorithm.validate()?;
        Ok(algorithm)
    }
}

/// The values of the options, by name.
impl Term {
    fn count(&self, name: &str) -> Option<u64> {
        match self.value(name) {
            Some(Value::Count(count)) => Some(*count),
            _ => None,
        }
    }

    fn time(&self, name: &str) -> Option<Duration> {
        match self.value(name) {
            Some(Value::Time(ns)) => Some(Duration::from_nanos(*ns)),
            _ => None,
        }
    }

    fn is_set(&self, name: &str) -> bool {
        self.value(name).is_some()
    }

    /// What queues of a limit on requests in flight allow: how many, and how long.
    pub(super) fn queue(&self) -> (Option<u64>, Option<Duration>) {
        (self.count("queue"), self.time("max_wait"))
    }
}

fn token_bucket(term: &Term) -> Result<AnyAlgorithm, ConfigError> {
    let quota = term.quota()?;
    let mut bucket = TokenBucket::new(quota);
    if let Some(initial) = term.count("initial") {
        if initial >= quota.capacity() {
            return Err(ConfigError::out_of_range(
                "initial",
                initial,
                format!(
                    "a number below the capacity, {}: a new key has all of it otherwise",
                    quota.capacity()
                ),
            ));
        }
        bucket = bucket.initial(initial);
    }
    if let Some(queue) = term.count("queue") {
        bucket = bucket.queue(queue);
    }
    if let Some(max_wait) = term.time("max_wait") {
        bucket = bucket.max_wait(max_wait);
    }
    Ok(AnyAlgorithm::new(bucket))
}

fn leaky_bucket(term: &Term) -> Result<AnyAlgorithm, ConfigError> {
    let mut bucket = LeakyBucket::new(term.quota()?);
    if let Some(queue) = term.count("queue") {
        bucket = bucket.queue(queue);
    }
    if let Some(max_wait) = term.time("max_wait") {
        bucket = bucket.max_wait(max_wait);
    }
    if let Some(max_cost) = term.count("max_cost") {
        bucket = bucket.max_cost(max_cost);
    }
    if term.is_set("charge") {
        bucket = bucket.charge_mode(Charge::Before);
    }
    Ok(AnyAlgorithm::new(bucket))
}

fn fixed_window(term: &Term) -> Result<AnyAlgorithm, ConfigError> {
    let mut window = FixedWindow::new(term.quota()?);
    if let Some(offset) = term.time("offset") {
        window = window.offset(offset);
    }
    if term.is_set("anchored") {
        window = window.anchored();
    }
    Ok(AnyAlgorithm::new(window))
}

fn sliding_window(term: &Term) -> Result<AnyAlgorithm, ConfigError> {
    let offset = term.time("offset").unwrap_or_default();
    let window = SlidingWindow::new(term.quota()?).offset(offset);
    Ok(AnyAlgorithm::new(window))
}

fn sliding_grid(term: &Term) -> Result<AnyAlgorithm, ConfigError> {
    let offset = term.time("offset").unwrap_or_default();
    let mut grid = SlidingGrid::new(term.quota()?).offset(offset);
    if let Some(cells) = term.count("cells") {
        // A number above `usize::MAX` is refused as too many.
        grid = grid.try_cells(usize::try_from(cells).unwrap_or(usize::MAX))?;
    }
    if term.is_set("strict") {
        grid = grid.strict();
    }
    Ok(AnyAlgorithm::new(grid))
}

fn warm_up(term: &Term) -> Result<AnyAlgorithm, ConfigError> {
    let Some(warm_up) = term.time("warm_up") else {
        return Err(ConfigError::Syntax {
            field: "policy",
            text: term.to_string(),
            expected: "warm_up=TIME: how long the rate takes to rise".to_owned(),
        });
    };
    let mut line = WarmUp::try_new(term.quota()?, warm_up)?;
    if let Some(factor) = term.count("cold_factor") {
        line = line.try_cold_factor(factor)?;
    }
    if let Some(queue) = term.count("queue") {
        line = line.queue(queue);
    }
    if let Some(max_wait) = term.time("max_wait") {
        line = line.max_wait(max_wait);
    }
    if let Some(max_cost) = term.count("max_cost") {
        line = line.max_cost(max_cost);
    }
    Ok(AnyAlgorithm::new(line))
}

fn lockout(term: &Term) -> Result<AnyAlgorithm, ConfigError> {
    let mut lockout = Lockout::new(term.quota()?);
    if let Some(block) = term.time("block") {
        lockout = lockout.block(block);
    }
    if let Some(max_block) = term.time("max_block") {
        lockout = lockout.max_block(max_block);
    }
    if let Some(forget) = term.time("forget") {
        lockout = lockout.forget(forget);
    }
    if let Some(parole) = term.count("parole") {
        lockout = lockout.parole(parole);
    }
    if term.is_set("on_success") {
        lockout = lockout.clear_on_success();
    }
    Ok(AnyAlgorithm::new(lockout))
}

#[cfg(feature = "governor")]
fn gcra(term: &Term) -> Result<AnyAlgorithm, ConfigError> {
    Gcra::try_new(term.quota()?).map(AnyAlgorithm::new)
}

#[cfg(not(feature = "governor"))]
fn gcra(_: &Term) -> Result<AnyAlgorithm, ConfigError> {
    Err(ConfigError::Unsupported {
        what: "gcra",
        instead: "enable the feature `governor`, or use token_bucket, which decides the same",
    })
}
