//! An algorithm chosen at run time.

use std::{any::Any, fmt, sync::Arc, time::Duration};

#[cfg(feature = "cas")]
use super::fields::Fields;
use super::math::MAX_WORDS;
use super::packing::Sealed;
#[cfg(feature = "cas")]
use super::summed::{SummedMoment, Taken};
use super::{Algorithm, Cost, Facts, GiveBack, Inherit, Packing};
use crate::clock::Tick;
use crate::decision::Decision;
use crate::error::ConfigError;
use crate::quota::Quota;

/// Any algorithm behind one type.
///
/// For policies from a configuration file, and for sets of different kinds whose number is not
/// known at compile time. Each state is boxed; if the kind is known at compile time, use the
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
pub struct AnyAlgorithm(Arc<dyn DynAlgorithm>);

/// The state of a key under an [`AnyAlgorithm`].
#[derive(Debug)]
pub struct AnyState(Box<dyn DynState>);

impl AnyAlgorithm {
    /// Erases the type of `algorithm`.
    pub fn new<A: Algorithm>(algorithm: A) -> Self {
        Self(Arc::new(algorithm))
    }
}

/// For the stores that decide on a server.
#[cfg(feature = "redis")]
impl AnyAlgorithm {
    /// The erased algorithm, if it is of type `A`.
    pub(crate) fn downcast_ref<A: Algorithm>(&self) -> Option<&A> {
        (*self.0).as_any().downcast_ref()
    }
}

#[cfg(feature = "redis")]
impl AnyState {
    pub(crate) fn from_state<S: Clone + fmt::Debug + Send + Sync + 'static>(state: S) -> Self {
        Self(Box::new(state))
    }
}

/// [`Algorithm`] and [`Packing`] with the associated types erased. No method has a default, so an
/// implementation cannot leave one out.
trait DynAlgorithm: Any + fmt::Debug + Send + Sync {
    fn quota(&self) -> Quota;
    fn with_quota(&self, quota: Quota) -> Result<Arc<dyn DynAlgorithm>, ConfigError>;
    fn validate(&self) -> Result<(), ConfigError>;
    fn fresh(&self, now: Tick) -> AnyState;
    fn decide(&self, state: &mut AnyState, now: Tick, cost: u64) -> Decision;
    fn peek(&self, state: &AnyState, now: Tick, cost: u64) -> Decision;
    fn reserve(&self, state: &mut AnyState, now: Tick, cost: u64, max_wait: Duration) -> Decision;
    fn refund(&self, state: &mut AnyState, now: Tick, cost: Cost, why: GiveBack);
    fn charge(&self, state: &mut AnyState, now: Tick, cost: u64) -> Duration;
    fn rescale(&self, state: &mut AnyState, from: &dyn DynAlgorithm, now: Tick, inherit: Inherit);
    fn forgettable_at(&self, state: &AnyState) -> Tick;
    fn facts(&self) -> Facts;
    fn quotas(&self) -> Vec<Quota>;
    fn available(&self, state: &AnyState, now: Tick) -> u64;
    fn peek_reserve(&self, state: &AnyState, now: Tick, cost: u64, max_wait: Duration) -> Decision;
    fn ban(&self, state: &mut AnyState, now: Tick, length: Duration);
    fn is_blocked(&self, state: &AnyState, now: Tick) -> bool;
    #[cfg(feature = "cas")]
    fn with_share(&self, machines: u64) -> Result<Arc<dyn DynAlgorithm>, ConfigError>;
    #[cfg(feature = "cas")]
    fn charge_late(&self, state: &mut AnyState, taken: Taken, now: Tick, cost: u64);
    #[cfg(feature = "cas")]
    fn joined_moment(&self, first: Tick, cost: u64, second: Tick) -> Option<Tick>;
    #[cfg(feature = "cas")]
    fn summed_moment(&self, state: &AnyState, since: Tick, cost: u64) -> Option<SummedMoment>;
    #[cfg(feature = "cas")]
    fn cell_end(&self, state: &AnyState, now: Tick) -> Tick;
    fn heap_bytes(&self, state: &AnyState) -> usize;
    fn pack_into(&self, state: &AnyState, words: &mut [u64]) -> bool;
    fn unpack_from(&self, words: &[u64]) -> AnyState;
    fn rebased(&self, now: Tick) -> Arc<dyn DynAlgorithm>;
    fn raise_to_base(&self, state: &mut AnyState);
    #[cfg(feature = "cas")]
    fn settings_fields(&self, fields: &mut Fields<'_>) -> Arc<dyn DynAlgorithm>;
    #[cfg(feature = "cas")]
    fn state_fields(&self, state: &mut AnyState, fields: &mut Fields<'_>);
    fn as_any(&self) -> &dyn Any;
}

trait DynState: Any + fmt::Debug + Send + Sync {
    fn boxed_clone(&self) -> Box<dyn DynState>;
    fn as_any(&self) -> &dyn Any;
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

impl<S: Clone + fmt::Debug + Send + Sync + 'static> DynState for S {
    fn boxed_clone(&self) -> Box<dyn DynState> {
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
        // Deref first: the box itself implements `DynState` too and would be boxed again.
        Self((*self.0).boxed_clone())
    }
}

impl AnyState {
    fn fresh<A: Algorithm>(algorithm: &A, now: Tick) -> Self {
        Self(Box::new(algorithm.fresh(now)))
    }

    fn get<S: 'static>(&self) -> Option<&S> {
        (*self.0).as_any().downcast_ref()
    }

    /// The state of `algorithm`. A state of another kind, as after a change of algorithm, is
    /// replaced by a fresh one.
    fn get_mut<A: Algorithm>(&mut self, algorithm: &A, now: Tick) -> &mut A::State {
        if self.get::<A::State>().is_none() {
            *self = Self::fresh(algorithm, now);
        }
        (*self.0)
            .as_any_mut()
            .downcast_mut()
            .expect("a state of another kind was replaced above")
    }
}

impl<A: Algorithm> DynAlgorithm for A {
    fn quota(&self) -> Quota {
        Algorithm::quota(self)
    }

    fn with_quota(&self, quota: Quota) -> Result<Arc<dyn DynAlgorithm>, ConfigError> {
        Ok(Arc::new(Algorithm::with_quota(self, quota)?))
    }

    fn validate(&self) -> Result<(), ConfigError> {
        Algorithm::validate(self)
    }

    fn fresh(&self, now: Tick) -> AnyState {
        AnyState::fresh(self, now)
    }

    fn decide(&self, state: &mut AnyState, now: Tick, cost: u64) -> Decision {
        Algorithm::decide(self, state.get_mut(self, now), now, cost)
    }

    fn peek(&self, state: &AnyState, now: Tick, cost: u64) -> Decision {
        match state.get() {
            Some(state) => Algorithm::peek(self, state, now, cost),
            None => Algorithm::peek(self, &Algorithm::fresh(self, now), now, cost),
        }
    }

    fn reserve(&self, state: &mut AnyState, now: Tick, cost: u64, max_wait: Duration) -> Decision {
        Algorithm::reserve(self, state.get_mut(self, now), now, cost, max_wait)
    }

    fn refund(&self, state: &mut AnyState, now: Tick, cost: Cost, why: GiveBack) {
        Algorithm::refund(self, state.get_mut(self, now), now, cost, why);
    }

    fn charge(&self, state: &mut AnyState, now: Tick, cost: u64) -> Duration {
        Algorithm::charge(self, state.get_mut(self, now), now, cost)
    }

    fn rescale(&self, state: &mut AnyState, from: &dyn DynAlgorithm, now: Tick, inherit: Inherit) {
        match from.as_any().downcast_ref() {
            Some(from) => {
                Algorithm::rescale(self, state.get_mut(from, now), from, now, inherit);
            }
            None => *state = AnyState::fresh(self, now),
        }
    }

    fn forgettable_at(&self, state: &AnyState) -> Tick {
        state
            .get()
            .map_or(Tick::ZERO, |state| Algorithm::forgettable_at(self, state))
    }

    fn facts(&self) -> Facts {
        let facts = Algorithm::facts(self);
        Facts {
            max_heap_bytes: facts.max_heap_bytes.saturating_add(size_of::<A::State>()),
            ..facts
        }
    }

    fn quotas(&self) -> Vec<Quota> {
        A::Packing::quotas(self)
    }

    fn available(&self, state: &AnyState, now: Tick) -> u64 {
        match state.get() {
            Some(state) => A::Packing::available(self, state, now),
            None => A::Packing::available(self, &Algorithm::fresh(self, now), now),
        }
    }

    fn peek_reserve(&self, state: &AnyState, now: Tick, cost: u64, max_wait: Duration) -> Decision {
        let peek = |state| A::Packing::peek_reserve(self, state, now, cost, max_wait);
        match state.get() {
            Some(state) => peek(state),
            None => peek(&Algorithm::fresh(self, now)),
        }
    }

    fn ban(&self, state: &mut AnyState, now: Tick, length: Duration) {
        A::Packing::ban(self, state.get_mut(self, now), now, length);
    }

    fn is_blocked(&self, state: &AnyState, now: Tick) -> bool {
        state
            .get()
            .is_some_and(|state| A::Packing::is_blocked(self, state, now))
    }

    #[cfg(feature = "cas")]
    fn with_share(&self, machines: u64) -> Result<Arc<dyn DynAlgorithm>, ConfigError> {
        let mut share = self.clone();
        A::Packing::take_share(&mut share, machines)?;
        Ok(Arc::new(share))
    }

    #[cfg(feature = "cas")]
    fn charge_late(&self, state: &mut AnyState, taken: Taken, now: Tick, cost: u64) {
        A::Packing::charge_late(self, state.get_mut(self, now), taken, now, cost);
    }

    #[cfg(feature = "cas")]
    fn joined_moment(&self, first: Tick, cost: u64, second: Tick) -> Option<Tick> {
        A::Packing::joined_moment(self, first, cost, second)
    }

    #[cfg(feature = "cas")]
    fn summed_moment(&self, state: &AnyState, since: Tick, cost: u64) -> Option<SummedMoment> {
        A::Packing::summed_moment(self, state.get::<A::State>()?, since, cost)
    }

    #[cfg(feature = "cas")]
    fn cell_end(&self, state: &AnyState, now: Tick) -> Tick {
        state
            .get::<A::State>()
            .map_or(Tick::MAX, |state| A::Packing::cell_end(self, state, now))
    }

    fn heap_bytes(&self, state: &AnyState) -> usize {
        let state = state.get();
        size_of::<A::State>() + state.map_or(0, |state| A::Packing::heap_bytes(self, state))
    }

    fn pack_into(&self, state: &AnyState, words: &mut [u64]) -> bool {
        state
            .get()
            .is_some_and(|state| A::Packing::pack_into(self, state, words))
    }

    fn unpack_from(&self, words: &[u64]) -> AnyState {
        AnyState(Box::new(A::Packing::unpack_from(self, words)))
    }

    fn rebased(&self, now: Tick) -> Arc<dyn DynAlgorithm> {
        let mut rebased = self.clone();
        A::Packing::rebase(&mut rebased, now);
        Arc::new(rebased)
    }

    fn raise_to_base(&self, state: &mut AnyState) {
        if let Some(state) = (*state.0).as_any_mut().downcast_mut() {
            A::Packing::raise_to_base(self, state);
        }
    }

    #[cfg(feature = "cas")]
    fn settings_fields(&self, fields: &mut Fields<'_>) -> Arc<dyn DynAlgorithm> {
        let mut listed = self.clone();
        A::Packing::settings_fields(&mut listed, fields);
        Arc::new(listed)
    }

    #[cfg(feature = "cas")]
    fn state_fields(&self, state: &mut AnyState, fields: &mut Fields<'_>) {
        A::Packing::state_fields(self, state.get_mut(self, Tick::ZERO), fields);
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Algorithm for AnyAlgorithm {
    type State = AnyState;
    type Packing = Self;

    fn quota(&self) -> Quota {
        self.0.quota()
    }

    fn facts(&self) -> Facts {
        self.0.facts()
    }

    fn with_quota(&self, quota: Quota) -> Result<Self, ConfigError> {
        self.0.with_quota(quota).map(Self)
    }

    fn validate(&self) -> Result<(), ConfigError> {
        self.0.validate()
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

    fn refund(&self, state: &mut AnyState, now: Tick, cost: Cost, why: GiveBack) {
        self.0.refund(state, now, cost, why);
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
}

impl Sealed for AnyAlgorithm {}

impl Packing<Self> for AnyAlgorithm {
    const MAX_WORDS: usize = MAX_WORDS;

    #[cfg(feature = "cas")]
    const HAS_CELLS: bool = true;

    #[cfg(feature = "cas")]
    fn settings_fields(algorithm: &mut Self, fields: &mut Fields<'_>) {
        algorithm.0 = algorithm.0.settings_fields(fields);
    }

    #[cfg(feature = "cas")]
    fn state_fields(algorithm: &Self, state: &mut AnyState, fields: &mut Fields<'_>) {
        algorithm.0.state_fields(state, fields);
    }

    fn quotas(algorithm: &Self) -> Vec<Quota> {
        algorithm.0.quotas()
    }

    fn available(algorithm: &Self, state: &AnyState, now: Tick) -> u64 {
        algorithm.0.available(state, now)
    }

    fn peek_reserve(
        algorithm: &Self,
        state: &AnyState,
        now: Tick,
        cost: u64,
        max_wait: Duration,
    ) -> Decision {
        algorithm.0.peek_reserve(state, now, cost, max_wait)
    }

    fn ban(algorithm: &Self, state: &mut AnyState, now: Tick, length: Duration) {
        algorithm.0.ban(state, now, length);
    }

    fn is_blocked(algorithm: &Self, state: &AnyState, now: Tick) -> bool {
        algorithm.0.is_blocked(state, now)
    }

    #[cfg(feature = "cas")]
    fn take_share(algorithm: &mut Self, machines: u64) -> Result<(), ConfigError> {
        algorithm.0 = algorithm.0.with_share(machines)?;
        Ok(())
    }

    #[cfg(feature = "cas")]
    fn charge_late(algorithm: &Self, state: &mut AnyState, taken: Taken, now: Tick, cost: u64) {
        algorithm.0.charge_late(state, taken, now, cost);
    }

    #[cfg(feature = "cas")]
    fn joined_moment(algorithm: &Self, first: Tick, cost: u64, second: Tick) -> Option<Tick> {
        algorithm.0.joined_moment(first, cost, second)
    }

    #[cfg(feature = "cas")]
    fn summed_moment(
        algorithm: &Self,
        state: &AnyState,
        since: Tick,
        cost: u64,
    ) -> Option<SummedMoment> {
        algorithm.0.summed_moment(state, since, cost)
    }

    #[cfg(feature = "cas")]
    fn cell_end(algorithm: &Self, state: &AnyState, now: Tick) -> Tick {
        algorithm.0.cell_end(state, now)
    }

    fn heap_bytes(algorithm: &Self, state: &AnyState) -> usize {
        algorithm.0.heap_bytes(state)
    }

    fn pack_into(algorithm: &Self, state: &AnyState, words: &mut [u64]) -> bool {
        algorithm.0.pack_into(state, words)
    }

    fn unpack_from(algorithm: &Self, words: &[u64]) -> AnyState {
        algorithm.0.unpack_from(words)
    }

    fn rebase(algorithm: &mut Self, now: Tick) {
        algorithm.0 = algorithm.0.rebased(now);
    }

    fn raise_to_base(algorithm: &Self, state: &mut AnyState) {
        algorithm.0.raise_to_base(state);
    }
}
