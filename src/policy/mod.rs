//! Limits as text, and limits from files.
//!
//! [`Spec`] is one limit as text, `token_bucket 10/s; burst=50`. The same text works in a policy file.
#![cfg_attr(
    feature = "policies",
    doc = "
A policy file is read as a [`PolicyFile`], from TOML or from any other format of serde. A [`PolicyLayer`] applies its
limits to a service, and its [`PolicyHandle`] replaces them while requests are served. An [`Environment`] gives the file what it cannot say itself."
)]

#[cfg(feature = "policies")]
mod file;
mod kinds;
#[cfg(feature = "policies")]
mod live;
mod parse;
#[cfg(feature = "policies")]
mod pattern;
mod spec;
mod term;

pub use self::spec::Spec;
#[cfg(feature = "policies")]
pub use self::{
    file::{PolicyFile, Problems},
    live::{
        AsInFile, Environment, MatchedLimits, PolicyHandle, PolicyKey, PolicyLayer, PolicyLimits,
        Reloaded,
    },
};
