//! Blocks that grow with repeated failures.

mod denials;
mod phase;
mod settings;
#[cfg(all(test, not(tower_throttle_loom)))]
mod tests;

pub use self::{
    denials::{DenialLockout, DenialLockoutState},
    phase::LockoutState,
    settings::Lockout,
};

use std::time::Duration;

use super::fields::Fields;
use super::moments::Moments;
use super::{Algorithm, Capabilities, Cost, GiveBack, Report};
use crate::clock::Tick;
use crate::decision::Decision;
use crate::error::ConfigError;
use crate::quota::Quota;

impl Algorithm for Lockout {
    type State = LockoutState;

    fn quota(&self) -> Quota {
        self.quota
    }

    #[inline]
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            is_about_one_key: true,
            max_heap_bytes: Moments::max_heap_bytes(self.quota.limit()),
            ..Capabilities::ONE_LIMIT
        }
    }

    fn validate(&self) -> Result<(), ConfigError> {
        self.check()
    }

    fn fresh(&self, _now: Tick) -> LockoutState {
        LockoutState::default()
    }

    fn decide(&self, state: &mut LockoutState, now: Tick, cost: u64) -> Decision {
        let mut phase = self.phase(state, now);
        if cost == 0 || cost > self.remaining(&phase) {
            return self.decision(state, &phase, now, cost);
        }
        state.enter(&phase);
        state.attempts.add(now.as_nanos(), cost);
        phase = self.phase(state, now);
        self.decision(state, &phase, now, 0)
    }

    fn peek(&self, state: &LockoutState, now: Tick, cost: u64) -> Decision {
        self.decision(state, &self.phase(state, now), now, cost)
    }

    fn refund(&self, state: &mut LockoutState, now: Tick, cost: Cost, why: GiveBack) {
        // During a block no attempt expires, so a late success ends it as well.
        let gone = self.phase(state, now).expired;
        let clears = self.clears && why == GiveBack::Forgive && cost.units > 0;
        let units = if clears { u64::MAX } else { cost.units };
        state.attempts.take_back(gone, cost.at.as_nanos(), units);
    }

    fn charge(&self, state: &mut LockoutState, now: Tick, cost: u64) -> Duration {
        let mut phase = self.phase(state, now);
        let cost = cost.min(Tick::MAX.as_nanos() - phase.used);
        if cost > 0 {
            if phase.is_full {
                // A failure during a block counts without extending it.
                state.attempts.join(0, cost);
            } else {
                state.enter(&phase);
                state.attempts.add(now.as_nanos(), cost);
            }
            phase = self.phase(state, now);
        }
        // How long until a block ends that has more failures than it takes to start it.
        let end = phase.blocked_until.filter(|_| self.owed(&phase) > 0);
        Duration::from_nanos(end.map_or(0, |end| end.saturating_sub(now.as_nanos())))
    }

    fn rescale(&self, state: &mut LockoutState, from: &Self, now: Tick) {
        self.convert(state, from, now);
    }

    fn forgettable_at(&self, state: &LockoutState) -> Tick {
        Tick::from_nanos(self.unused_at(state))
    }

    /// Without a copy of the state: no request waits.
    fn ban(&self, state: &mut LockoutState, now: Tick, length: Duration) {
        let phase = self.phase(state, now);
        state.block_to(&phase, now.plus(length).as_nanos());
    }

    fn report(&self, state: &LockoutState, now: Tick) -> Report {
        let phase = self.phase(state, now);
        Report {
            available: self.remaining(&phase),
            is_blocked: phase.blocked_until.is_some(),
            heap_bytes: state.attempts.heap_bytes(),
        }
    }

    fn settings_fields(&mut self, fields: &mut Fields<'_>) {
        self.list(fields);
    }

    fn state_fields(&self, state: &mut LockoutState, fields: &mut Fields<'_>) {
        state.list(fields);
    }
}
