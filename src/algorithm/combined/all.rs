//! A list of limits of one kind.

use super::super::math::MAX_WORDS;
use super::super::{Algorithm, Inherit};
use super::parts::{
    MakeState, Parts, VisitPart, VisitPartMut, VisitState, VisitStateMut, unsupported,
};
use crate::clock::Tick;
use crate::error::ConfigError;
use crate::quota::Quota;

/// Several limits of one kind at once. For different kinds use a tuple.
///
/// A request passes if every part admits it, and only then does any part count it: a request that
/// the daily limit denies does not use up the limit per second. If parts make the request wait, it
/// waits for the longest wait.
///
/// All figures of the decision belong to one part, whose position is in
/// [`policy`](crate::Decision::policy). On a denial that is the part to wait for, else the part
/// that has the least room relative to its limit.
///
/// ```
/// use tower_throttle::{All, Limiter, Quota, SlidingLog, TokenBucket};
///
/// // One kind, a list of any length:
/// let tiers = [Quota::per_second(10), Quota::per_hour(1_000)].map(TokenBucket::new);
/// let limiter = Limiter::new(All::new(tiers));
/// assert!(limiter.check_n(10).is_admitted());
///
/// // Different kinds, a tuple of two to four:
/// let both = (TokenBucket::new(Quota::per_second(10)), SlidingLog::new(Quota::per_minute(20)));
/// let limiter = Limiter::new(both);
/// assert_eq!(limiter.check().limit, 10);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct All<A> {
    parts: Vec<A>,
}

impl<A: Algorithm> All<A> {
    /// All of `parts`. An empty list admits everything.
    pub fn new(parts: impl IntoIterator<Item = A>) -> Self {
        Self {
            parts: parts.into_iter().collect(),
        }
    }

    /// The parts, in order.
    pub fn parts(&self) -> &[A] {
        &self.parts
    }
}

impl<A: Algorithm> Parts for All<A> {
    type States = Vec<A::State>;

    const MAX_WORDS: usize = MAX_WORDS;
    const MIN_WORDS: usize = 1;

    fn each(&self, visitor: &mut impl VisitPart) {
        for part in &self.parts {
            visitor.visit(part);
        }
    }

    fn each_mut(&mut self, visitor: &mut impl VisitPartMut) {
        for part in &mut self.parts {
            visitor.visit(part);
        }
    }

    fn each_state(&self, states: &Self::States, visitor: &mut impl VisitState) {
        for (part, state) in self.parts.iter().zip(states) {
            visitor.visit(part, state);
        }
    }

    fn each_state_mut(&self, states: &mut Self::States, visitor: &mut impl VisitStateMut) {
        for (part, state) in self.parts.iter().zip(states) {
            visitor.visit(part, state);
        }
    }

    fn make(&self, maker: &mut impl MakeState) -> Self::States {
        self.parts.iter().map(|part| maker.make(part)).collect()
    }

    /// Parts are matched by position. The states of additional parts are fresh.
    fn rescale_each(&self, states: &mut Self::States, from: &Self, now: Tick, inherit: Inherit) {
        let kept = states.len();
        states.truncate(self.parts.len());
        for ((part, state), from) in self.parts.iter().zip(&mut *states).zip(&from.parts) {
            part.rescale(state, from, now, inherit);
        }
        for part in self.parts.iter().skip(kept) {
            states.push(part.fresh(now));
        }
    }

    fn is_complete(&self, states: &Self::States) -> bool {
        !self.parts.is_empty() && states.len() == self.parts.len()
    }

    fn own_heap_bytes(&self, states: &Self::States) -> usize {
        states.capacity() * size_of::<A::State>()
    }

    fn own_max_heap_bytes(&self) -> usize {
        self.parts.len() * size_of::<A::State>()
    }

    fn with_single_quota(&self, quota: Quota) -> Result<Self, ConfigError> {
        match &*self.parts {
            [part] => Ok(Self::new([part.with_quota(quota)?])),
            _ => Err(unsupported()),
        }
    }
}
