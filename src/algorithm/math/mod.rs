//! Exact integer arithmetic: intervals, windows, bit fields, wide quotients.

mod arithmetic;
mod bits;
#[cfg(test)]
#[cfg(not(any(miri, tower_throttle_loom)))]
mod exhaustive;
mod interval;
mod time_base;
mod u256;
mod windows;

pub use self::interval::ExactNanos;
pub(super) use self::{
    arithmetic::{gcd, low_u64},
    bits::{BitBuffer, MAX_WORDS, TIME_BITS, bit_width, mask, words_for_bits},
    interval::{Interval, Rounding},
    time_base::{LEAST_TIME_BITS, TimeBase, fits_range},
    u256::floor_ratio,
    windows::Windows,
};
