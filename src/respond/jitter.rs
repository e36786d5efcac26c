//! Times that clients are told, spread so that they do not come back together.

use std::time::Duration;

use crate::clock::nanos;

/// `wait`, and up to `percent` of it more. Waits with consecutive numbers lie evenly in that span: the
/// multiples of the golden ratio, modulo 1, are farther from each other than those of any other number.
pub(crate) fn spread(wait: Duration, percent: u32, number: u64) -> Duration {
    let part = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let most = u128::from(nanos(wait)) * u128::from(percent) / 100;
    let more = u64::try_from((most * u128::from(part)) >> 32).unwrap_or(u64::MAX);
    wait.saturating_add(Duration::from_nanos(more))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of any consecutive numbers: five waits of 5 s and up to 20 % more.
    ///
    /// Shows promises 310, 630.
    #[test]
    fn consecutive_waits_are_never_earlier_and_lie_apart() {
        let (wait, most) = (Duration::from_secs(5), Duration::from_secs(1));
        for first in (0..10_000).chain(u64::MAX - 2..=u64::MAX) {
            let numbers = (0..5).map(|number| first.wrapping_add(number));
            let mut waits: Vec<_> = numbers.map(|number| spread(wait, 20, number)).collect();
            waits.sort_unstable();
            assert!(waits[0] >= wait && waits[4] <= wait + most);
            let are_apart = waits.windows(2).all(|pair| pair[1] > pair[0] + most / 7);
            assert!(are_apart, "{waits:?}");
        }
        assert_eq!(spread(wait, 0, 7), wait);
        assert_eq!(spread(Duration::MAX, 100, 7), Duration::MAX);
    }
}
