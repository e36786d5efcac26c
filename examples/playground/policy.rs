//! A policy of the page.

use std::{str::FromStr, time::Duration};

use tower_throttle::{algorithm::AnyAlgorithm, policy::Spec};

/// A limit as text, its algorithm, and its line.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    line: String,
    algorithm: AnyAlgorithm,
    queue: Option<(u32, Option<Duration>)>,
}

impl Policy {
    pub(crate) fn algorithm(&self) -> &AnyAlgorithm {
        &self.algorithm
    }

    /// How many requests of a client may wait, and for how long.
    pub(crate) fn queue(&self) -> Option<(u32, Option<Duration>)> {
        self.queue
    }

    /// The limit as the library prints it.
    pub(crate) fn line(&self) -> &str {
        &self.line
    }
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let spec: Spec = text.parse().map_err(sentence)?;
        Ok(Self {
            line: spec.to_string(),
            algorithm: spec.algorithm().map_err(sentence)?,
            queue: spec.queue(),
        })
    }
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` passes it")]
fn sentence(error: tower_throttle::ConfigError) -> String {
    error.to_string()
}
