//! Several limits at once: all of them admit, or nothing is taken.

use std::time::Duration;

use super::{Algorithm, Inherit};
use crate::clock::Tick;
use crate::decision::{Decision, Verdict};
use crate::error::ConfigError;
use crate::quota::Quota;

/// Several limits of one kind at once; for different kinds a tuple does the same.
///
/// A request passes if every part lets it pass, and only then does any of them count it: a request
/// that the daily limit turns away does not use up the one per second. Where parts make it wait, it
/// waits for the longest.
///
/// The decision reports the tightest part: the smallest `remaining`, the longest `retry_after` and
/// `reset_after`, and in `policy` the position of the part that binds.
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
    /// All of `parts`. Without any part everything is admitted.
    pub fn new(parts: impl IntoIterator<Item = A>) -> Self {
        Self {
            parts: parts.into_iter().collect(),
        }
    }

    /// The parts, in order.
    pub fn parts(&self) -> &[A] {
        &self.parts
    }

    /// What the parts say together about their states.
    fn combine<S>(
        &self,
        states: impl IntoIterator<Item = S>,
        mut decide: impl FnMut(&A, S) -> Decision,
    ) -> Decision {
        let mut before = 0;
        let mut parts = self.parts.iter().zip(states).map(|(part, state)| {
            let mut decision = decide(part, state);
            decision.policy += before;
            before += part.limits();
            decision
        });
        match parts.next() {
            Some(first) => parts.fold(first, both),
            None => Decision::new(Verdict::Admit, u64::MAX, u64::MAX, None, 0),
        }
    }
}

/// What two limits say together.
#[inline]
fn both(first: Decision, second: Decision) -> Decision {
    let (mut binding, other) = if is_stricter(&second, &first) {
        (second, first)
    } else {
        (first, second)
    };
    binding = binding.with_remaining(binding.remaining().min(other.remaining()));
    binding.reset_after = binding.reset_after.max(other.reset_after);
    if !binding.is_denied() {
        let wait = binding.wait().max(other.wait()).unwrap_or_default();
        if !wait.is_zero() {
            binding.verdict = Verdict::Wait(wait);
        }
    }
    binding
}

/// Whether `a` is further from admitting than `b`; what stands first binds among equals.
fn is_stricter(a: &Decision, b: &Decision) -> bool {
    match (a.is_denied(), b.is_denied()) {
        (true, true) => match (a.retry_after, b.retry_after) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(a), Some(b)) => a > b,
        },
        (false, false) => a.remaining() < b.remaining(),
        (a_denied, _) => a_denied,
    }
}

fn unsupported() -> ConfigError {
    ConfigError::Unsupported {
        what: "one quota for a set of several limits",
        instead: "set a new algorithm with set_algorithm",
    }
}

impl<A: Algorithm> Algorithm for All<A> {
    type State = Vec<A::State>;

    /// The first part's.
    fn quota(&self) -> Quota {
        match self.parts.first() {
            Some(part) => part.quota(),
            None => Quota::per_second(1),
        }
    }

    fn quotas(&self) -> Vec<Quota> {
        self.parts.iter().flat_map(Algorithm::quotas).collect()
    }

    fn with_quota(&self, quota: Quota) -> Result<Self, ConfigError> {
        match &*self.parts {
            [part] => Ok(Self::new([part.with_quota(quota)?])),
            _ => Err(unsupported()),
        }
    }

    fn fresh(&self, now: Tick) -> Self::State {
        self.parts.iter().map(|part| part.fresh(now)).collect()
    }

    fn decide(&self, state: &mut Self::State, now: Tick, cost: u64) -> Decision {
        let looked = self.peek(state, now, cost);
        if looked.is_denied() {
            return looked;
        }
        self.combine(state, |part, state| part.decide(state, now, cost))
    }

    fn peek(&self, state: &Self::State, now: Tick, cost: u64) -> Decision {
        self.combine(state, |part, state| part.peek(state, now, cost))
    }

    fn reserve(
        &self,
        state: &mut Self::State,
        now: Tick,
        cost: u64,
        max_wait: Duration,
    ) -> Decision {
        let mut copy = state.clone();
        let decision = self.combine(&mut copy, |part, state| {
            part.reserve(state, now, cost, max_wait)
        });
        if decision.is_denied() {
            return decision.with_figures_of(&self.peek(state, now, 0));
        }
        *state = copy;
        decision
    }

    fn refund(&self, state: &mut Self::State, now: Tick, cost: u64) {
        for (part, state) in self.parts.iter().zip(state) {
            part.refund(state, now, cost);
        }
    }

    fn charge(&self, state: &mut Self::State, now: Tick, cost: u64) -> Duration {
        self.parts
            .iter()
            .zip(state)
            .map(|(part, state)| part.charge(state, now, cost))
            .max()
            .unwrap_or_default()
    }

    fn rescale(&self, state: &mut Self::State, from: &Self, now: Tick, inherit: Inherit) {
        let kept = state.len();
        state.truncate(self.parts.len());
        for ((part, state), from) in self.parts.iter().zip(&mut *state).zip(&from.parts) {
            part.rescale(state, from, now, inherit);
        }
        for part in self.parts.iter().skip(kept) {
            state.push(part.fresh(now));
        }
    }

    fn forgettable_at(&self, state: &Self::State) -> Tick {
        self.parts
            .iter()
            .zip(state)
            .map(|(part, state)| part.forgettable_at(state))
            .max()
            .unwrap_or(Tick::ZERO)
    }

    fn keeps_line(&self) -> bool {
        self.parts.iter().all(Algorithm::keeps_line)
    }

    fn limits(&self) -> usize {
        self.parts.iter().map(Algorithm::limits).sum()
    }

    fn held_bytes(&self, state: &Self::State) -> usize {
        let own = state.capacity() * size_of::<A::State>();
        let parts = self.parts.iter().zip(state);
        own + parts
            .map(|(part, state)| part.held_bytes(state))
            .sum::<usize>()
    }

    fn max_heap_bytes(&self) -> usize {
        let own = self.parts.len() * size_of::<A::State>();
        let parts = self.parts.iter().map(Algorithm::max_heap_bytes);
        parts.fold(own, usize::saturating_add)
    }

    fn words(&self) -> usize {
        self.parts.iter().map(Algorithm::words).sum()
    }

    fn pack_into(&self, state: &Self::State, mut words: &mut [u64]) -> bool {
        for (part, state) in self.parts.iter().zip(state) {
            let Some((own, rest)) = words.split_at_mut_checked(part.words()) else {
                return false;
            };
            if !part.pack_into(state, own) {
                return false;
            }
            words = rest;
        }
        // As many states as parts, or unpacking would make some up.
        !self.parts.is_empty() && state.len() == self.parts.len()
    }

    fn unpack_from(&self, mut words: &[u64]) -> Self::State {
        self.parts
            .iter()
            .map(|part| {
                let (own, rest) = words.split_at(part.words().min(words.len()));
                words = rest;
                part.unpack_from(own)
            })
            .collect()
    }
}

/// What the two limits of a pair say together.
#[inline]
fn together<A: Algorithm, B>(pair: &(A, B), first: Decision, mut second: Decision) -> Decision {
    second.policy += pair.0.limits();
    both(first, second)
}

/// Both, or nothing is taken.
impl<A: Algorithm, B: Algorithm> Algorithm for (A, B) {
    type State = (A::State, B::State);

    /// The first part's.
    fn quota(&self) -> Quota {
        self.0.quota()
    }

    fn quotas(&self) -> Vec<Quota> {
        [self.0.quotas(), self.1.quotas()].concat()
    }

    fn with_quota(&self, _quota: Quota) -> Result<Self, ConfigError> {
        Err(unsupported())
    }

    fn fresh(&self, now: Tick) -> Self::State {
        (self.0.fresh(now), self.1.fresh(now))
    }

    #[inline]
    fn decide(&self, state: &mut Self::State, now: Tick, cost: u64) -> Decision {
        let looked = self.peek(state, now, cost);
        if looked.is_denied() {
            return looked;
        }
        together(
            self,
            self.0.decide(&mut state.0, now, cost),
            self.1.decide(&mut state.1, now, cost),
        )
    }

    #[inline]
    fn peek(&self, state: &Self::State, now: Tick, cost: u64) -> Decision {
        together(
            self,
            self.0.peek(&state.0, now, cost),
            self.1.peek(&state.1, now, cost),
        )
    }

    fn reserve(
        &self,
        state: &mut Self::State,
        now: Tick,
        cost: u64,
        max_wait: Duration,
    ) -> Decision {
        let mut copy = state.clone();
        let decision = together(
            self,
            self.0.reserve(&mut copy.0, now, cost, max_wait),
            self.1.reserve(&mut copy.1, now, cost, max_wait),
        );
        if decision.is_denied() {
            return decision.with_figures_of(&self.peek(state, now, 0));
        }
        *state = copy;
        decision
    }

    fn refund(&self, state: &mut Self::State, now: Tick, cost: u64) {
        self.0.refund(&mut state.0, now, cost);
        self.1.refund(&mut state.1, now, cost);
    }

    fn charge(&self, state: &mut Self::State, now: Tick, cost: u64) -> Duration {
        self.0
            .charge(&mut state.0, now, cost)
            .max(self.1.charge(&mut state.1, now, cost))
    }

    fn rescale(&self, state: &mut Self::State, from: &Self, now: Tick, inherit: Inherit) {
        self.0.rescale(&mut state.0, &from.0, now, inherit);
        self.1.rescale(&mut state.1, &from.1, now, inherit);
    }

    fn forgettable_at(&self, state: &Self::State) -> Tick {
        self.0
            .forgettable_at(&state.0)
            .max(self.1.forgettable_at(&state.1))
    }

    fn keeps_line(&self) -> bool {
        self.0.keeps_line() && self.1.keeps_line()
    }

    fn limits(&self) -> usize {
        self.0.limits() + self.1.limits()
    }

    fn held_bytes(&self, state: &Self::State) -> usize {
        self.0.held_bytes(&state.0) + self.1.held_bytes(&state.1)
    }

    fn max_heap_bytes(&self) -> usize {
        let (first, second) = (self.0.max_heap_bytes(), self.1.max_heap_bytes());
        first.saturating_add(second)
    }

    #[inline]
    fn words(&self) -> usize {
        self.0.words() + self.1.words()
    }

    #[inline]
    fn pack_into(&self, state: &Self::State, words: &mut [u64]) -> bool {
        let Some((first, second)) = words.split_at_mut_checked(self.0.words()) else {
            return false;
        };
        self.0.pack_into(&state.0, first) && self.1.pack_into(&state.1, second)
    }

    #[inline]
    fn unpack_from(&self, words: &[u64]) -> Self::State {
        let (first, second) = words.split_at(self.0.words().min(words.len()));
        (self.0.unpack_from(first), self.1.unpack_from(second))
    }
}

/// What a limiter can be made from: an algorithm, or a tuple of two to four of them.
///
/// ```
/// use tower_throttle::{FixedWindow, LeakyBucket, Limiter, Quota, TokenBucket};
///
/// let limiter = Limiter::new((
///     TokenBucket::new(Quota::per_second(10)),
///     LeakyBucket::new(Quota::per_minute(100)),
///     FixedWindow::new(Quota::per_day(1_000)),
/// ));
/// assert_eq!(limiter.check().remaining(), 9);
/// ```
pub trait IntoAlgorithm {
    /// The algorithm it becomes.
    type Algorithm: Algorithm;

    /// The algorithm itself, or pairs of pairs for a longer tuple.
    fn into_algorithm(self) -> Self::Algorithm;
}

impl<A: Algorithm> IntoAlgorithm for A {
    type Algorithm = A;

    fn into_algorithm(self) -> A {
        self
    }
}

impl<A: Algorithm, B: Algorithm, C: Algorithm> IntoAlgorithm for (A, B, C) {
    type Algorithm = ((A, B), C);

    fn into_algorithm(self) -> Self::Algorithm {
        ((self.0, self.1), self.2)
    }
}

impl<A: Algorithm, B: Algorithm, C: Algorithm, D: Algorithm> IntoAlgorithm for (A, B, C, D) {
    type Algorithm = ((A, B), (C, D));

    fn into_algorithm(self) -> Self::Algorithm {
        ((self.0, self.1), (self.2, self.3))
    }
}
