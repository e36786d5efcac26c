//! Builds the algorithm of a text.

use super::term::Term;
use crate::algorithm::{
    Algorithm, AnyAlgorithm, Charge, FixedWindow, LeakyBucket, Lockout, SlidingGrid, SlidingLog,
    SlidingWindow, TokenBucket, WarmUp,
};
use crate::error::ConfigError;

/// The algorithm, whose settings are checked.
pub(super) fn algorithm(term: &Term) -> Result<AnyAlgorithm, ConfigError> {
    let algorithm = match term.kind.name {
        "token_bucket" => token_bucket(term),
        "leaky_bucket" => leaky_bucket(term),
        "fixed_window" => fixed_window(term),
        "sliding_window" => sliding_window(term),
        "sliding_grid" => sliding_grid(term),
        "sliding_log" => Ok(AnyAlgorithm::new(SlidingLog::new(term.quota()?))),
        "warm_up" => warm_up(term),
        "lockout" => lockout(term),
        "gcra" => gcra(term),
        _ => Err(ConfigError::Unsupported {
            what: "concurrency as an algorithm",
            instead: "use a `ConcurrencyLimitLayer`, or a policy file",
        }),
    }?;
    algorithm.validate()?;
    Ok(algorithm)
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
    crate::algorithm::Gcra::try_new(term.quota()?).map(AnyAlgorithm::new)
}

#[cfg(not(feature = "governor"))]
fn gcra(_: &Term) -> Result<AnyAlgorithm, ConfigError> {
    Err(ConfigError::Unsupported {
        what: "gcra",
        instead: "enable the feature `governor`, or use token_bucket, which decides the same",
    })
}
