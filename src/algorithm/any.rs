//! An algorithm chosen at run time.

use std::{any::Any, borrow::Cow, fmt, time::Duration};

#[cfg(feature = "governor")]
use super::Gcra;
use super::fields::Fields;
use super::{
    Algorithm, All, CalendarWindow, Capabilities, Cost, DenialLockout, FixedWindow, GiveBack,
    LeakyBucket, Lockout, Report, SlidingGrid, SlidingLog, SlidingWindow, TokenBucket, WarmUp,
};
use crate::clock::Tick;
use crate::decision::Decision;
use crate::error::ConfigError;
use crate::quota::Quota;

/// Any algorithm of this crate behind one type.
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
/// assert_eq!(limiter.check(1).remaining(), 1);
/// # Ok::<(), tower_throttle::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant is the algorithm of its name")]
pub enum AnyAlgorithm {
    FixedWindow(FixedWindow),
    CalendarWindow(CalendarWindow),
    SlidingLog(SlidingLog),
    SlidingWindow(SlidingWindow),
    SlidingGrid(SlidingGrid),
    TokenBucket(TokenBucket),
    LeakyBucket(LeakyBucket),
    WarmUp(WarmUp),
    #[cfg(feature = "governor")]
    Gcra(Gcra),
    Lockout(Lockout),
    /// A tuple too.
    All(All<Self>),
    DenialLockout(Box<DenialLockout<Self>>),
}

/// Evaluates `$value` for the algorithm in `$any`, whatever its kind. `$as` is `as_ref` or `as_mut`.
macro_rules! with_kind {
    ($any:expr, $as:ident, $algorithm:ident => $value:expr) => {
        match $any {
            AnyAlgorithm::FixedWindow($algorithm) => $value,
            AnyAlgorithm::CalendarWindow($algorithm) => $value,
            AnyAlgorithm::SlidingLog($algorithm) => $value,
            AnyAlgorithm::SlidingWindow($algorithm) => $value,
            AnyAlgorithm::SlidingGrid($algorithm) => $value,
            AnyAlgorithm::TokenBucket($algorithm) => $value,
            AnyAlgorithm::LeakyBucket($algorithm) => $value,
            AnyAlgorithm::WarmUp($algorithm) => $value,
            #[cfg(feature = "governor")]
            AnyAlgorithm::Gcra($algorithm) => $value,
            AnyAlgorithm::Lockout($algorithm) => $value,
            AnyAlgorithm::All($algorithm) => $value,
            AnyAlgorithm::DenialLockout(boxed) => {
                let $algorithm = boxed.$as();
                $value
            }
        }
    };
}

/// One conversion per type: a generic one would overlap `From<T> for T`.
macro_rules! from_kinds {
    ($($kind:ident)*) => {$(
        impl From<$kind> for AnyAlgorithm {
            fn from(algorithm: $kind) -> Self {
                Self::$kind(algorithm)
            }
        }
    )*};
}

from_kinds!(FixedWindow CalendarWindow SlidingLog SlidingWindow SlidingGrid TokenBucket LeakyBucket WarmUp Lockout);
#[cfg(feature = "governor")]
from_kinds!(Gcra);

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

/// The state of a key under an [`AnyAlgorithm`].
#[derive(Debug)]
pub struct AnyState(Box<dyn DynState>);

impl AnyAlgorithm {
    /// The same algorithm, of which only the kind is forgotten.
    pub fn new(algorithm: impl Into<Self>) -> Self {
        algorithm.into()
    }

    /// The algorithm in it, if it is of the type of `like`.
    fn of_type<A: Algorithm>(&self, _like: &A) -> Option<&A> {
        with_kind!(self, as_ref, algorithm => (algorithm as &dyn Any).downcast_ref())
    }
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
    /// The state of `algorithm`, or a fresh one if this one is of another kind.
    fn of<A: Algorithm>(&self, algorithm: &A, now: Tick) -> Cow<'_, A::State> {
        let fresh = || Cow::Owned(algorithm.fresh(now));
        self.get().map_or_else(fresh, Cow::Borrowed)
    }

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

impl Algorithm for AnyAlgorithm {
    type State = AnyState;

    fn quota(&self) -> Quota {
        with_kind!(self, as_ref, algorithm => algorithm.quota())
    }

    fn capabilities(&self) -> Capabilities {
        fn boxed<A: Algorithm>(algorithm: &A) -> Capabilities {
            let facts = algorithm.capabilities();
            Capabilities {
                max_heap_bytes: facts.max_heap_bytes.saturating_add(size_of::<A::State>()),
                ..facts
            }
        }
        with_kind!(self, as_ref, algorithm => boxed(algorithm))
    }

    fn with_quota(&self, quota: Quota) -> Result<Self, ConfigError> {
        with_kind!(self, as_ref, algorithm => algorithm.with_quota(quota).map(Self::from))
    }

    fn validate(&self) -> Result<(), ConfigError> {
        with_kind!(self, as_ref, algorithm => algorithm.validate())
    }

    fn fresh(&self, now: Tick) -> AnyState {
        with_kind!(self, as_ref, algorithm => AnyState::fresh(algorithm, now))
    }

    fn decide(&self, state: &mut AnyState, now: Tick, cost: u64) -> Decision {
        with_kind!(self, as_ref, algorithm => {
            algorithm.decide(state.get_mut(algorithm, now), now, cost)
        })
    }

    fn peek(&self, state: &AnyState, now: Tick, cost: u64) -> Decision {
        with_kind!(self, as_ref, algorithm => {
            algorithm.peek(&state.of(algorithm, now), now, cost)
        })
    }

    fn take_turn(&self, state: &mut AnyState, at: Tick, cost: u64) -> Decision {
        with_kind!(self, as_ref, algorithm => {
            algorithm.take_turn(state.get_mut(algorithm, at), at, cost)
        })
    }

    fn expected_wait(&self, state: &AnyState, at: Tick, ahead: u64, cost: u64) -> Option<Duration> {
        with_kind!(self, as_ref, algorithm => {
            algorithm.expected_wait(&state.of(algorithm, at), at, ahead, cost)
        })
    }

    fn refund(&self, state: &mut AnyState, now: Tick, cost: Cost, why: GiveBack) {
        with_kind!(self, as_ref, algorithm => {
            algorithm.refund(state.get_mut(algorithm, now), now, cost, why);
        });
    }

    fn charge(&self, state: &mut AnyState, now: Tick, cost: u64) -> Duration {
        with_kind!(self, as_ref, algorithm => {
            algorithm.charge(state.get_mut(algorithm, now), now, cost)
        })
    }

    fn rescale(&self, state: &mut AnyState, from: &Self, now: Tick) {
        with_kind!(self, as_ref, algorithm => match from.of_type(algorithm) {
            Some(from) => algorithm.rescale(state.get_mut(from, now), from, now),
            None => *state = AnyState::fresh(algorithm, now),
        });
    }

    fn forgettable_at(&self, state: &AnyState) -> Tick {
        with_kind!(self, as_ref, algorithm => {
            state.get().map_or(Tick::ZERO, |state| algorithm.forgettable_at(state))
        })
    }

    fn quotas(&self) -> Vec<Quota> {
        with_kind!(self, as_ref, algorithm => algorithm.quotas())
    }

    fn peek_part(&self, state: &AnyState, now: Tick, cost: u64, part: usize) -> Decision {
        with_kind!(self, as_ref, algorithm => {
            algorithm.peek_part(&state.of(algorithm, now), now, cost, part)
        })
    }

    fn peek_within(&self, state: &AnyState, now: Tick, cost: u64, max_wait: Duration) -> Decision {
        with_kind!(self, as_ref, algorithm => {
            algorithm.peek_within(&state.of(algorithm, now), now, cost, max_wait)
        })
    }

    fn ban(&self, state: &mut AnyState, now: Tick, length: Duration) {
        with_kind!(self, as_ref, algorithm => {
            algorithm.ban(state.get_mut(algorithm, now), now, length);
        });
    }

    fn report(&self, state: &AnyState, now: Tick) -> Report {
        fn boxed<A: Algorithm>(algorithm: &A, state: &AnyState, now: Tick) -> Report {
            let mut report = algorithm.report(&state.of(algorithm, now), now);
            report.heap_bytes += size_of::<A::State>();
            report
        }
        with_kind!(self, as_ref, algorithm => boxed(algorithm, state, now))
    }

    fn settings_fields(&mut self, fields: &mut Fields<'_>) {
        with_kind!(self, as_mut, algorithm => algorithm.settings_fields(fields));
    }

    fn state_fields(&self, state: &mut AnyState, fields: &mut Fields<'_>) {
        with_kind!(self, as_ref, algorithm => {
            algorithm.state_fields(state.get_mut(algorithm, Tick::ZERO), fields);
        });
    }
}
