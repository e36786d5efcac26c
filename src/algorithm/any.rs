//! An algorithm chosen at run time.

use std::{any::Any, fmt, time::Duration};

use super::fields::Fields;
use super::{Algorithm, Capabilities, Cost, GiveBack, IntoAlgorithm, LineCosts, used_as};
use crate::clock::Tick;
use crate::decision::Decision;
use crate::error::ConfigError;
use crate::quota::Quota;

/// Any algorithm behind one type.
///
/// For policies from a configuration file, and for sets of different kinds whose number is not
/// known at compile time. Each state is boxed at its first use; if the kind is known at compile time, use the
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
#[derive(Debug)]
pub struct AnyAlgorithm(Box<dyn DynAlgorithm>);

/// The state of a key under an [`AnyAlgorithm`].
#[derive(Debug)]
pub struct AnyState {
    /// `None` of a key that was first seen at `since` and not used yet.
    used: Option<Box<dyn DynState>>,
    since: Tick,
}

impl AnyAlgorithm {
    /// The same algorithm, or the tuple of algorithms, of which only the type is forgotten.
    pub fn new(algorithm: impl IntoAlgorithm) -> Self {
        Self(Box::new(algorithm.into_algorithm()))
    }

    /// The algorithm in it, if it is of this type.
    ///
    /// ```
    /// use tower_throttle::{AnyAlgorithm, FixedWindow, Quota, TokenBucket};
    ///
    /// let any = AnyAlgorithm::new(FixedWindow::new(Quota::per_day(1)));
    /// assert!(any.get::<FixedWindow>().is_some() && any.get::<TokenBucket>().is_none());
    /// ```
    pub fn get<A: Algorithm>(&self) -> Option<&A> {
        self.0.as_any().downcast_ref()
    }

    #[inline]
    fn used<'s>(&self, state: &'s mut AnyState) -> &'s mut dyn DynState {
        let fresh = || self.0.fresh(state.since);
        &mut **state.used.get_or_insert_with(fresh)
    }

    fn look<T>(&self, state: &AnyState, look: impl FnOnce(&dyn DynState) -> T) -> T {
        match &state.used {
            Some(used) => look(&**used),
            None => look(&*self.0.fresh(state.since)),
        }
    }
}

impl Clone for AnyAlgorithm {
    fn clone(&self) -> Self {
        Self(self.0.boxed())
    }
}

impl Clone for AnyState {
    fn clone(&self) -> Self {
        Self {
            used: self.used.as_ref().map(|used| (**used).boxed()),
            since: self.since,
        }
    }
}

/// A state of any type.
pub(super) trait DynState: Any + fmt::Debug + Send + Sync {
    fn boxed(&self) -> Box<dyn DynState>;
    fn as_any(&self) -> &dyn Any;
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

impl<S: Clone + fmt::Debug + Send + Sync + 'static> DynState for S {
    fn boxed(&self) -> Box<dyn DynState> {
        Box::new(self.clone())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// What [`Algorithm::rescale`] makes of a state if the algorithm before was of the same type.
const OWN: &str = "a state is used by the algorithm that made it";

#[inline]
fn own<A: Algorithm>(state: &dyn DynState) -> &A::State {
    state.as_any().downcast_ref().expect(OWN)
}

#[inline]
fn own_mut<A: Algorithm>(state: &mut dyn DynState) -> &mut A::State {
    state.as_any_mut().downcast_mut().expect(OWN)
}

/// Lists the operations of an algorithm that are the same without its type: those on its settings, those that only look
/// at a state, and those that change it.
macro_rules! operations {
    (
        $(fn $ask:ident() -> $answer:ty;)*
        look: $(fn $look:ident($($given:ident: $kind:ty),*) -> $seen:ty;)*
        change: $(fn $change:ident($($with:ident: $type:ty),*) $(-> $result:ty)?;)*
    ) => {
        /// An algorithm of any type, whose states are of any type.
        pub(super) trait DynAlgorithm: Any + fmt::Debug + Send + Sync {
            fn boxed(&self) -> Box<dyn DynAlgorithm>;
            fn as_any(&self) -> &dyn Any;
            fn with_quota(&self, quota: Quota) -> Result<Box<dyn DynAlgorithm>, ConfigError>;
            fn fresh(&self, now: Tick) -> Box<dyn DynState>;
            /// Returns false if the other algorithm is of another type.
            fn rescale(&self, state: &mut dyn DynState, from: &dyn DynAlgorithm, now: Tick) -> bool;
            fn settings_fields(&mut self, fields: &mut Fields<'_>);
            $(fn $ask(&self) -> $answer;)*
            $(fn $look(&self, state: &dyn DynState, $($given: $kind),*) -> $seen;)*
            $(fn $change(&self, state: &mut dyn DynState, $($with: $type),*) $(-> $result)?;)*
        }

        impl<A: Algorithm> DynAlgorithm for A {
            fn boxed(&self) -> Box<dyn DynAlgorithm> {
                Box::new(self.clone())
            }

            fn as_any(&self) -> &dyn Any {
                self
            }

            fn with_quota(&self, quota: Quota) -> Result<Box<dyn DynAlgorithm>, ConfigError> {
                Ok(Box::new(Algorithm::with_quota(self, quota)?))
            }

            fn fresh(&self, now: Tick) -> Box<dyn DynState> {
                Box::new(Algorithm::fresh(self, now))
            }

            fn rescale(&self, state: &mut dyn DynState, from: &dyn DynAlgorithm, now: Tick) -> bool {
                let from = from.as_any().downcast_ref();
                from.map(|from| Algorithm::rescale(self, own_mut::<A>(state), from, now))
                    .is_some()
            }

            fn settings_fields(&mut self, fields: &mut Fields<'_>) {
                Algorithm::settings_fields(self, fields);
            }

            $(#[inline] fn $ask(&self) -> $answer {
                Algorithm::$ask(self)
            })*

            $(#[inline] fn $look(&self, state: &dyn DynState, $($given: $kind),*) -> $seen {
                Algorithm::$look(self, own::<A>(state), $($given),*)
            })*

            $(#[inline] fn $change(&self, state: &mut dyn DynState, $($with: $type),*) $(-> $result)? {
                Algorithm::$change(self, own_mut::<A>(state), $($with),*)
            })*
        }

        impl Algorithm for AnyAlgorithm {
            type State = AnyState;

            fn with_quota(&self, quota: Quota) -> Result<Self, ConfigError> {
                self.0.with_quota(quota).map(Self)
            }

            fn fresh(&self, now: Tick) -> AnyState {
                AnyState { used: None, since: now }
            }

            /// What was used under another kind of algorithm is charged to a fresh state.
            fn rescale(&self, state: &mut AnyState, from: &Self, now: Tick) {
                if !self.0.rescale(from.used(state), &*from.0, now) {
                    *state = used_as(self, Algorithm::units_used(from, state, now), now);
                }
            }

            fn settings_fields(&mut self, fields: &mut Fields<'_>) {
                self.0.settings_fields(fields);
            }

            $(fn $ask(&self) -> $answer {
                self.0.$ask()
            })*

            $(fn $look(&self, state: &AnyState, $($given: $kind),*) -> $seen {
                self.look(state, |state| self.0.$look(state, $($given),*))
            })*

            $(fn $change(&self, state: &mut AnyState, $($with: $type),*) $(-> $result)? {
                self.0.$change(self.used(state), $($with),*)
            })*
        }
    };
}

operations! {
    fn capabilities() -> Capabilities;
    fn quota() -> Quota;
    fn quotas() -> Vec<Quota>;
    fn validate() -> Result<(), ConfigError>;
    look:
    fn peek(now: Tick, cost: u64) -> Decision;
    fn peek_within(now: Tick, cost: u64, max_wait: Duration) -> Decision;
    fn expected_wait(at: Tick, costs: LineCosts) -> Option<[Duration; 2]>;
    fn units_used(now: Tick) -> u64;
    fn forgettable_at() -> Tick;
    change:
    fn decide(now: Tick, cost: u64) -> Decision;
    fn take_turn(at: Tick, cost: u64) -> Decision;
    fn refund(now: Tick, cost: Cost, why: GiveBack);
    fn charge(now: Tick, cost: u64) -> Duration;
    fn begin_with(now: Tick, used: u64);
    fn state_fields(fields: &mut Fields<'_>);
}
