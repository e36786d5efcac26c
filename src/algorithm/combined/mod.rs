//! Combined limits: all of them admit, or nothing is taken.
//!
//! [`Parts`] visits the parts of a pair or an [`All`] with their states. Every method of
//! [`Algorithm`] is written once for all of these, as a visitor, in `forward.rs`.

mod all;
mod forward;
mod into_algorithm;
mod merge;
mod pair;
mod parts;
mod questions;
#[cfg(all(test, not(tower_throttle_loom), not(tower_throttle_shuttle)))]
mod tests;

pub(crate) use self::merge::merge;
pub use self::{all::All, into_algorithm::IntoAlgorithm};
