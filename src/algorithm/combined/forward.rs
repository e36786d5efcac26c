//! Implements [`Algorithm`] and [`Packing`] for all types with [`Parts`].
//!
//! Every method forwards to every part. `tests/algorithms/composition.rs` checks that no method is
//! left to its default.

use std::time::Duration;

#[cfg(feature = "cas")]
use super::super::fields::Fields;
use super::super::packing::Sealed;
#[cfg(feature = "cas")]
use super::super::summed::{SummedMoment, Taken};
use super::super::{Algorithm, Facts, Inherit, Packing};
use super::merge::Merge;
#[cfg(feature = "cas")]
use super::parts::VisitPart;
use super::parts::{MakeState, Parts, VisitPartMut, VisitState, VisitStateMut};
use super::questions::{FactsOf, FirstQuota, Quotas, Validate};
use crate::clock::Tick;
use crate::decision::Decision;
use crate::error::ConfigError;
use crate::quota::Quota;

/// Takes from all parts or from none.
#[diagnostic::do_not_recommend]
impl<P: Parts> Algorithm for P {
    type State = P::States;
    type Packing = P;

    /// The quota of the first part.
    fn quota(&self) -> Quota {
        let mut first = FirstQuota(None);
        self.each(&mut first);
        match first.0 {
            Some(quota) => quota,
            None => Quota::per_second(1),
        }
    }

    #[inline]
    fn facts(&self) -> Facts {
        let mut facts = FactsOf(Facts::NO_LIMIT);
        self.each(&mut facts);
        Facts {
            max_heap_bytes: facts
                .0
                .max_heap_bytes
                .saturating_add(self.own_max_heap_bytes()),
            ..facts.0
        }
    }

    fn with_quota(&self, quota: Quota) -> Result<Self, ConfigError> {
        self.with_single_quota(quota)
    }

    fn validate(&self) -> Result<(), ConfigError> {
        let mut validate = Validate(Ok(()));
        self.each(&mut validate);
        validate.0
    }

    fn fresh(&self, now: Tick) -> Self::State {
        self.make(&mut Fresh(now))
    }

    /// Peeks at every part before any of them takes the cost.
    #[inline]
    fn decide(&self, state: &mut Self::State, now: Tick, cost: u64) -> Decision {
        let looked = self.peek(state, now, cost);
        if looked.is_denied() {
            if self.facts().counts_denials {
                self.each_state_mut(state, &mut CountDenial(now, cost));
                return self.peek(state, now, cost);
            }
            return looked;
        }
        let mut decide = Decide(Merge::default(), now, cost);
        self.each_state_mut(state, &mut decide);
        decide.0.finish()
    }

    #[inline]
    fn peek(&self, state: &Self::State, now: Tick, cost: u64) -> Decision {
        let mut peek = Peek(Merge::default(), now, cost);
        self.each_state(state, &mut peek);
        peek.0.finish()
    }

    /// Peeks at every part before any of them takes the cost.
    fn reserve(
        &self,
        state: &mut Self::State,
        now: Tick,
        cost: u64,
        max_wait: Duration,
    ) -> Decision {
        let looked = P::peek_reserve(self, state, now, cost, max_wait);
        if looked.is_denied() {
            if self.facts().counts_denials {
                self.each_state_mut(state, &mut CountReserveDenial(now, cost, max_wait));
                return P::peek_reserve(self, state, now, cost, max_wait);
            }
            return looked;
        }
        let mut reserve = Reserve(Merge::default(), now, cost, max_wait);
        self.each_state_mut(state, &mut reserve);
        reserve.0.finish()
    }

    fn refund(&self, state: &mut Self::State, taken_at: Tick, now: Tick, cost: u64) {
        self.each_state_mut(state, &mut Refund(taken_at, now, cost));
    }

    fn charge(&self, state: &mut Self::State, now: Tick, cost: u64) -> Duration {
        let mut charge = Charge(Duration::ZERO, now, cost);
        self.each_state_mut(state, &mut charge);
        charge.0
    }

    fn rescale(&self, state: &mut Self::State, from: &Self, now: Tick, inherit: Inherit) {
        self.rescale_each(state, from, now, inherit);
    }

    fn forgettable_at(&self, state: &Self::State) -> Tick {
        let mut latest = ForgettableAt(Tick::ZERO);
        self.each_state(state, &mut latest);
        latest.0
    }
}

impl<P: Parts> Sealed for P {}

impl<P: Parts> Packing<P> for P {
    const MAX_WORDS: usize = P::MAX_WORDS;
    const MIN_WORDS: usize = P::MIN_WORDS;

    #[cfg(feature = "cas")]
    const HAS_CELLS: bool = true;

    #[cfg(feature = "cas")]
    fn settings_fields(algorithm: &mut P, fields: &mut Fields<'_>) {
        fields.tag(16);
        fields.tag(algorithm.facts().limits as u64);
        algorithm.each_mut(&mut SettingsFields(fields));
    }

    #[cfg(feature = "cas")]
    fn state_fields(algorithm: &P, state: &mut P::States, fields: &mut Fields<'_>) {
        fields.require(algorithm.facts().limits == 0 || algorithm.is_complete(state));
        algorithm.each_state_mut(state, &mut StateFields(fields));
    }

    fn quotas(algorithm: &P) -> Vec<Quota> {
        let mut quotas = Quotas(Vec::new());
        algorithm.each(&mut quotas);
        quotas.0
    }

    fn available(algorithm: &P, state: &P::States, now: Tick) -> u64 {
        let mut least = Available(u64::MAX, now);
        algorithm.each_state(state, &mut least);
        least.0
    }

    fn peek_reserve(
        algorithm: &P,
        state: &P::States,
        now: Tick,
        cost: u64,
        max_wait: Duration,
    ) -> Decision {
        let mut peek = PeekReserve(Merge::default(), now, cost, max_wait);
        algorithm.each_state(state, &mut peek);
        peek.0.finish()
    }

    fn cancel(algorithm: &P, state: &mut P::States, taken_at: Tick, now: Tick, cost: u64) {
        algorithm.each_state_mut(state, &mut Cancel(taken_at, now, cost));
    }

    fn forgive(algorithm: &P, state: &mut P::States, taken_at: Tick, now: Tick, cost: u64) {
        algorithm.each_state_mut(state, &mut Forgive(taken_at, now, cost));
    }

    fn ban(algorithm: &P, state: &mut P::States, now: Tick, length: Duration) {
        algorithm.each_state_mut(state, &mut Ban(now, length));
    }

    fn is_blocked(algorithm: &P, state: &P::States, now: Tick) -> bool {
        let mut any = IsBlocked(false, now);
        algorithm.each_state(state, &mut any);
        any.0
    }

    #[cfg(feature = "cas")]
    fn take_share(algorithm: &mut P, machines: u64) -> Result<(), ConfigError> {
        let mut share = TakeShare(machines, Ok(()));
        algorithm.each_mut(&mut share);
        share.1
    }

    #[cfg(feature = "cas")]
    fn charge_late(algorithm: &P, state: &mut P::States, taken: Taken, now: Tick, cost: u64) {
        algorithm.each_state_mut(state, &mut ChargeLate(taken, now, cost));
    }

    #[cfg(feature = "cas")]
    fn joined_moment(algorithm: &P, first: Tick, cost: u64, second: Tick) -> Option<Tick> {
        let mut latest = JoinedMoment(None, first, cost, second);
        algorithm.each(&mut latest);
        latest.0
    }

    #[cfg(feature = "cas")]
    fn summed_moment(
        algorithm: &P,
        state: &P::States,
        since: Tick,
        cost: u64,
    ) -> Option<SummedMoment> {
        let mut moment = MomentOfAll(None, since, cost);
        algorithm.each_state(state, &mut moment);
        moment.0
    }

    #[cfg(feature = "cas")]
    fn cell_end(algorithm: &P, state: &P::States, now: Tick) -> Tick {
        let mut earliest = CellEnd(Tick::MAX, now);
        algorithm.each_state(state, &mut earliest);
        earliest.0
    }

    fn heap_bytes(algorithm: &P, state: &P::States) -> usize {
        let mut bytes = HeapBytes(algorithm.own_heap_bytes(state));
        algorithm.each_state(state, &mut bytes);
        bytes.0
    }

    #[inline]
    fn pack_into(algorithm: &P, state: &P::States, words: &mut [u64]) -> bool {
        let mut pack = PackInto(words, algorithm.is_complete(state));
        algorithm.each_state(state, &mut pack);
        pack.1
    }

    #[inline]
    fn unpack_from(algorithm: &P, words: &[u64]) -> P::States {
        algorithm.make(&mut UnpackFrom(words))
    }

    fn rebase(algorithm: &mut P, now: Tick) {
        algorithm.each_mut(&mut Rebase(now));
    }

    fn raise_to_base(algorithm: &P, state: &mut P::States) {
        algorithm.each_state_mut(state, &mut RaiseToBase);
    }
}

struct Rebase(Tick);

impl VisitPartMut for Rebase {
    fn visit<A: Algorithm>(&mut self, part: &mut A) {
        A::Packing::rebase(part, self.0);
    }
}

struct RaiseToBase;

impl VisitStateMut for RaiseToBase {
    fn visit<A: Algorithm>(&mut self, part: &A, state: &mut A::State) {
        A::Packing::raise_to_base(part, state);
    }
}

struct Peek(Merge, Tick, u64);

impl VisitState for Peek {
    #[inline]
    fn visit<A: Algorithm>(&mut self, part: &A, state: &A::State) {
        let Self(merge, now, cost) = self;
        merge.add(part.peek(state, *now, *cost), part.facts().limits);
    }
}

struct PeekReserve(Merge, Tick, u64, Duration);

impl VisitState for PeekReserve {
    fn visit<A: Algorithm>(&mut self, part: &A, state: &A::State) {
        let Self(merge, now, cost, max_wait) = self;
        let decision = A::Packing::peek_reserve(part, state, *now, *cost, *max_wait);
        merge.add(decision, part.facts().limits);
    }
}

struct Available(u64, Tick);

impl VisitState for Available {
    fn visit<A: Algorithm>(&mut self, part: &A, state: &A::State) {
        self.0 = self.0.min(A::Packing::available(part, state, self.1));
    }
}

struct ForgettableAt(Tick);

impl VisitState for ForgettableAt {
    fn visit<A: Algorithm>(&mut self, part: &A, state: &A::State) {
        self.0 = self.0.max(part.forgettable_at(state));
    }
}

struct IsBlocked(bool, Tick);

impl VisitState for IsBlocked {
    fn visit<A: Algorithm>(&mut self, part: &A, state: &A::State) {
        self.0 |= A::Packing::is_blocked(part, state, self.1);
    }
}

struct HeapBytes(usize);

impl VisitState for HeapBytes {
    fn visit<A: Algorithm>(&mut self, part: &A, state: &A::State) {
        self.0 += A::Packing::heap_bytes(part, state);
    }
}

/// The words that are still free, and whether every state so far has packed.
struct PackInto<'a>(&'a mut [u64], bool);

impl VisitState for PackInto<'_> {
    #[inline]
    fn visit<A: Algorithm>(&mut self, part: &A, state: &A::State) {
        let words = std::mem::take(&mut self.0);
        match words.split_at_mut_checked(part.facts().words) {
            Some((own, rest)) if self.1 => {
                self.1 = A::Packing::pack_into(part, state, own);
                self.0 = rest;
            }
            _ => self.1 = false,
        }
    }
}

struct Decide(Merge, Tick, u64);

impl VisitStateMut for Decide {
    #[inline]
    fn visit<A: Algorithm>(&mut self, part: &A, state: &mut A::State) {
        let Self(merge, now, cost) = self;
        let decision = part.decide(state, *now, *cost);
        merge.add(decision, part.facts().limits);
    }
}

struct Reserve(Merge, Tick, u64, Duration);

impl VisitStateMut for Reserve {
    fn visit<A: Algorithm>(&mut self, part: &A, state: &mut A::State) {
        let Self(merge, now, cost, max_wait) = self;
        let decision = part.reserve(state, *now, *cost, *max_wait);
        merge.add(decision, part.facts().limits);
    }
}

/// Lets each part that denies the cost count that. A part that would admit it takes nothing.
struct CountDenial(Tick, u64);

impl VisitStateMut for CountDenial {
    fn visit<A: Algorithm>(&mut self, part: &A, state: &mut A::State) {
        let Self(now, cost) = *self;
        if part.facts().counts_denials && part.peek(state, now, cost).is_denied() {
            let _ = part.decide(state, now, cost);
        }
    }
}

struct CountReserveDenial(Tick, u64, Duration);

impl VisitStateMut for CountReserveDenial {
    fn visit<A: Algorithm>(&mut self, part: &A, state: &mut A::State) {
        let Self(now, cost, max_wait) = *self;
        if part.facts().counts_denials
            && A::Packing::peek_reserve(part, state, now, cost, max_wait).is_denied()
        {
            let _ = part.reserve(state, now, cost, max_wait);
        }
    }
}

struct Refund(Tick, Tick, u64);

impl VisitStateMut for Refund {
    fn visit<A: Algorithm>(&mut self, part: &A, state: &mut A::State) {
        part.refund(state, self.0, self.1, self.2);
    }
}

struct Cancel(Tick, Tick, u64);

impl VisitStateMut for Cancel {
    fn visit<A: Algorithm>(&mut self, part: &A, state: &mut A::State) {
        A::Packing::cancel(part, state, self.0, self.1, self.2);
    }
}

struct Forgive(Tick, Tick, u64);

impl VisitStateMut for Forgive {
    fn visit<A: Algorithm>(&mut self, part: &A, state: &mut A::State) {
        A::Packing::forgive(part, state, self.0, self.1, self.2);
    }
}

struct Ban(Tick, Duration);

impl VisitStateMut for Ban {
    fn visit<A: Algorithm>(&mut self, part: &A, state: &mut A::State) {
        A::Packing::ban(part, state, self.0, self.1);
    }
}

#[cfg(feature = "cas")]
struct TakeShare(u64, Result<(), ConfigError>);

#[cfg(feature = "cas")]
impl VisitPartMut for TakeShare {
    fn visit<A: Algorithm>(&mut self, part: &mut A) {
        if self.1.is_ok() {
            self.1 = A::Packing::take_share(part, self.0);
        }
    }
}

#[cfg(feature = "cas")]
struct ChargeLate(Taken, Tick, u64);

#[cfg(feature = "cas")]
impl VisitStateMut for ChargeLate {
    fn visit<A: Algorithm>(&mut self, part: &A, state: &mut A::State) {
        A::Packing::charge_late(part, state, self.0, self.1, self.2);
    }
}

#[cfg(feature = "cas")]
struct JoinedMoment(Option<Tick>, Tick, u64, Tick);

#[cfg(feature = "cas")]
impl VisitPart for JoinedMoment {
    fn visit<A: Algorithm>(&mut self, part: &A) {
        let joined = A::Packing::joined_moment(part, self.1, self.2, self.3);
        self.0 = self.0.max(joined);
    }
}

#[cfg(feature = "cas")]
struct MomentOfAll(Option<SummedMoment>, Tick, u64);

#[cfg(feature = "cas")]
impl VisitState for MomentOfAll {
    fn visit<A: Algorithm>(&mut self, part: &A, state: &A::State) {
        let moment = A::Packing::summed_moment(part, state, self.1, self.2);
        self.0 = match (self.0, moment) {
            (Some(others), Some(own)) => Some(others.and(own)),
            (others, own) => others.or(own),
        };
    }
}

#[cfg(feature = "cas")]
struct CellEnd(Tick, Tick);

#[cfg(feature = "cas")]
impl VisitState for CellEnd {
    fn visit<A: Algorithm>(&mut self, part: &A, state: &A::State) {
        self.0 = self.0.min(A::Packing::cell_end(part, state, self.1));
    }
}

struct Charge(Duration, Tick, u64);

impl VisitStateMut for Charge {
    fn visit<A: Algorithm>(&mut self, part: &A, state: &mut A::State) {
        self.0 = self.0.max(part.charge(state, self.1, self.2));
    }
}

#[cfg(feature = "cas")]
struct SettingsFields<'a, 'b>(&'a mut Fields<'b>);

#[cfg(feature = "cas")]
impl VisitPartMut for SettingsFields<'_, '_> {
    fn visit<A: Algorithm>(&mut self, part: &mut A) {
        A::Packing::settings_fields(part, self.0);
    }
}

#[cfg(feature = "cas")]
struct StateFields<'a, 'b>(&'a mut Fields<'b>);

#[cfg(feature = "cas")]
impl VisitStateMut for StateFields<'_, '_> {
    fn visit<A: Algorithm>(&mut self, part: &A, state: &mut A::State) {
        A::Packing::state_fields(part, state, self.0);
    }
}

struct Fresh(Tick);

impl MakeState for Fresh {
    fn make<A: Algorithm>(&mut self, part: &A) -> A::State {
        part.fresh(self.0)
    }
}

/// The words that are not unpacked yet.
struct UnpackFrom<'a>(&'a [u64]);

impl MakeState for UnpackFrom<'_> {
    #[inline]
    fn make<A: Algorithm>(&mut self, part: &A) -> A::State {
        let count = part.facts().words.min(self.0.len());
        let (own, rest) = self.0.split_at(count);
        self.0 = rest;
        A::Packing::unpack_from(part, own)
    }
}
