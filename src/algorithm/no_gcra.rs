//! Without the feature `governor` there is no value of [`Gcra`].

use std::time::Duration;

use super::{Algorithm, Cost, Fields, GiveBack, Portable};
use crate::clock::Tick;
use crate::decision::Decision;
use crate::error::ConfigError;
use crate::quota::Quota;

/// The algorithm of the governor crate. Needs the feature `governor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gcra {}

/// The state of a key under [`Gcra`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GcraState;

impl Gcra {
    /// Refused.
    pub(crate) const fn try_new(_: Quota) -> Result<Self, ConfigError> {
        Err(ConfigError::Unsupported {
            what: "gcra",
            instead: "enable the feature `governor`, or use token_bucket, which decides the same",
        })
    }
}

impl Algorithm for Gcra {
    type State = GcraState;

    fn quota(&self) -> Quota {
        match *self {}
    }

    fn fresh(&self, _: Tick) -> GcraState {
        match *self {}
    }

    fn decide(&self, _: &mut GcraState, _: Tick, _: u64) -> Decision {
        match *self {}
    }

    fn refund(&self, _: &mut GcraState, _: Tick, _: Cost, _: GiveBack) {
        match *self {}
    }

    fn charge(&self, _: &mut GcraState, _: Tick, _: u64) -> Duration {
        match *self {}
    }
}

impl Portable for Gcra {
    fn settings_fields(&mut self, _: &mut Fields<'_>) {
        match *self {}
    }

    fn state_fields(&self, _: &mut GcraState, _: &mut Fields<'_>) {
        match *self {}
    }
}
