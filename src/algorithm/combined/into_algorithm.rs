//! From what a limiter can be made: an algorithm, or a tuple of algorithms.

use super::super::Algorithm;
use super::All;

/// An algorithm, or a tuple of two to four algorithms, from which a limiter can be made.
///
/// ```
/// use tower_throttle::{FixedWindow, LeakyBucket, Limiter, Quota, TokenBucket};
///
/// let limiter = Limiter::new((
///     TokenBucket::new(Quota::per_second(10)),
///     LeakyBucket::new(Quota::per_minute(100)),
///     FixedWindow::new(Quota::per_day(1_000)),
/// ));
/// assert_eq!(limiter.check(1).remaining(), 9);
/// ```
pub trait IntoAlgorithm {
    /// The resulting algorithm.
    type Algorithm: Algorithm;

    /// The algorithm itself, or [`All`] of a tuple.
    fn into_algorithm(self) -> Self::Algorithm;
}

impl<A: Algorithm> IntoAlgorithm for A {
    type Algorithm = A;

    fn into_algorithm(self) -> A {
        self
    }
}

macro_rules! tuples {
    ($($name:ident $at:tt),*) => {
        impl<$($name: IntoAlgorithm),*> IntoAlgorithm for ($($name),*) {
            type Algorithm = All<($($name::Algorithm),*)>;

            fn into_algorithm(self) -> Self::Algorithm {
                All { parts: ($(self.$at.into_algorithm()),*) }
            }
        }
    };
}

tuples!(A 0, B 1);
tuples!(A 0, B 1, C 2);
tuples!(A 0, B 1, C 2, D 3);
