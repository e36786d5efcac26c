//! Numbers with a fraction of 16 bits, and integer roots.

/// 1 in fixed point. A number is rounded down, so it is less than 2^-16 too small.
pub(super) const ONE: u64 = 1 << 16;

/// The square root of a number in fixed point, in fixed point; less than 2^-16 too small.
pub(super) fn sqrt(number: u64) -> u64 {
    let root = (u128::from(number) << 16).isqrt();
    u64::try_from(root).unwrap_or(u64::MAX)
}

/// `number` times `dividend / divisor`, rounded down.
pub(super) fn scale(number: u64, dividend: u64, divisor: u64) -> u64 {
    let product = u128::from(number) * u128::from(dividend) / u128::from(divisor.max(1));
    u64::try_from(product).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows promise 185.
    #[test]
    fn roots_are_less_than_a_65536th_too_small() {
        for number in (0..5_000).chain([ONE, 2 * ONE, 200 * ONE, u64::from(u32::MAX) * ONE]) {
            let root = u128::from(sqrt(number));
            let exact = u128::from(number) << 16;
            assert!(
                root * root <= exact && exact < (root + 1) * (root + 1),
                "{number}"
            );
        }
        assert_eq!((sqrt(0), sqrt(ONE), sqrt(4 * ONE)), (0, ONE, 2 * ONE));
    }
}
