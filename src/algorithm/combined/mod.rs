//! Combined limits: all of them admit, or nothing is taken.
//!
//! A pair of limits, and a list of limits of one kind. Each method does what follows from the parts.

mod all;
mod into_algorithm;
mod merge;
mod pair;
#[cfg(all(test, not(tower_throttle_loom)))]
mod tests;

pub(crate) use self::merge::{binds_more, merge};
pub use self::{all::All, into_algorithm::IntoAlgorithm};
