//! Exact integer arithmetic.

mod arithmetic;
#[cfg(test)]
#[cfg(not(any(miri, tower_throttle_loom)))]
mod exhaustive;
mod interval;

pub use self::interval::ExactNanos;
pub(super) use self::{
    arithmetic::{gcd, low_u64},
    interval::Interval,
};
