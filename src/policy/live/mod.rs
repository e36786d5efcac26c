//! The limits of a policy file at work.

mod active;
mod build;
mod environment;
mod erased;
mod key;
mod keys;
mod layer;
mod limits;
mod matched;
mod matching;
#[cfg(feature = "axum")]
mod nested;
#[cfg(not(feature = "axum"))]
#[path = "nested_disabled.rs"]
mod nested;
mod report;
mod respond;
mod stores;
#[cfg(feature = "toml")]
mod watch;

use self::nested::nested;
pub use self::{
    environment::Environment,
    erased::PolicyLimiter,
    key::PolicyKey,
    layer::{PolicyHandle, PolicyLayer, PolicyService},
    limits::PolicyLimits,
    matched::MatchedLimits,
    report::Reloaded,
    respond::AsInFile,
};
