//! Functions of single numbers.

pub(in crate::algorithm) const fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// The low word of a number known to fit in it.
#[expect(
    clippy::cast_possible_truncation,
    reason = "callers have compared with u64::MAX or hold a remainder of a 64-bit division"
)]
pub(in crate::algorithm) const fn low_u64(number: u128) -> u64 {
    number as u64
}
