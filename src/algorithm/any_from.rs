//! Conversions into [`AnyAlgorithm`], one per type: a generic one would overlap `From<T> for T`.

use super::{
    All, AnyAlgorithm, DenialLockout, FixedWindow, Gcra, LeakyBucket, Lockout, SlidingGrid,
    SlidingLog, SlidingWindow, TokenBucket, WarmUp,
};

impl From<FixedWindow> for AnyAlgorithm {
    fn from(algorithm: FixedWindow) -> Self {
        Self::FixedWindow(algorithm)
    }
}

impl From<SlidingLog> for AnyAlgorithm {
    fn from(algorithm: SlidingLog) -> Self {
        Self::SlidingLog(algorithm)
    }
}

impl From<SlidingWindow> for AnyAlgorithm {
    fn from(algorithm: SlidingWindow) -> Self {
        Self::SlidingWindow(algorithm)
    }
}

impl From<SlidingGrid> for AnyAlgorithm {
    fn from(algorithm: SlidingGrid) -> Self {
        Self::SlidingGrid(Box::new(algorithm))
    }
}

impl From<TokenBucket> for AnyAlgorithm {
    fn from(algorithm: TokenBucket) -> Self {
        Self::TokenBucket(algorithm)
    }
}

impl From<LeakyBucket> for AnyAlgorithm {
    fn from(algorithm: LeakyBucket) -> Self {
        Self::LeakyBucket(algorithm)
    }
}

impl From<WarmUp> for AnyAlgorithm {
    fn from(algorithm: WarmUp) -> Self {
        Self::WarmUp(Box::new(algorithm))
    }
}

impl From<Gcra> for AnyAlgorithm {
    fn from(algorithm: Gcra) -> Self {
        Self::Gcra(algorithm)
    }
}

impl From<Lockout> for AnyAlgorithm {
    fn from(algorithm: Lockout) -> Self {
        Self::Lockout(algorithm)
    }
}

impl<A: Into<Self>> From<DenialLockout<A>> for AnyAlgorithm {
    fn from(algorithm: DenialLockout<A>) -> Self {
        Self::DenialLockout(Box::new(algorithm.map_limit(A::into)))
    }
}

impl<A: Into<Self>> From<All<A>> for AnyAlgorithm {
    fn from(algorithm: All<A>) -> Self {
        Self::All(algorithm.map(A::into))
    }
}

impl<A: Into<Self>, B: Into<Self>> From<(A, B)> for AnyAlgorithm {
    fn from((a, b): (A, B)) -> Self {
        Self::All(All::new([a.into(), b.into()]))
    }
}

impl<A: Into<Self>, B: Into<Self>, C: Into<Self>> From<(A, B, C)> for AnyAlgorithm {
    fn from((a, b, c): (A, B, C)) -> Self {
        Self::All(All::new([a.into(), b.into(), c.into()]))
    }
}

impl<A, B, C, D> From<(A, B, C, D)> for AnyAlgorithm
where
    A: Into<Self>,
    B: Into<Self>,
    C: Into<Self>,
    D: Into<Self>,
{
    fn from((a, b, c, d): (A, B, C, D)) -> Self {
        Self::All(All::new([a.into(), b.into(), c.into(), d.into()]))
    }
}
