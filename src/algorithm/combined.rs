//! Several limits at once: all of them admit, or nothing is taken.

mod parts;
#[cfg(all(test, not(tower_throttle_loom)))]
mod tests;

pub use self::parts::Parts;
pub(crate) use self::parts::merge;

use std::time::Duration;

use self::parts::{AnyPart, Each};
use super::fields::Fields;
use super::{Algorithm, Capabilities, Cost, GiveBack, LineCosts};
use crate::clock::Tick;
use crate::decision::Decision;
use crate::error::ConfigError;
use crate::quota::Quota;

/// Several limits at once: a list of one kind, or a tuple of different kinds.
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
/// assert!(limiter.check(10).is_admitted());
///
/// // Different kinds, a tuple of two to four:
/// let both = (TokenBucket::new(Quota::per_second(10)), SlidingLog::new(Quota::per_minute(20)));
/// let limiter = Limiter::new(both);
/// assert_eq!(limiter.check(1).limit, 10);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct All<P> {
    parts: P,
}

impl<A: Algorithm> All<Vec<A>> {
    /// All of `parts`. An empty list admits everything.
    pub fn new(parts: impl IntoIterator<Item = A>) -> Self {
        Self {
            parts: parts.into_iter().collect(),
        }
    }
}

impl<P> All<P> {
    /// The parts, in order.
    pub const fn parts(&self) -> &P {
        &self.parts
    }
}

/// Takes from all parts or from none.
impl<P: Each> Algorithm for All<P> {
    type State = P::State;

    /// That of the first part.
    fn quota(&self) -> Quota {
        let first = self.parts.all().next();
        first.map_or(Quota::per_second(1), AnyPart::quota)
    }

    #[inline]
    fn capabilities(&self) -> Capabilities {
        let parts = self.parts.all().map(AnyPart::capabilities);
        parts.fold(Capabilities::NO_LIMIT, Capabilities::and)
    }

    fn validate(&self) -> Result<(), ConfigError> {
        self.parts.all().try_for_each(AnyPart::validate)
    }

    fn fresh(&self, now: Tick) -> P::State {
        self.parts.fresh(now)
    }

    /// Looks at every part before any of them takes the cost.
    #[inline]
    fn decide(&self, state: &mut P::State, now: Tick, cost: u64) -> Decision {
        let looked = self.peek(state, now, cost);
        if !looked.is_denied() {
            let each = self.parts.each_mut(state);
            return self
                .parts
                .merged(each.map(|(part, state)| part.decide(state, now, cost)));
        }
        if !self.capabilities().counts_denials {
            return looked;
        }
        for (part, state) in self.parts.each_mut(state) {
            // One that would admit it takes nothing.
            if part.capabilities().counts_denials && part.peek(state, now, cost).is_denied() {
                let _ = part.decide(state, now, cost);
            }
        }
        self.peek(state, now, cost)
    }

    #[inline]
    fn peek(&self, state: &P::State, now: Tick, cost: u64) -> Decision {
        let each = self.parts.each(state);
        self.parts
            .merged(each.map(|(part, state)| part.peek(state, now, cost)))
    }

    fn take_turn(&self, state: &mut P::State, at: Tick, cost: u64) -> Decision {
        let looked = self.peek(state, at, cost);
        if looked.is_denied() {
            return looked;
        }
        let each = self.parts.each_mut(state);
        self.parts
            .merged(each.map(|(part, state)| part.take_turn(state, at, cost)))
    }

    /// While a request waits for one limit, periods of another that it waits for may pass unused.
    fn expected_wait(&self, state: &P::State, at: Tick, costs: LineCosts) -> Option<[Duration; 2]> {
        let mut waits = [Duration::ZERO; 2];
        for (part, state) in self.parts.each(state) {
            let [least, most] = part.expected_wait(state, at, costs)?;
            waits[0] = waits[0].max(least);
            if !most.is_zero() {
                let limits = part.quotas().into_iter().map(|quota| quota.limit());
                let ahead = costs.ahead.saturating_add(2 * limits.max()?);
                let are_equal = false;
                let more = LineCosts {
                    ahead,
                    are_equal,
                    ..costs
                };
                let [_, most] = part.expected_wait(state, at, more)?;
                waits[1] = waits[1].saturating_add(most);
            }
        }
        Some(waits)
    }

    fn refund(&self, state: &mut P::State, now: Tick, cost: Cost, why: GiveBack) {
        for (part, state) in self.parts.each_mut(state) {
            part.refund(state, now, cost, why);
        }
    }

    fn charge(&self, state: &mut P::State, now: Tick, cost: u64) -> Duration {
        let each = self.parts.each_mut(state);
        let owed = each.map(|(part, state)| part.charge(state, now, cost));
        owed.max().unwrap_or_default()
    }

    fn units_used(&self, state: &P::State, now: Tick) -> u64 {
        let used = self.parts.each(state);
        let used = used.map(|(part, state)| part.units_used(state, now));
        used.max().unwrap_or_default()
    }

    fn begin_with(&self, state: &mut P::State, now: Tick, used: u64) {
        for (part, state) in self.parts.each_mut(state) {
            part.begin_with(state, now, used);
        }
    }

    /// Parts are matched by position. The states of additional parts are fresh.
    fn rescale(&self, state: &mut P::State, from: &Self, now: Tick) {
        for ((part, state), from) in self.parts.each_mut(state).zip(from.parts.all()) {
            part.rescale(state, from, now);
        }
        self.parts.complete(state, now);
    }

    fn forgettable_at(&self, state: &P::State) -> Tick {
        let each = self.parts.each(state);
        let moments = each.map(|(part, state)| part.forgettable_at(state));
        moments.max().unwrap_or(Tick::ZERO)
    }

    fn quotas(&self) -> Vec<Quota> {
        self.parts.all().flat_map(AnyPart::quotas).collect()
    }

    fn peek_within(&self, state: &P::State, now: Tick, cost: u64, max_wait: Duration) -> Decision {
        let each = self.parts.each(state);
        self.parts
            .merged(each.map(|(part, state)| part.peek_within(state, now, cost, max_wait)))
    }

    fn settings_fields(&mut self, fields: &mut Fields<'_>) {
        fields.tag(16);
        fields.tag(self.capabilities().limits as u64);
        for part in self.parts.all_mut() {
            part.settings_fields(fields);
        }
    }

    fn state_fields(&self, state: &mut P::State, fields: &mut Fields<'_>) {
        for (part, state) in self.parts.each_mut(state) {
            part.state_fields(state, fields);
        }
    }
}

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
