//! A limit that lends units of the time to come.

use std::time::Duration;

use super::fields::Fields;
use super::{Algorithm, Cost, Facts, GiveBack, IntoAlgorithm, Portable, Report};
use crate::clock::{Tick, nanos};
use crate::decision::{Decision, Verdict};
use crate::error::ConfigError;
use crate::quota::Quota;

/// Another limit, which lends up to so many units of the time to come to important requests: they wait
/// until the units are theirs, and go on, where others are denied.
///
/// ```text
/// 3 per window, lends 2    |window            |window            |
/// ordinary requests         r  r  r  r  r      r     r
///                           ✓  ✓  ✓  ✗  ✗      ✓     ✗
/// important requests                  i  i     :
///                                     wait ────✓✓
/// ```
///
/// - A request borrows if the layer [lends to it](crate::RateLimitLayer::lend_to) and the limit would deny
///   it. It goes on at the first moment at which the limit would admit it after those that borrowed before.
/// - What was lent counts from that moment on. So at no time are more admitted than by the limit alone.
/// - While units are lent, new requests come after those that borrowed: ordinary ones are denied, and their
///   `retry_after` is the moment at which they would be admitted.
/// - A request that leaves before its turn gives its units back. The turns of others stay.
///
/// The limit should have no queue of its own, and must not [count denials](crate::Lockout::after_denials_of).
/// [`acquire`](crate::Limiter::acquire) borrows too.
///
/// It works alone, in this process and in [`Cas`](crate::store::cas::Cas), also with a Redis server as its
/// store; in a tuple with other limits nothing is lent.
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::algorithm::{Algorithm, Lending};
/// use tower_throttle::{FixedWindow, Quota, clock::Tick};
///
/// let limit = Lending::new(FixedWindow::new(Quota::per_second(3)), 2);
/// let at = |ms: u64| Tick::from_nanos(ms * 1_000_000);
/// let mut state = limit.fresh(at(0));
/// assert!(limit.decide(&mut state, at(0), 3).is_admitted());
///
/// // One of the units of the next second, which begins in 400 ms.
/// let borrowed = limit.reserve(&mut state, at(600), 1, Duration::MAX);
/// assert_eq!(borrowed.wait(), Some(Duration::from_millis(400)));
/// assert!(limit.decide(&mut state, at(700), 1).is_denied());
/// assert_eq!(limit.peek(&state, at(1_000), 0).remaining(), 2);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lending<A> {
    limit: A,
    units: u64,
    max_wait: u64,
}

/// The state of a key under a [`Lending`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LendingState<S> {
    limit: S,
    /// What was lent and does not count yet: from when on it does, the earliest first, and how much.
    lent: Vec<(Tick, u64)>,
}

impl<A> Lending<A> {
    /// `limit`, which lends at most `units` at a time to the requests of a key.
    ///
    /// ```
    /// use axum::{Router, extract::Request, routing::get};
    /// use tower_throttle::algorithm::Lending;
    /// use tower_throttle::{FixedWindow, Global, Quota, RateLimitLayer, key::Priority};
    ///
    /// let limit = Lending::new(FixedWindow::new(Quota::per_second(100)), 20);
    /// let priority = |req: &Request| match req.uri().path() {
    ///     "/checkout" => Priority::HIGH,
    ///     _ => Priority::MEDIUM,
    /// };
    /// let layer = RateLimitLayer::new(Global, limit).priority(priority).lend_to(Priority::HIGH);
    /// let app: Router = Router::new().route("/", get(|| async {})).layer(layer);
    /// ```
    pub fn new<L: IntoAlgorithm<Algorithm = A>>(limit: L, units: u64) -> Self {
        Self {
            limit: limit.into_algorithm(),
            units,
            max_wait: u64::MAX,
        }
    }

    /// Lends nothing to a request that would wait longer than this.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::{FixedWindow, Quota, algorithm::Lending};
    ///
    /// let window = FixedWindow::new(Quota::per_minute(1_000));
    /// let limit = Lending::new(window, 50).max_wait(Duration::from_secs(2));
    /// # let _ = limit;
    /// ```
    #[must_use]
    pub fn max_wait(mut self, max_wait: Duration) -> Self {
        self.max_wait = nanos(max_wait);
        self
    }
}

impl<A: Algorithm> Lending<A> {
    /// Counts what was lent until `now`.
    fn settle(&self, state: &mut LendingState<A::State>, now: Tick) {
        let due = state.lent.iter().take_while(|(at, _)| *at <= now).count();
        for (at, units) in state.lent.drain(..due) {
            self.limit.charge(&mut state.limit, at, units);
        }
    }

    /// The state after all that was lent, and the moment of the last of it, or `now`.
    fn after_loans(&self, state: &LendingState<A::State>, now: Tick) -> (A::State, Tick) {
        let mut after = state.limit.clone();
        let mut last = now;
        for (at, units) in &state.lent {
            self.limit.charge(&mut after, *at, *units);
            last = last.max(*at);
        }
        (after, last)
    }

    /// The denial of a request that comes after all that was lent, and when it would be admitted.
    fn denied(
        &self,
        state: &LendingState<A::State>,
        now: Tick,
        cost: u64,
    ) -> (Decision, Option<Tick>) {
        /// A `retry_after` is exact, unless two limits deny in turn.
        const TRIES: u32 = 8;
        let (after, last) = self.after_loans(state, now);
        let (mut at, mut turn) = (last, None);
        let mut looked = self.limit.peek(&after, at, cost);
        for _ in 0..TRIES {
            if !looked.is_denied() {
                turn = Some(at);
                break;
            }
            let Some(retry) = looked.retry_after else {
                break;
            };
            at = at.plus(retry.max(Duration::from_nanos(1)));
            looked = self.limit.peek(&after, at, cost);
        }
        let unused = self.limit.peek(&after, last, 0).reset_after;
        let mut denied = looked.with_remaining(0);
        denied.verdict = Verdict::Deny;
        denied.retry_after = turn.map(|turn| turn.since(now));
        denied.reset_after = last.plus(unused).since(now);
        if cost == 0 {
            (denied.verdict, denied.retry_after) = (Verdict::Admit, None);
        }
        (denied, turn)
    }
}

impl<A: Algorithm> Algorithm for Lending<A> {
    type State = LendingState<A::State>;

    /// That of the limit that lends.
    fn quota(&self) -> Quota {
        self.limit.quota()
    }

    fn facts(&self) -> Facts {
        let limit = self.limit.facts();
        let most = usize::try_from(self.units).unwrap_or(usize::MAX);
        let loans = most
            .checked_next_power_of_two()
            .unwrap_or(usize::MAX)
            .max(4)
            .saturating_mul(size_of::<(Tick, u64)>());
        Facts {
            waiting: limit.waiting.max(1),
            replans_line: false,
            lends: true,
            max_heap_bytes: limit.max_heap_bytes.saturating_add(loans),
            ..limit
        }
    }

    fn with_quota(&self, quota: Quota) -> Result<Self, ConfigError> {
        let limit = self.limit.with_quota(quota)?;
        Ok(Self { limit, ..*self })
    }

    fn validate(&self) -> Result<(), ConfigError> {
        if self.units == 0 {
            let allowed = "at least 1: a limit that lends nothing needs no `Lending`";
            return Err(ConfigError::out_of_range("units", self.units, allowed));
        }
        if self.limit.facts().counts_denials {
            // A request that borrows would count as denied.
            return Err(ConfigError::Unsupported {
                what: "lending by a limit that counts denials",
                instead: "count those of the limit that lends: \
                          lockout.after_denials_of(Lending::new(limit, units))",
            });
        }
        self.limit.validate()
    }

    fn fresh(&self, now: Tick) -> Self::State {
        LendingState {
            limit: self.limit.fresh(now),
            lent: Vec::new(),
        }
    }

    fn decide(&self, state: &mut Self::State, now: Tick, cost: u64) -> Decision {
        self.settle(state, now);
        if state.lent.is_empty() {
            return self.limit.decide(&mut state.limit, now, cost);
        }
        self.denied(state, now, cost).0
    }

    fn peek(&self, state: &Self::State, now: Tick, cost: u64) -> Decision {
        if state.lent.is_empty() {
            return self.limit.peek(&state.limit, now, cost);
        }
        self.decide(&mut state.clone(), now, cost)
    }

    /// Borrows, if the request would be denied.
    fn reserve(
        &self,
        state: &mut Self::State,
        now: Tick,
        cost: u64,
        max_wait: Duration,
    ) -> Decision {
        self.settle(state, now);
        if state.lent.is_empty() {
            let decision = self.limit.decide(&mut state.limit, now, cost);
            if !decision.is_denied() {
                return decision;
            }
        }
        let (denied, turn) = self.denied(state, now, cost);
        let lent = state.lent.iter().map(|(_, units)| *units);
        let lent = lent.fold(cost, u64::saturating_add);
        let longest = max_wait.min(Duration::from_nanos(self.max_wait));
        let turn = turn.filter(|turn| {
            cost > 0 && lent <= self.units && turn.since(now) <= longest && *turn > now
        });
        let Some(turn) = turn else {
            return denied;
        };
        match state.lent.last_mut() {
            Some((at, units)) if *at == turn => *units += cost,
            _ => state.lent.push((turn, cost)),
        }
        let (after, last) = self.after_loans(state, now);
        let unused = self.limit.peek(&after, last, 0).reset_after;
        Decision {
            verdict: Verdict::Wait(turn.since(now)),
            retry_after: None,
            reset_after: last.plus(unused).since(now),
            ..denied
        }
    }

    fn refund(&self, state: &mut Self::State, now: Tick, cost: Cost, why: GiveBack) {
        self.settle(state, now);
        // A turn is known up to a nanosecond.
        let is_it = |(at, _): &(Tick, u64)| at.as_nanos().wrapping_sub(cost.at.as_nanos()) <= 1;
        if let Some(place) = state.lent.iter().position(is_it) {
            let units = &mut state.lent[place].1;
            *units = units.saturating_sub(cost.units);
            if *units == 0 {
                state.lent.remove(place);
            }
            return;
        }
        self.limit.refund(&mut state.limit, now, cost, why);
    }

    fn charge(&self, state: &mut Self::State, now: Tick, cost: u64) -> Duration {
        self.settle(state, now);
        self.limit.charge(&mut state.limit, now, cost)
    }

    /// What was lent keeps its moments.
    fn rescale(&self, state: &mut Self::State, from: &Self, now: Tick) {
        from.settle(state, now);
        self.limit.rescale(&mut state.limit, &from.limit, now);
    }

    fn forgettable_at(&self, state: &Self::State) -> Tick {
        let (after, last) = self.after_loans(state, Tick::ZERO);
        self.limit.forgettable_at(&after).max(last)
    }

    fn quotas(&self) -> Vec<Quota> {
        A::quotas(&self.limit)
    }

    fn peek_part(&self, state: &Self::State, now: Tick, cost: u64, part: usize) -> Decision {
        if state.lent.is_empty() {
            return A::peek_part(&self.limit, &state.limit, now, cost, part);
        }
        self.peek(state, now, cost)
    }

    fn ban(&self, state: &mut LendingState<A::State>, now: Tick, length: Duration) {
        A::ban(&self.limit, &mut state.limit, now, length);
    }

    fn report(&self, state: &LendingState<A::State>, now: Tick) -> Report {
        let mut report = A::report(&self.limit, &state.limit, now);
        report.heap_bytes += state.lent.capacity() * size_of::<(Tick, u64)>();
        if !state.lent.is_empty() {
            report.available = self.peek(state, now, 0).remaining();
        }
        report
    }
}

impl<A: Portable> Portable for Lending<A> {
    fn settings_fields(&mut self, fields: &mut Fields<'_>) {
        fields.tag(12);
        fields.u64(&mut self.units);
        fields.u64(&mut self.max_wait);
        A::settings_fields(&mut self.limit, fields);
    }

    fn state_fields(&self, state: &mut LendingState<A::State>, fields: &mut Fields<'_>) {
        A::state_fields(&self.limit, &mut state.limit, fields);
        let lent = std::mem::take(&mut state.lent);
        let mut len = lent.len() as u64;
        fields.u64(&mut len);
        fields.require(len <= self.units);
        let mut last = 0;
        for place in 0..len {
            if fields.has_failed() {
                return;
            }
            let loan = usize::try_from(place)
                .ok()
                .and_then(|place| lent.get(place));
            let (mut at, mut units) = loan.map_or((0, 0), |(at, units)| (at.as_nanos(), *units));
            fields.moment(&mut at);
            fields.moment(&mut units);
            fields.require(at > last && units > 0);
            last = at;
            state.lent.push((Tick::from_nanos(at), units));
        }
    }
}
