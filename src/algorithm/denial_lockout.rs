//! Blocks that grow with the denials of another limit.

use std::time::Duration;

use super::fields::Fields;
use super::{Algorithm, Capabilities, Cost, GiveBack, IntoAlgorithm, Lockout, LockoutState};
use crate::clock::Tick;
use crate::decision::{Decision, Verdict};
use crate::error::ConfigError;
use crate::quota::Quota;

/// Another limit, and a block for each key that this limit denies too often; made by
/// [`Lockout::after_denials_of`].
///
/// ```text
/// lockout after 3 denials in W    |·······W·······|
/// requests                  r  r  r  r  r  r  r     r         r r     ...
/// the other limit           ✓  ✓  ✗  ✗  ✗           ✓         ✗ ✗
/// decision                  ✓  ✓  ✗  ✗  ✗  ✗  ✗     ✓         ✗ ✗
/// blocked                               |~ block ~|             |~~ 2 * block ~~|
/// ```
///
/// - A denial of the other limit is a failure, whatever its cost. An admitted request, a peek and a cost
///   of zero are none, and settling a request does not change how many there are.
/// - The denial that is the last of the lockout's failures starts the block: its `retry_after` is the
///   end of the block, or later if the other limit denies the request for longer.
/// - Requests during a block neither count nor extend it, and take nothing of the other limit.
/// - Blocks grow, end and are forgotten as those of [`Lockout`]. With
///   [`clear_on_success`](Lockout::clear_on_success), [`Settle::Forgive`](crate::Settle::Forgive) frees the
///   denials up to that request, unless they have started a block.
/// - `limit`, `remaining` and `policy` of a decision are those of the other limit, because the quota of
///   the lockout is none of requests. Nothing remains during a block.
/// - In a tuple with further limits, their denials do not count. A caller that waits in
///   [`acquire`](crate::Limiter::acquire) is not denied until it gives up.
///
/// It works in this process, and across machines in `Cas`, also with a Redis server as its store.
/// `Synced` and `Leased` refuse it, because they do not write what they deny.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DenialLockout<A> {
    limit: A,
    lockout: Lockout,
}

/// The state of a key under a [`DenialLockout`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DenialLockoutState<S> {
    limit: S,
    /// Its failures are the denials.
    denials: LockoutState,
}

impl Lockout {
    /// Counts the denials of `limit` as failures: a key that goes on after it was denied is blocked.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::{Limiter, Lockout, ManualClock, Quota, TokenBucket};
    ///
    /// let bucket = TokenBucket::new(Quota::per_second(10));
    /// let lockout = Lockout::new(Quota::per_minute(3)).after_denials_of(bucket);
    /// let clock = ManualClock::new();
    /// let limiter = Limiter::new(lockout).with_clock(clock.clone());
    /// assert!(limiter.check(10).is_admitted());
    /// // The bucket has a token again after 100 ms.
    /// for retry_after in [100, 100, 60_000] {
    ///     let denied = limiter.check(1);
    ///     assert_eq!(denied.retry_after, Some(Duration::from_millis(retry_after)));
    /// }
    /// clock.advance(Duration::from_secs(59));
    /// assert_eq!(limiter.check(1).retry_after, Some(Duration::from_secs(1)));
    /// clock.advance(Duration::from_secs(1));
    /// assert!(limiter.check(1).is_admitted());
    /// ```
    ///
    /// In a layer:
    ///
    /// ```
    /// use std::time::Duration;
    /// use axum::{Router, routing::get};
    /// use tower_throttle::{ClientIp, Lockout, Quota, RateLimitLayer, TokenBucket};
    ///
    /// let bucket = TokenBucket::new(Quota::per_second(10));
    /// // 100 denials in a minute: 5 minutes, then 10, then 20, up to an hour.
    /// let lockout = Lockout::new(Quota::per_minute(100)).block(Duration::from_secs(300));
    /// let layer = RateLimitLayer::new(ClientIp::peer(), lockout.after_denials_of(bucket));
    /// let app: Router = Router::new().route("/", get(|| async {})).layer(layer);
    /// ```
    pub fn after_denials_of<L: IntoAlgorithm>(self, limit: L) -> DenialLockout<L::Algorithm> {
        DenialLockout {
            limit: limit.into_algorithm(),
            lockout: self,
        }
    }
}

impl<A: Algorithm> DenialLockout<A> {
    /// What is decided if the other limit decides this. A denial is not counted, so its `retry_after` leaves out the
    /// block that it would start.
    fn looked(
        &self,
        state: &DenialLockoutState<A::State>,
        now: Tick,
        cost: u64,
        decision: Decision,
    ) -> Decision {
        let phase = self.lockout.phase(&state.denials, now);
        if !phase.is_blocked {
            return decision;
        }
        let left = Duration::from_nanos(phase.until.saturating_sub(now.as_nanos()));
        let mut blocked = decision.with_remaining(0);
        blocked.reset_after = decision.reset_after.max(left);
        if cost > 0 {
            blocked.retry_after = match decision.retry_after {
                // It is never admitted.
                None if decision.is_denied() => None,
                retry_after => Some(retry_after.unwrap_or_default().max(left)),
            };
            blocked.verdict = Verdict::Deny;
        }
        blocked
    }
}

impl<A: Algorithm> Algorithm for DenialLockout<A> {
    type State = DenialLockoutState<A::State>;

    /// That of the other limit.
    fn quota(&self) -> Quota {
        self.limit.quota()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            counts_denials: true,
            is_about_one_key: true,
            ..self.limit.capabilities()
        }
    }

    fn validate(&self) -> Result<(), ConfigError> {
        self.limit.validate()?;
        self.lockout.validate()
    }

    fn fresh(&self, now: Tick) -> Self::State {
        DenialLockoutState {
            limit: self.limit.fresh(now),
            denials: self.lockout.fresh(now),
        }
    }

    fn decide(&self, state: &mut Self::State, now: Tick, cost: u64) -> Decision {
        let phase = self.lockout.phase(&state.denials, now);
        if phase.is_blocked {
            return self.peek(state, now, cost);
        }
        let decision = self.limit.decide(&mut state.limit, now, cost);
        if !decision.is_denied() || cost == 0 {
            return decision;
        }
        // No denial is refunded, so its own moment does not matter.
        state.denials.add(&phase, now, 1);
        self.looked(state, now, 1, decision)
    }

    fn peek(&self, state: &Self::State, now: Tick, cost: u64) -> Decision {
        self.looked(state, now, cost, self.limit.peek(&state.limit, now, cost))
    }

    fn refund(&self, state: &mut Self::State, now: Tick, cost: Cost, why: GiveBack) {
        self.limit.refund(&mut state.limit, now, cost, why);
        let is_full = self.lockout.phase(&state.denials, now).is_full;
        if self.lockout.clears(cost, why) && !is_full {
            self.lockout.refund(&mut state.denials, now, cost, why);
        }
    }

    fn charge(&self, state: &mut Self::State, now: Tick, cost: u64) -> Duration {
        self.limit.charge(&mut state.limit, now, cost)
    }

    fn rescale(&self, state: &mut Self::State, from: &Self, now: Tick) {
        self.limit.rescale(&mut state.limit, &from.limit, now);
        self.lockout.rescale(&mut state.denials, &from.lockout, now);
    }

    fn forgettable_at(&self, state: &Self::State) -> Tick {
        let limit = self.limit.forgettable_at(&state.limit);
        limit.max(self.lockout.forgettable_at(&state.denials))
    }

    fn quotas(&self) -> Vec<Quota> {
        self.limit.quotas()
    }

    fn peek_within(
        &self,
        state: &Self::State,
        now: Tick,
        cost: u64,
        max_wait: Duration,
    ) -> Decision {
        let looked = self.limit.peek_within(&state.limit, now, cost, max_wait);
        self.looked(state, now, cost, looked)
    }

    fn settings_fields(&mut self, fields: &mut Fields<'_>) {
        fields.tag(10);
        fields.aside(|fields| self.lockout.settings_fields(fields));
        self.limit.settings_fields(fields);
    }

    fn state_fields(&self, state: &mut DenialLockoutState<A::State>, fields: &mut Fields<'_>) {
        self.lockout.state_fields(&mut state.denials, fields);
        self.limit.state_fields(&mut state.limit, fields);
    }
}
