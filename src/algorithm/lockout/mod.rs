//! Blocks that grow with repeated failures.

mod denials;
mod phase;
mod settings;
mod state;
#[cfg(all(test, not(tower_throttle_loom)))]
mod tests;

pub use self::{
    denials::{DenialLockout, DenialLockoutState},
    settings::Lockout,
    state::LockoutState,
};

use std::time::Duration;

use super::fields::Fields;
use super::{Algorithm, Cost, Facts, GiveBack, Portable, Report};
use crate::clock::Tick;
use crate::decision::{Decision, Verdict};
use crate::error::ConfigError;
use crate::quota::Quota;

use self::phase::Phase;

impl Lockout {
    /// Admits a cost, or denies it with its `retry_after`. The figures are those of `phase`.
    fn decision(
        &self,
        verdict: Verdict,
        state: &LockoutState,
        phase: &Phase,
        now: Tick,
        retry_at: Option<u64>,
    ) -> Decision {
        let since = |at: u64| at.saturating_sub(now.as_nanos());
        Decision::new(
            verdict,
            self.quota.limit(),
            self.remaining(phase),
            retry_at.map(since),
            since(self.reset_at(state, phase)),
        )
    }

    fn decision_on(&self, state: &LockoutState, phase: &Phase, now: Tick, cost: u64) -> Decision {
        if cost <= self.remaining(phase) {
            return self.decision(Verdict::Admit, state, phase, now, None);
        }
        let retry_at = self.retry_at(state, phase, cost);
        self.decision(Verdict::Deny, state, phase, now, retry_at)
    }

    /// How long until a block ends in which there are more failures than it takes to start it.
    fn owed(&self, state: &LockoutState, now: Tick) -> Duration {
        let phase = self.phase(state, now);
        let owed = match phase.blocked_until {
            Some(end) if phase.is_full && phase.used > self.places(phase.level) => {
                end.saturating_sub(now.as_nanos())
            }
            _ => 0,
        };
        Duration::from_nanos(owed)
    }
}

impl Algorithm for Lockout {
    type State = LockoutState;

    fn quota(&self) -> Quota {
        self.quota
    }

    #[inline]
    fn facts(&self) -> Facts {
        Facts {
            is_about_one_key: true,
            max_heap_bytes: LockoutState::max_heap_bytes(self.quota.limit()),
            ..Facts::ONE_LIMIT
        }
    }

    fn with_quota(&self, quota: Quota) -> Result<Self, ConfigError> {
        let mut changed = *self;
        changed.quota = quota;
        changed.validate()?;
        Ok(changed)
    }

    fn validate(&self) -> Result<(), ConfigError> {
        self.check()
    }

    fn fresh(&self, _now: Tick) -> LockoutState {
        LockoutState::default()
    }

    fn decide(&self, state: &mut LockoutState, now: Tick, cost: u64) -> Decision {
        let phase = self.phase(state, now);
        if cost == 0 || cost > self.remaining(&phase) {
            return self.decision_on(state, &phase, now, cost);
        }
        state.enter(phase.level, phase.until, phase.expired);
        state.push(now, cost);
        let phase = self.phase_after_take(state, &phase, cost);
        self.decision(Verdict::Admit, state, &phase, now, None)
    }

    fn peek(&self, state: &LockoutState, now: Tick, cost: u64) -> Decision {
        let phase = self.phase(state, now);
        self.decision_on(state, &phase, now, cost)
    }

    fn refund(&self, state: &mut LockoutState, now: Tick, cost: Cost, why: GiveBack) {
        // During a block no attempt expires, so a late success ends it as well.
        let gone = self.phase(state, now).expired;
        let clears = self.clears && why == GiveBack::Forgive && cost.units > 0;
        let units = if clears { u64::MAX } else { cost.units };
        state.free(cost.at, gone, units);
    }

    fn charge(&self, state: &mut LockoutState, now: Tick, cost: u64) -> Duration {
        let phase = self.phase(state, now);
        let cost = cost.min(Tick::MAX.as_nanos() - phase.used);
        if cost > 0 && phase.is_full {
            // A failure during a block counts without extending it.
            state.add_to_newest(cost);
        } else if cost > 0 {
            state.enter(phase.level, phase.until, phase.expired);
            state.push(now, cost);
        }
        self.owed(state, now)
    }

    fn rescale(&self, state: &mut LockoutState, from: &Self, now: Tick) {
        let phase = from.phase(state, now);
        match phase.blocked_until {
            // A block keeps the end that clients were told.
            Some(end) if phase.is_full => state.block_until(phase.level + 1, end),
            _ => {
                state.enter(phase.level, phase.until, phase.expired);
                // Fewer places must not start a block, which would have begun in the past.
                state.keep_newest(self.places(phase.level) - 1);
            }
        }
    }

    fn forgettable_at(&self, state: &LockoutState) -> Tick {
        Tick::from_nanos(self.unused_at(state))
    }

    /// Without a copy of the state: no request waits.
    fn peek_reserve(
        &self,
        state: &LockoutState,
        now: Tick,
        cost: u64,
        _max_wait: Duration,
    ) -> Decision {
        self.peek(state, now, cost)
    }

    fn ban(&self, state: &mut LockoutState, now: Tick, length: Duration) {
        let phase = self.phase(state, now);
        let end = now.plus(length).as_nanos().max(phase.until);
        match phase.blocked_until {
            Some(own_end) if phase.is_full => {
                state.block_until(phase.level + 1, end.max(own_end));
            }
            _ => {
                state.enter(phase.level, phase.until, phase.expired);
                state.block_until(phase.level, end);
            }
        }
    }

    fn report(&self, state: &LockoutState, now: Tick) -> Report {
        let phase = self.phase(state, now);
        Report {
            available: self.remaining(&phase),
            is_blocked: phase.blocked_until.is_some(),
            heap_bytes: state.heap_bytes(),
        }
    }
}

impl Portable for Lockout {
    fn settings_fields(&mut self, fields: &mut Fields<'_>) {
        self.list(fields);
    }

    fn state_fields(&self, state: &mut LockoutState, fields: &mut Fields<'_>) {
        state.list(fields);
    }
}
