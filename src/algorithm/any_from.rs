//! Conversions into [`AnyAlgorithm`], one per type: a generic one would overlap `From<T> for T`.

#[cfg(feature = "governor")]
use super::Gcra;
use super::{
    Algorithm, All, AnyAlgorithm, DenialLockout, FixedWindow, IntoAlgorithm, LeakyBucket, Lockout,
    SlidingGrid, SlidingLog, SlidingWindow, TokenBucket, WarmUp,
};

impl From<FixedWindow> for AnyAlgorithm {
    fn from(algorithm: FixedWindow) -> Self {
        Self::new(algorithm)
    }
}

impl From<SlidingLog> for AnyAlgorithm {
    fn from(algorithm: SlidingLog) -> Self {
        Self::new(algorithm)
    }
}

impl From<SlidingWindow> for AnyAlgorithm {
    fn from(algorithm: SlidingWindow) -> Self {
        Self::new(algorithm)
    }
}

impl From<SlidingGrid> for AnyAlgorithm {
    fn from(algorithm: SlidingGrid) -> Self {
        Self::new(algorithm)
    }
}

impl From<TokenBucket> for AnyAlgorithm {
    fn from(algorithm: TokenBucket) -> Self {
        Self::new(algorithm)
    }
}

impl From<LeakyBucket> for AnyAlgorithm {
    fn from(algorithm: LeakyBucket) -> Self {
        Self::new(algorithm)
    }
}

impl From<Lockout> for AnyAlgorithm {
    fn from(algorithm: Lockout) -> Self {
        Self::new(algorithm)
    }
}

impl<A: Algorithm> From<DenialLockout<A>> for AnyAlgorithm {
    fn from(algorithm: DenialLockout<A>) -> Self {
        Self::new(algorithm)
    }
}

impl From<WarmUp> for AnyAlgorithm {
    fn from(algorithm: WarmUp) -> Self {
        Self::new(algorithm)
    }
}

#[cfg(feature = "governor")]
impl From<Gcra> for AnyAlgorithm {
    fn from(algorithm: Gcra) -> Self {
        Self::new(algorithm)
    }
}

impl<A: Algorithm> From<All<A>> for AnyAlgorithm {
    fn from(algorithm: All<A>) -> Self {
        Self::new(algorithm)
    }
}

impl<A: Algorithm, B: Algorithm> From<(A, B)> for AnyAlgorithm {
    fn from(both: (A, B)) -> Self {
        Self::new(both)
    }
}

impl<A: Algorithm, B: Algorithm, C: Algorithm> From<(A, B, C)> for AnyAlgorithm {
    fn from(several: (A, B, C)) -> Self {
        Self::new(several.into_algorithm())
    }
}

impl<A: Algorithm, B: Algorithm, C: Algorithm, D: Algorithm> From<(A, B, C, D)> for AnyAlgorithm {
    fn from(several: (A, B, C, D)) -> Self {
        Self::new(several.into_algorithm())
    }
}
