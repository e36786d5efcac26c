//! Two limits of different kinds, as a tuple.

use std::time::Duration;

#[cfg(feature = "cas")]
use super::super::fields::Fields;
use super::super::math::MAX_WORDS;
use super::super::packing::Sealed;
#[cfg(feature = "cas")]
use super::super::summed::{SummedMoment, Taken};
use super::super::{Algorithm, Cost, Facts, GiveBack, Inherit, Packing};
use super::merge::{count_denial, look, merge, take, unsupported};
use crate::clock::Tick;
use crate::decision::Decision;
use crate::error::ConfigError;
use crate::quota::Quota;

/// The decision of both limits of `pair`, given that of each.
#[inline]
fn merged<A: Algorithm, B: Algorithm>(
    pair: &(A, B),
    first: Decision,
    mut second: Decision,
) -> Decision {
    second.policy += pair.0.facts().limits;
    merge(first, second)
}

#[inline]
fn look_at_both<A: Algorithm, B: Algorithm>(
    pair: &(A, B),
    state: &(A::State, B::State),
    now: Tick,
    cost: u64,
    wait: Option<Duration>,
) -> Decision {
    let first = look(&pair.0, &state.0, now, cost, wait);
    let second = look(&pair.1, &state.1, now, cost, wait);
    merged(pair, first, second)
}

/// Looks at both limits before any of them takes the cost.
#[inline]
fn take_both<A: Algorithm, B: Algorithm>(
    pair: &(A, B),
    state: &mut (A::State, B::State),
    now: Tick,
    cost: u64,
    wait: Option<Duration>,
) -> Decision {
    let looked = look_at_both(pair, state, now, cost, wait);
    if !looked.is_denied() {
        let first = take(&pair.0, &mut state.0, now, cost, wait);
        let second = take(&pair.1, &mut state.1, now, cost, wait);
        return merged(pair, first, second);
    }
    if !pair.facts().counts_denials {
        return looked;
    }
    count_denial(&pair.0, &mut state.0, now, cost, wait);
    count_denial(&pair.1, &mut state.1, now, cost, wait);
    look_at_both(pair, state, now, cost, wait)
}

/// Takes from both or from none.
impl<A: Algorithm, B: Algorithm> Algorithm for (A, B) {
    type State = (A::State, B::State);
    type Packing = Self;

    /// That of the first.
    fn quota(&self) -> Quota {
        self.0.quota()
    }

    #[inline]
    fn facts(&self) -> Facts {
        self.0.facts().and(self.1.facts())
    }

    fn with_quota(&self, _: Quota) -> Result<Self, ConfigError> {
        Err(unsupported())
    }

    fn validate(&self) -> Result<(), ConfigError> {
        self.0.validate()?;
        self.1.validate()
    }

    fn fresh(&self, now: Tick) -> Self::State {
        (self.0.fresh(now), self.1.fresh(now))
    }

    #[inline]
    fn decide(&self, state: &mut Self::State, now: Tick, cost: u64) -> Decision {
        take_both(self, state, now, cost, None)
    }

    #[inline]
    fn peek(&self, state: &Self::State, now: Tick, cost: u64) -> Decision {
        look_at_both(self, state, now, cost, None)
    }

    fn reserve(
        &self,
        state: &mut Self::State,
        now: Tick,
        cost: u64,
        max_wait: Duration,
    ) -> Decision {
        take_both(self, state, now, cost, Some(max_wait))
    }

    fn refund(&self, state: &mut Self::State, now: Tick, cost: Cost, why: GiveBack) {
        self.0.refund(&mut state.0, now, cost, why);
        self.1.refund(&mut state.1, now, cost, why);
    }

    fn charge(&self, state: &mut Self::State, now: Tick, cost: u64) -> Duration {
        let first = self.0.charge(&mut state.0, now, cost);
        first.max(self.1.charge(&mut state.1, now, cost))
    }

    fn rescale(&self, state: &mut Self::State, from: &Self, now: Tick, inherit: Inherit) {
        self.0.rescale(&mut state.0, &from.0, now, inherit);
        self.1.rescale(&mut state.1, &from.1, now, inherit);
    }

    fn forgettable_at(&self, state: &Self::State) -> Tick {
        let first = self.0.forgettable_at(&state.0);
        first.max(self.1.forgettable_at(&state.1))
    }
}

impl<A, B> Sealed for (A, B) {}

impl<A: Algorithm, B: Algorithm> Packing<Self> for (A, B) {
    const MAX_WORDS: usize = {
        let both = A::Packing::MAX_WORDS + B::Packing::MAX_WORDS;
        if both < MAX_WORDS { both } else { MAX_WORDS }
    };
    const MIN_WORDS: usize = A::Packing::MIN_WORDS + B::Packing::MIN_WORDS;

    #[cfg(feature = "cas")]
    const HAS_CELLS: bool = true;

    #[cfg(feature = "cas")]
    fn settings_fields(algorithm: &mut Self, fields: &mut Fields<'_>) {
        fields.tag(16);
        fields.tag(algorithm.facts().limits as u64);
        A::Packing::settings_fields(&mut algorithm.0, fields);
        B::Packing::settings_fields(&mut algorithm.1, fields);
    }

    #[cfg(feature = "cas")]
    fn state_fields(algorithm: &Self, state: &mut (A::State, B::State), fields: &mut Fields<'_>) {
        A::Packing::state_fields(&algorithm.0, &mut state.0, fields);
        B::Packing::state_fields(&algorithm.1, &mut state.1, fields);
    }

    fn quotas(algorithm: &Self) -> Vec<Quota> {
        let mut quotas = A::Packing::quotas(&algorithm.0);
        quotas.append(&mut B::Packing::quotas(&algorithm.1));
        quotas
    }

    fn available(algorithm: &Self, state: &(A::State, B::State), now: Tick) -> u64 {
        let first = A::Packing::available(&algorithm.0, &state.0, now);
        first.min(B::Packing::available(&algorithm.1, &state.1, now))
    }

    fn peek_reserve(
        algorithm: &Self,
        state: &(A::State, B::State),
        now: Tick,
        cost: u64,
        max_wait: Duration,
    ) -> Decision {
        look_at_both(algorithm, state, now, cost, Some(max_wait))
    }

    fn ban(algorithm: &Self, state: &mut (A::State, B::State), now: Tick, length: Duration) {
        A::Packing::ban(&algorithm.0, &mut state.0, now, length);
        B::Packing::ban(&algorithm.1, &mut state.1, now, length);
    }

    fn is_blocked(algorithm: &Self, state: &(A::State, B::State), now: Tick) -> bool {
        A::Packing::is_blocked(&algorithm.0, &state.0, now)
            || B::Packing::is_blocked(&algorithm.1, &state.1, now)
    }

    #[cfg(feature = "cas")]
    fn take_share(algorithm: &mut Self, machines: u64) -> Result<(), ConfigError> {
        A::Packing::take_share(&mut algorithm.0, machines)?;
        B::Packing::take_share(&mut algorithm.1, machines)
    }

    #[cfg(feature = "cas")]
    fn charge_late(
        algorithm: &Self,
        state: &mut (A::State, B::State),
        taken: Taken,
        now: Tick,
        cost: u64,
    ) {
        A::Packing::charge_late(&algorithm.0, &mut state.0, taken, now, cost);
        B::Packing::charge_late(&algorithm.1, &mut state.1, taken, now, cost);
    }

    #[cfg(feature = "cas")]
    fn joined_moment(algorithm: &Self, first: Tick, cost: u64, second: Tick) -> Option<Tick> {
        let joined = A::Packing::joined_moment(&algorithm.0, first, cost, second);
        joined.max(B::Packing::joined_moment(&algorithm.1, first, cost, second))
    }

    #[cfg(feature = "cas")]
    fn summed_moment(
        algorithm: &Self,
        state: &(A::State, B::State),
        since: Tick,
        cost: u64,
    ) -> Option<SummedMoment> {
        let first = A::Packing::summed_moment(&algorithm.0, &state.0, since, cost);
        let second = B::Packing::summed_moment(&algorithm.1, &state.1, since, cost);
        SummedMoment::of_both(first, second)
    }

    #[cfg(feature = "cas")]
    fn cell_end(algorithm: &Self, state: &(A::State, B::State), now: Tick) -> Tick {
        let first = A::Packing::cell_end(&algorithm.0, &state.0, now);
        first.min(B::Packing::cell_end(&algorithm.1, &state.1, now))
    }

    fn heap_bytes(algorithm: &Self, state: &(A::State, B::State)) -> usize {
        A::Packing::heap_bytes(&algorithm.0, &state.0)
            + B::Packing::heap_bytes(&algorithm.1, &state.1)
    }

    #[inline]
    fn pack_into(algorithm: &Self, state: &(A::State, B::State), words: &mut [u64]) -> bool {
        let Some((own, rest)) = words.split_at_mut_checked(algorithm.0.facts().words) else {
            return false;
        };
        let Some(rest) = rest.get_mut(..algorithm.1.facts().words) else {
            return false;
        };
        A::Packing::pack_into(&algorithm.0, &state.0, own)
            && B::Packing::pack_into(&algorithm.1, &state.1, rest)
    }

    #[inline]
    fn unpack_from(algorithm: &Self, words: &[u64]) -> (A::State, B::State) {
        let (own, rest) = words.split_at(algorithm.0.facts().words.min(words.len()));
        let rest = rest.get(..algorithm.1.facts().words).unwrap_or(rest);
        (
            A::Packing::unpack_from(&algorithm.0, own),
            B::Packing::unpack_from(&algorithm.1, rest),
        )
    }

    fn rebase(algorithm: &mut Self, now: Tick) {
        A::Packing::rebase(&mut algorithm.0, now);
        B::Packing::rebase(&mut algorithm.1, now);
    }

    fn raise_to_base(algorithm: &Self, state: &mut (A::State, B::State)) {
        A::Packing::raise_to_base(&algorithm.0, &mut state.0);
        B::Packing::raise_to_base(&algorithm.1, &mut state.1);
    }
}
