//! Conversion into algorithms, for the constructors of limiters.

use super::super::Algorithm;

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

    /// The algorithm itself. Longer tuples become pairs of pairs.
    fn into_algorithm(self) -> Self::Algorithm;
}

impl<A: Algorithm> IntoAlgorithm for A {
    type Algorithm = A;

    fn into_algorithm(self) -> A {
        self
    }
}

impl<A: Algorithm, B: Algorithm, C: Algorithm> IntoAlgorithm for (A, B, C) {
    type Algorithm = ((A, B), C);

    fn into_algorithm(self) -> Self::Algorithm {
        ((self.0, self.1), self.2)
    }
}

impl<A: Algorithm, B: Algorithm, C: Algorithm, D: Algorithm> IntoAlgorithm for (A, B, C, D) {
    type Algorithm = ((A, B), (C, D));

    fn into_algorithm(self) -> Self::Algorithm {
        ((self.0, self.1), (self.2, self.3))
    }
}
