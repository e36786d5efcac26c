//! Two limits of different kinds, as a tuple.

use std::time::Duration;

use super::super::fields::Fields;
use super::super::{Algorithm, Capabilities, Cost, GiveBack, Report};
use super::merge::{count_denial, look, merge};
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
    second.policy += pair.0.capabilities().limits;
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

/// Takes from both or from none.
impl<A: Algorithm, B: Algorithm> Algorithm for (A, B) {
    type State = (A::State, B::State);

    /// That of the first.
    fn quota(&self) -> Quota {
        self.0.quota()
    }

    #[inline]
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities().and(self.1.capabilities())
    }

    fn validate(&self) -> Result<(), ConfigError> {
        self.0.validate()?;
        self.1.validate()
    }

    fn fresh(&self, now: Tick) -> Self::State {
        (self.0.fresh(now), self.1.fresh(now))
    }

    /// Looks at both limits before any of them takes the cost.
    #[inline]
    fn decide(&self, state: &mut Self::State, now: Tick, cost: u64) -> Decision {
        let looked = self.peek(state, now, cost);
        if !looked.is_denied() {
            let first = self.0.decide(&mut state.0, now, cost);
            return merged(self, first, self.1.decide(&mut state.1, now, cost));
        }
        if !self.capabilities().counts_denials {
            return looked;
        }
        count_denial(&self.0, &mut state.0, now, cost);
        count_denial(&self.1, &mut state.1, now, cost);
        self.peek(state, now, cost)
    }

    #[inline]
    fn peek(&self, state: &Self::State, now: Tick, cost: u64) -> Decision {
        look_at_both(self, state, now, cost, None)
    }

    fn take_turn(&self, state: &mut Self::State, at: Tick, cost: u64) -> Decision {
        let looked = self.peek(state, at, cost).without_wait();
        if looked.is_denied() {
            return looked;
        }
        let first = self.0.take_turn(&mut state.0, at, cost);
        merged(self, first, self.1.take_turn(&mut state.1, at, cost))
    }

    fn expected_wait(
        &self,
        state: &Self::State,
        at: Tick,
        ahead: u64,
        cost: u64,
    ) -> Option<Duration> {
        let first = self.0.expected_wait(&state.0, at, ahead, cost)?;
        Some(first.max(self.1.expected_wait(&state.1, at, ahead, cost)?))
    }

    fn refund(&self, state: &mut Self::State, now: Tick, cost: Cost, why: GiveBack) {
        self.0.refund(&mut state.0, now, cost, why);
        self.1.refund(&mut state.1, now, cost, why);
    }

    fn charge(&self, state: &mut Self::State, now: Tick, cost: u64) -> Duration {
        let first = self.0.charge(&mut state.0, now, cost);
        first.max(self.1.charge(&mut state.1, now, cost))
    }

    fn rescale(&self, state: &mut Self::State, from: &Self, now: Tick) {
        self.0.rescale(&mut state.0, &from.0, now);
        self.1.rescale(&mut state.1, &from.1, now);
    }

    fn forgettable_at(&self, state: &Self::State) -> Tick {
        let first = self.0.forgettable_at(&state.0);
        first.max(self.1.forgettable_at(&state.1))
    }

    fn quotas(&self) -> Vec<Quota> {
        let mut quotas = A::quotas(&self.0);
        quotas.append(&mut B::quotas(&self.1));
        quotas
    }

    fn peek_part(&self, state: &Self::State, now: Tick, cost: u64, part: usize) -> Decision {
        let firsts = self.0.capabilities().limits;
        if part < firsts {
            return A::peek_part(&self.0, &state.0, now, cost, part);
        }
        let mut decision = B::peek_part(&self.1, &state.1, now, cost, part - firsts);
        decision.policy += firsts;
        decision
    }

    fn peek_within(
        &self,
        state: &(A::State, B::State),
        now: Tick,
        cost: u64,
        max_wait: Duration,
    ) -> Decision {
        look_at_both(self, state, now, cost, Some(max_wait))
    }

    fn ban(&self, state: &mut (A::State, B::State), now: Tick, length: Duration) {
        A::ban(&self.0, &mut state.0, now, length);
        B::ban(&self.1, &mut state.1, now, length);
    }

    fn report(&self, state: &(A::State, B::State), now: Tick) -> Report {
        A::report(&self.0, &state.0, now).and(B::report(&self.1, &state.1, now))
    }

    fn settings_fields(&mut self, fields: &mut Fields<'_>) {
        fields.tag(16);
        fields.tag(self.capabilities().limits as u64);
        A::settings_fields(&mut self.0, fields);
        B::settings_fields(&mut self.1, fields);
    }

    fn state_fields(&self, state: &mut (A::State, B::State), fields: &mut Fields<'_>) {
        A::state_fields(&self.0, &mut state.0, fields);
        B::state_fields(&self.1, &mut state.1, fields);
    }
}
