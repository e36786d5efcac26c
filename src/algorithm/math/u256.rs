//! Quotients of products that do not fit 128 bits.
//!
//! Only changes of quota and very fine warm-ups need them, so the code is short rather than fast: a
//! product has four 64-bit limbs, and a quotient is found bit by bit.

use std::cmp::Ordering;

use super::arithmetic::low_u64;

/// 256 bits, the lowest limb first.
#[derive(Clone, Copy)]
struct U256([u64; 4]);

/// `floor(product of numerator / product of denominator)`, or `None` above 2^128 - 1.
///
/// The products must fit 256 bits and the denominator must not be zero.
pub(in crate::algorithm) fn floor_ratio(numerator: &[u128], denominator: &[u128]) -> Option<u128> {
    ratio(numerator, denominator).map(|(quotient, _)| quotient)
}

/// As [`floor_ratio`], rounded up.
pub(in crate::algorithm) fn ceil_ratio(numerator: &[u128], denominator: &[u128]) -> Option<u128> {
    ratio(numerator, denominator)
        .and_then(|(quotient, exact)| quotient.checked_add(u128::from(!exact)))
}

/// The floor of the quotient, and whether it is the quotient itself.
fn ratio(numerator: &[u128], denominator: &[u128]) -> Option<(u128, bool)> {
    if let (Some(numerator), Some(denominator)) =
        (product_u128(numerator), product_u128(denominator))
    {
        return Some((numerator / denominator, numerator % denominator == 0));
    }
    let numerator = U256::product(numerator);
    let denominator = U256::product(denominator);
    let mut quotient = 0;
    for bit in (0..u128::BITS).rev() {
        let candidate = quotient | 1 << bit;
        if denominator
            .checked_mul(candidate)
            .is_some_and(|product| product.cmp(&numerator).is_le())
        {
            quotient = candidate;
        }
    }
    let product = denominator.checked_mul(quotient)?;
    let next_fits = quotient == u128::MAX
        && denominator
            .checked_add(&product)
            .is_some_and(|next| next.cmp(&numerator).is_le());
    (!next_fits).then(|| (quotient, product.cmp(&numerator).is_eq()))
}

fn product_u128(factors: &[u128]) -> Option<u128> {
    factors
        .iter()
        .try_fold(1_u128, |product, factor| product.checked_mul(*factor))
}

impl U256 {
    fn product(factors: &[u128]) -> Self {
        factors.iter().fold(Self([1, 0, 0, 0]), |product, factor| {
            debug_assert!(
                product.checked_mul(*factor).is_some(),
                "products fit 256 bits"
            );
            product.checked_mul(*factor).unwrap_or(Self([u64::MAX; 4]))
        })
    }

    fn checked_mul(&self, factor: u128) -> Option<Self> {
        let mut limbs = [0; 6];
        for (shift, digit) in [
            low_u64(factor & u128::from(u64::MAX)),
            low_u64(factor >> 64),
        ]
        .into_iter()
        .enumerate()
        {
            let mut carry = 0;
            for (place, limb) in self.0.iter().enumerate() {
                let sum = u128::from(*limb) * u128::from(digit)
                    + u128::from(limbs[place + shift])
                    + u128::from(carry);
                limbs[place + shift] = low_u64(sum & u128::from(u64::MAX));
                carry = low_u64(sum >> 64);
            }
            limbs[shift + 4] += carry;
        }
        let [a, b, c, d, 0, 0] = limbs else {
            return None;
        };
        Some(Self([a, b, c, d]))
    }

    fn checked_add(&self, other: &Self) -> Option<Self> {
        let mut limbs = [0; 4];
        let mut carry = 0;
        for (limb, (a, b)) in limbs.iter_mut().zip(self.0.iter().zip(other.0)) {
            let sum = u128::from(*a) + u128::from(b) + carry;
            *limb = low_u64(sum & u128::from(u64::MAX));
            carry = sum >> 64;
        }
        (carry == 0).then_some(Self(limbs))
    }

    fn cmp(&self, other: &Self) -> Ordering {
        self.0.iter().rev().cmp(other.0.iter().rev())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn u256_quotients_match_u128() {
        let cases: [(u128, u128); 5] = [
            (0, 7),
            (1 << 100, 3),
            (u128::MAX, 1),
            (u128::MAX, u128::MAX),
            (12_345_678_901_234_567_890_123, 98_765_432_109),
        ];
        for (numerator, denominator) in cases {
            // The same factor on both sides leaves the quotient but needs more than 128 bits.
            let scale = (1 << 90) - 33;
            let wide = (&[numerator, scale][..], &[denominator, scale][..]);
            assert_eq!(floor_ratio(wide.0, wide.1), Some(numerator / denominator));
            assert_eq!(
                ceil_ratio(wide.0, wide.1),
                Some(numerator.div_ceil(denominator))
            );
        }
    }

    #[test]
    fn a_quotient_beyond_128_bits_is_none() {
        assert_eq!(floor_ratio(&[u128::MAX, 2], &[1]), None);
        assert_eq!(floor_ratio(&[u128::MAX, 3], &[3]), Some(u128::MAX));
    }

    #[test]
    fn products_of_the_denominator_beyond_256_bits_count_as_too_large() {
        let most = u128::MAX;
        assert_eq!(floor_ratio(&[most, 5], &[most, most]), Some(0));
        assert_eq!(ceil_ratio(&[most, 5], &[most, most]), Some(1));
        assert_eq!(floor_ratio(&[most, most], &[most, most - 1]), Some(1));
    }
}
