//! Combined limits: all of them admit, or nothing is taken.

mod all;
mod into_algorithm;
mod merge;
mod parts;
#[cfg(all(test, not(tower_throttle_loom)))]
mod tests;

pub(crate) use self::merge::merge;
pub use self::{all::All, into_algorithm::IntoAlgorithm, parts::Parts};
