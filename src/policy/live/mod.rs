//! The limits of a policy file at work.

mod active;
mod build;
mod environment;
mod key;
mod keys;
mod layer;
mod limits;
mod matching;
#[cfg_attr(not(feature = "axum"), path = "nested_disabled.rs")]
mod nested;
mod report;
mod respond;
mod watch;

use self::nested::nested;
pub use self::{
    active::MatchedLimits,
    environment::Environment,
    key::PolicyKey,
    layer::{PolicyHandle, PolicyLayer},
    limits::PolicyLimits,
    report::Reloaded,
    respond::AsInFile,
};
