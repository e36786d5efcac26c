//! An algorithm chosen while the program runs.

use std::{any::Any, fmt, sync::Arc, time::Duration};

use super::{Algorithm, Inherit};
use crate::clock::Tick;
use crate::decision::Decision;
use crate::error::ConfigError;
use crate::quota::Quota;

/// Any algorithm behind one type: for policies that come from a configuration file, and for sets of
/// different kinds whose number is not known before.
///
/// Each state is a box of its own; where the kind is known when the program is written, use the
/// algorithm itself.
///
/// ```
/// use tower_throttle::{FixedWindow, Limiter, Quota, TokenBucket, algorithm::AnyAlgorithm};
///
/// fn from_config(kind: &str, quota: Quota) -> AnyAlgorithm {
///     match kind {
///         "window" => AnyAlgorithm::new(FixedWindow::new(quota)),
///         _ => AnyAlgorithm::new(TokenBucket::new(quota)),
///     }
/// }
///
/// let limiter = Limiter::new(from_config("window", "2/h".parse()?));
/// assert_eq!(limiter.check().remaining(), 1);
/// # Ok::<(), tower_throttle::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
pub struct AnyAlgorithm(Arc<dyn Erased>);

/// The state of a key under an [`AnyAlgorithm`].
#[derive(Debug)]
pub struct AnyState(Box<dyn ErasedState>);

impl AnyAlgorithm {
    /// Hides the kind of `algorithm`.
    pub fn new<A: Algorithm>(algorithm: A) -> Self {
        Self(Arc::new(algorithm))
    }
}

/// For a store elsewhere that decides by a script.
#[cfg(feature = "redis")]
impl AnyAlgorithm {
    /// The algorithm in it, if it is of that kind.
    pub(crate) fn holds<A: Algorithm>(&self) -> Option<&A> {
        (*self.0).as_any().downcast_ref()
    }
}

#[cfg(feature = "redis")]
impl AnyState {
    pub(crate) fn holding<S: Clone + fmt::Debug + Send + Sync + 'static>(state: S) -> Self {
        Self(Box::new(state))
    }
}

/// `Algorithm` without its associated type, which becomes `dyn Any`.
trait Erased: Any + fmt::Debug + Send + Sync {
    fn quota(&self) -> Quota;
    fn quotas(&self) -> Vec<Quota>;
    fn with_quota(&self, quota: Quota) -> Result<Arc<dyn Erased>, ConfigError>;
    fn fresh(&self, now: Tick) -> AnyState;
    fn decide(&self, state: &mut AnyState, now: Tick, cost: u64) -> Decision;
    fn peek(&self, state: &AnyState, now: Tick, cost: u64) -> Decision;
    fn reserve(&self, state: &mut AnyState, now: Tick, cost: u64, max_wait: Duration) -> Decision;
    fn refund(&self, state: &mut AnyState, now: Tick, cost: u64);
    fn charge(&self, state: &mut AnyState, now: Tick, cost: u64) -> Duration;
    fn rescale(&self, state: &mut AnyState, from: &dyn Erased, now: Tick, inherit: Inherit);
    fn forgettable_at(&self, state: &AnyState) -> Tick;
    fn keeps_line(&self) -> bool;
    fn replans_line(&self) -> bool;
    fn limits(&self) -> usize;
    fn held_bytes(&self, state: &AnyState) -> usize;
    fn max_heap_bytes(&self) -> usize;
    fn words(&self) -> usize;
    fn pack_into(&self, state: &AnyState, words: &mut [u64]) -> bool;
    fn unpack_from(&self, words: &[u64]) -> AnyState;
    fn as_any(&self) -> &dyn Any;
}

trait ErasedState: Any + fmt::Debug + Send + Sync {
    fn boxed_clone(&self) -> Box<dyn ErasedState>;
    fn as_any(&self) -> &dyn Any;
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

impl<S: Clone + fmt::Debug + Send + Sync + 'static> ErasedState for S {
    fn boxed_clone(&self) -> Box<dyn ErasedState> {
        Box::new(self.clone())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

impl Clone for AnyState {
    fn clone(&self) -> Self {
        // Of the box's content: the box itself is a state too, and would box once more.
        Self((*self.0).boxed_clone())
    }
}

impl AnyState {
    fn of<A: Algorithm>(algorithm: &A, now: Tick) -> Self {
        Self(Box::new(algorithm.fresh(now)))
    }

    /// The state that `algorithm` keeps; a fresh one where the kinds differ, as after a change of
    /// algorithm.
    fn get_mut<A: Algorithm>(&mut self, algorithm: &A, now: Tick) -> &mut A::State {
        if !(*self.0).as_any().is::<A::State>() {
            *self = Self::of(algorithm, now);
        }
        (*self.0)
            .as_any_mut()
            .downcast_mut()
            .expect("a state of another kind was replaced above")
    }
}

impl<A: Algorithm> Erased for A {
    fn quota(&self) -> Quota {
        Algorithm::quota(self)
    }

    fn quotas(&self) -> Vec<Quota> {
        Algorithm::quotas(self)
    }

    fn with_quota(&self, quota: Quota) -> Result<Arc<dyn Erased>, ConfigError> {
        Ok(Arc::new(Algorithm::with_quota(self, quota)?))
    }

    fn fresh(&self, now: Tick) -> AnyState {
        AnyState::of(self, now)
    }

    fn decide(&self, state: &mut AnyState, now: Tick, cost: u64) -> Decision {
        Algorithm::decide(self, state.get_mut(self, now), now, cost)
    }

    fn peek(&self, state: &AnyState, now: Tick, cost: u64) -> Decision {
        match (*state.0).as_any().downcast_ref() {
            Some(state) => Algorithm::peek(self, state, now, cost),
            None => Algorithm::peek(self, &Algorithm::fresh(self, now), now, cost),
        }
    }

    fn reserve(&self, state: &mut AnyState, now: Tick, cost: u64, max_wait: Duration) -> Decision {
        Algorithm::reserve(self, state.get_mut(self, now), now, cost, max_wait)
    }

    fn refund(&self, state: &mut AnyState, now: Tick, cost: u64) {
        Algorithm::refund(self, state.get_mut(self, now), now, cost);
    }

    fn charge(&self, state: &mut AnyState, now: Tick, cost: u64) -> Duration {
        Algorithm::charge(self, state.get_mut(self, now), now, cost)
    }

    fn rescale(&self, state: &mut AnyState, from: &dyn Erased, now: Tick, inherit: Inherit) {
        match from.as_any().downcast_ref() {
            Some(from) => {
                Algorithm::rescale(self, state.get_mut(from, now), from, now, inherit);
            }
            None => *state = AnyState::of(self, now),
        }
    }

    fn forgettable_at(&self, state: &AnyState) -> Tick {
        (*state.0)
            .as_any()
            .downcast_ref()
            .map_or(Tick::ZERO, |state| Algorithm::forgettable_at(self, state))
    }

    fn keeps_line(&self) -> bool {
        Algorithm::keeps_line(self)
    }

    fn replans_line(&self) -> bool {
        Algorithm::replans_line(self)
    }

    fn limits(&self) -> usize {
        Algorithm::limits(self)
    }

    fn held_bytes(&self, state: &AnyState) -> usize {
        let held = (*state.0).as_any().downcast_ref::<A::State>();
        size_of::<A::State>() + held.map_or(0, |state| Algorithm::held_bytes(self, state))
    }

    fn max_heap_bytes(&self) -> usize {
        Algorithm::max_heap_bytes(self).saturating_add(size_of::<A::State>())
    }

    fn words(&self) -> usize {
        Algorithm::words(self)
    }

    fn pack_into(&self, state: &AnyState, words: &mut [u64]) -> bool {
        (*state.0)
            .as_any()
            .downcast_ref()
            .is_some_and(|state| Algorithm::pack_into(self, state, words))
    }

    fn unpack_from(&self, words: &[u64]) -> AnyState {
        AnyState(Box::new(Algorithm::unpack_from(self, words)))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Algorithm for AnyAlgorithm {
    type State = AnyState;

    fn quota(&self) -> Quota {
        self.0.quota()
    }

    fn quotas(&self) -> Vec<Quota> {
        self.0.quotas()
    }

    fn with_quota(&self, quota: Quota) -> Result<Self, ConfigError> {
        self.0.with_quota(quota).map(Self)
    }

    fn fresh(&self, now: Tick) -> AnyState {
        self.0.fresh(now)
    }

    fn decide(&self, state: &mut AnyState, now: Tick, cost: u64) -> Decision {
        self.0.decide(state, now, cost)
    }

    fn peek(&self, state: &AnyState, now: Tick, cost: u64) -> Decision {
        self.0.peek(state, now, cost)
    }

    fn reserve(&self, state: &mut AnyState, now: Tick, cost: u64, max_wait: Duration) -> Decision {
        self.0.reserve(state, now, cost, max_wait)
    }

    fn refund(&self, state: &mut AnyState, now: Tick, cost: u64) {
        self.0.refund(state, now, cost);
    }

    fn charge(&self, state: &mut AnyState, now: Tick, cost: u64) -> Duration {
        self.0.charge(state, now, cost)
    }

    fn rescale(&self, state: &mut AnyState, from: &Self, now: Tick, inherit: Inherit) {
        self.0.rescale(state, &*from.0, now, inherit);
    }

    fn forgettable_at(&self, state: &AnyState) -> Tick {
        self.0.forgettable_at(state)
    }

    fn keeps_line(&self) -> bool {
        self.0.keeps_line()
    }

    fn replans_line(&self) -> bool {
        self.0.replans_line()
    }

    fn limits(&self) -> usize {
        self.0.limits()
    }

    fn held_bytes(&self, state: &AnyState) -> usize {
        self.0.held_bytes(state)
    }

    fn max_heap_bytes(&self) -> usize {
        self.0.max_heap_bytes()
    }

    fn words(&self) -> usize {
        self.0.words()
    }

    fn pack_into(&self, state: &AnyState, words: &mut [u64]) -> bool {
        self.0.pack_into(state, words)
    }

    fn unpack_from(&self, words: &[u64]) -> AnyState {
        self.0.unpack_from(words)
    }
}
