//! A list of limits of one kind.

use std::time::Duration;

use super::super::fields::Fields;
use super::super::{Algorithm, Capabilities, Cost, GiveBack, Report};
use super::merge::{count_denial, look, merge};
use crate::clock::Tick;
use crate::decision::{Decision, Verdict};
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
/// assert!(limiter.check(10).is_admitted());
///
/// // Different kinds, a tuple of two to four:
/// let both = (TokenBucket::new(Quota::per_second(10)), SlidingLog::new(Quota::per_minute(20)));
/// let limiter = Limiter::new(both);
/// assert_eq!(limiter.check(1).limit, 10);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct All<A> {
    parts: Vec<A>,
}

impl<A> All<A> {
    pub(in crate::algorithm) fn map<B>(self, each: impl FnMut(A) -> B) -> All<B> {
        All {
            parts: self.parts.into_iter().map(each).collect(),
        }
    }
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

    /// Each part with its state.
    fn each<'a>(&'a self, states: &'a [A::State]) -> impl Iterator<Item = (&'a A, &'a A::State)> {
        self.parts.iter().zip(states)
    }

    fn each_mut<'a>(
        &'a self,
        states: &'a mut [A::State],
    ) -> impl Iterator<Item = (&'a A, &'a mut A::State)> {
        self.parts.iter().zip(states)
    }

    /// The decision of all parts, given that of each. Without any part everything is admitted.
    #[inline]
    fn merged(&self, decisions: impl Iterator<Item = Decision>) -> Decision {
        let mut limits = 0;
        let numbered = self
            .parts
            .iter()
            .zip(decisions)
            .map(|(part, mut decision)| {
                decision.policy += limits;
                limits += part.capabilities().limits;
                decision
            });
        let nothing = || Decision::new(Verdict::Admit, u64::MAX, u64::MAX, None, 0);
        numbered.reduce(merge).unwrap_or_else(nothing)
    }

    fn look(&self, states: &[A::State], now: Tick, cost: u64, wait: Option<Duration>) -> Decision {
        let each = self.each(states);
        self.merged(each.map(|(part, state)| look(part, state, now, cost, wait)))
    }

    /// Whether there is a state for each part.
    fn is_complete(&self, states: &[A::State]) -> bool {
        !self.parts.is_empty() && states.len() == self.parts.len()
    }
}

/// Takes from all parts or from none.
impl<A: Algorithm> Algorithm for All<A> {
    type State = Vec<A::State>;

    /// That of the first part.
    fn quota(&self) -> Quota {
        match self.parts.first() {
            Some(part) => part.quota(),
            None => Quota::per_second(1),
        }
    }

    #[inline]
    fn capabilities(&self) -> Capabilities {
        let parts = self.parts.iter().map(A::capabilities);
        let facts = parts.fold(Capabilities::NO_LIMIT, Capabilities::and);
        let list = self.parts.len() * size_of::<A::State>();
        Capabilities {
            max_heap_bytes: facts.max_heap_bytes.saturating_add(list),
            ..facts
        }
    }

    fn validate(&self) -> Result<(), ConfigError> {
        self.parts.iter().try_for_each(A::validate)
    }

    fn fresh(&self, now: Tick) -> Vec<A::State> {
        self.parts.iter().map(|part| part.fresh(now)).collect()
    }

    /// Looks at every part before any of them takes the cost.
    fn decide(&self, state: &mut Vec<A::State>, now: Tick, cost: u64) -> Decision {
        let looked = self.peek(state, now, cost);
        if !looked.is_denied() {
            let each = self.each_mut(state);
            return self.merged(each.map(|(part, state)| part.decide(state, now, cost)));
        }
        if !self.capabilities().counts_denials {
            return looked;
        }
        for (part, state) in self.each_mut(state) {
            count_denial(part, state, now, cost);
        }
        self.peek(state, now, cost)
    }

    fn peek(&self, state: &Vec<A::State>, now: Tick, cost: u64) -> Decision {
        self.look(state, now, cost, None)
    }

    fn take_turn(&self, state: &mut Vec<A::State>, at: Tick, cost: u64) -> Decision {
        let looked = self.peek(state, at, cost).without_wait();
        if looked.is_denied() {
            return looked;
        }
        let each = self.each_mut(state);
        self.merged(each.map(|(part, state)| part.take_turn(state, at, cost)))
    }

    fn expected_wait(
        &self,
        state: &Vec<A::State>,
        at: Tick,
        ahead: u64,
        cost: u64,
    ) -> Option<Duration> {
        let each = self.each(state);
        let waits = each.map(|(part, state)| part.expected_wait(state, at, ahead, cost));
        waits.reduce(|one, other| Some(one?.max(other?))).flatten()
    }

    fn refund(&self, state: &mut Vec<A::State>, now: Tick, cost: Cost, why: GiveBack) {
        for (part, state) in self.each_mut(state) {
            part.refund(state, now, cost, why);
        }
    }

    fn charge(&self, state: &mut Vec<A::State>, now: Tick, cost: u64) -> Duration {
        let each = self.each_mut(state);
        let owed = each.map(|(part, state)| part.charge(state, now, cost));
        owed.max().unwrap_or_default()
    }

    /// Parts are matched by position. The states of additional parts are fresh.
    fn rescale(&self, state: &mut Vec<A::State>, from: &Self, now: Tick) {
        let kept = state.len();
        state.truncate(self.parts.len());
        for ((part, state), from) in self.each_mut(state).zip(&from.parts) {
            part.rescale(state, from, now);
        }
        let added = self.parts.iter().skip(kept);
        state.extend(added.map(|part| part.fresh(now)));
    }

    fn forgettable_at(&self, state: &Vec<A::State>) -> Tick {
        let each = self.each(state);
        let moments = each.map(|(part, state)| part.forgettable_at(state));
        moments.max().unwrap_or(Tick::ZERO)
    }

    fn quotas(&self) -> Vec<Quota> {
        self.parts.iter().flat_map(A::quotas).collect()
    }

    fn peek_part(&self, state: &Vec<A::State>, now: Tick, cost: u64, part: usize) -> Decision {
        let mut before = 0;
        for (own, state) in self.each(state) {
            let limits = own.capabilities().limits;
            if part < before + limits {
                let mut decision = A::peek_part(own, state, now, cost, part - before);
                decision.policy += before;
                return decision;
            }
            before += limits;
        }
        self.peek(state, now, cost)
    }

    fn peek_within(
        &self,
        state: &Vec<A::State>,
        now: Tick,
        cost: u64,
        max_wait: Duration,
    ) -> Decision {
        self.look(state, now, cost, Some(max_wait))
    }

    fn ban(&self, state: &mut Vec<A::State>, now: Tick, length: Duration) {
        for (part, state) in self.each_mut(state) {
            A::ban(part, state, now, length);
        }
    }

    fn report(&self, state: &Vec<A::State>, now: Tick) -> Report {
        let list = Report {
            available: u64::MAX,
            is_blocked: false,
            heap_bytes: state.capacity() * size_of::<A::State>(),
        };
        let each = self.each(state);
        let reports = each.map(|(part, state)| A::report(part, state, now));
        reports.fold(list, Report::and)
    }

    fn settings_fields(&mut self, fields: &mut Fields<'_>) {
        fields.tag(16);
        fields.tag(self.capabilities().limits as u64);
        for part in &mut self.parts {
            A::settings_fields(part, fields);
        }
    }

    fn state_fields(&self, state: &mut Vec<A::State>, fields: &mut Fields<'_>) {
        fields.require(self.capabilities().limits == 0 || self.is_complete(state));
        for (part, state) in self.each_mut(state) {
            A::state_fields(part, state, fields);
        }
    }
}
