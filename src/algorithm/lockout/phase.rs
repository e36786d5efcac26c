//! The state of one key: its failures and its last block, and what that means at one moment.
//!
//! ```text
//! places = limit if level = 0, else parole
//! full   = attempts >= places, when the newest of them was taken: at `seen`
//! block  = full, until max(seen + block_after(level), until)
//! after  : level + 1, until = that end, no attempts
//! ban    = not full, and now < until
//! level  = 0 from until + forget on
//! ```

use super::super::fields::Fields;
use super::super::moments::Moments;
use super::settings::Lockout;
use crate::clock::Tick;
use crate::decision::{Decision, Verdict};

/// The most blocks that are counted: the length of any block has reached its maximum by then.
const MAX_LEVEL: u32 = 63;

/// The state of a key under [`Lockout`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockoutState {
    /// The attempts that were not refunded, as they were at the newest moment. If there are as many as start a
    /// block, it started then.
    pub(super) attempts: Moments,
    /// How many blocks have ended since the key was forgotten, without the present one.
    level: u32,
    /// When the last of these blocks ended, or when a ban ends; 0 if there was none.
    until: u64,
}

/// A state at one moment. What has ended by then is left out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Phase {
    /// How many blocks have ended.
    level: u32,
    /// When the last of these ended, or when a ban ends.
    until: u64,
    /// When the present block or ban ends.
    pub(super) blocked_until: Option<u64>,
    /// Whether there are as many attempts as start a block.
    pub(super) is_full: bool,
    /// How many moments of attempts do not count any more.
    pub(super) expired: usize,
    /// How many attempts count.
    pub(super) used: u64,
}

impl LockoutState {
    /// Writes down what time has changed.
    pub(super) fn enter(&mut self, phase: &Phase) {
        (self.level, self.until) = (phase.level, phase.until);
        self.attempts.drop_oldest(phase.expired);
    }

    /// Denies everything until `end` at least, whatever is refunded.
    pub(super) fn block_to(&mut self, phase: &Phase, end: u64) {
        match phase.blocked_until {
            Some(own) if phase.is_full => {
                self.block_until((phase.level + 1).min(MAX_LEVEL), end.max(own));
            }
            _ => {
                self.enter(phase);
                self.block_until(phase.level, end.max(phase.until));
            }
        }
    }

    /// Blocks the key until `end`, after `level` blocks. What was counted before is dropped.
    fn block_until(&mut self, level: u32, end: u64) {
        (self.level, self.until) = (level, end);
        self.attempts.clear();
    }

    pub(super) fn list(&mut self, fields: &mut Fields<'_>) {
        let mut level = self.level.into();
        fields.u64(&mut level);
        fields.require(level <= MAX_LEVEL.into());
        self.level = u32::try_from(level).unwrap_or(MAX_LEVEL);
        fields.moment(&mut self.until);
        self.attempts.list(fields);
    }
}

impl Lockout {
    pub(super) fn phase(&self, state: &LockoutState, now: Tick) -> Phase {
        let now = now.as_nanos().max(state.attempts.seen);
        let mut phase = Phase {
            level: state.level,
            until: state.until,
            blocked_until: None,
            is_full: false,
            expired: 0,
            used: state.attempts.cost_from(0),
        };
        if phase.used >= self.places(state.level) {
            let end = self.block_end(state);
            if now < end {
                (phase.is_full, phase.blocked_until) = (true, Some(end));
                return phase;
            }
            (phase.level, phase.until) = ((state.level + 1).min(MAX_LEVEL), end);
            phase.expired = state.attempts.len();
        } else {
            phase.expired = state.attempts.expired(now, self.quota.period_ns());
        }
        if phase.level > 0 && now >= self.forgotten_at(phase.until) {
            phase.level = 0;
        }
        if phase.level == 0 && now >= phase.until {
            phase.until = 0;
        }
        phase.blocked_until = (now < phase.until).then_some(phase.until);
        phase.used = state.attempts.cost_from(phase.expired);
        phase
    }

    /// The decision on a state whose phase is known.
    pub(super) fn decision(
        &self,
        state: &LockoutState,
        phase: &Phase,
        now: Tick,
        cost: u64,
    ) -> Decision {
        let since = |at: u64| at.saturating_sub(now.as_nanos());
        let remaining = self.remaining(phase);
        let (mut verdict, mut retry_at) = (Verdict::Admit, None);
        if cost > remaining {
            verdict = Verdict::Deny;
            retry_at = self.retry_at(state, phase, cost);
        }
        let reset_after = since(self.reset_at(state, phase));
        let (limit, retry_after) = (self.quota.limit(), retry_at.map(since));
        Decision::new(verdict, limit, remaining, retry_after, reset_after)
    }

    /// The largest cost that is admitted.
    pub(super) const fn remaining(&self, phase: &Phase) -> u64 {
        match phase.blocked_until {
            Some(_) => 0,
            None => self.places(phase.level).saturating_sub(phase.used),
        }
    }

    /// How many more attempts there are than it takes to start the present block.
    pub(super) const fn owed(&self, phase: &Phase) -> u64 {
        match phase.blocked_until {
            Some(_) if phase.is_full => phase.used - self.places(phase.level),
            _ => 0,
        }
    }

    /// When `cost`, which is denied now, is admitted without other traffic. `None` if it never is.
    pub(super) fn retry_at(&self, state: &LockoutState, phase: &Phase, cost: u64) -> Option<u64> {
        let limit = self.quota.limit();
        if cost > limit {
            return None;
        }
        if let (true, Some(end)) = (phase.is_full, phase.blocked_until) {
            let is_on_parole = cost <= self.places(phase.level + 1);
            let forgotten = self.forgotten_at(end);
            return Some(if is_on_parole { end } else { forgotten });
        }
        let fits_at = |places: u64| {
            let excess = (phase.used.saturating_add(cost)).saturating_sub(places);
            let last = state.attempts.completes(phase.expired, excess);
            let freed = last.filter(|_| excess > 0);
            let freed = freed.map_or(0, |last| last + self.quota.period_ns());
            (cost <= places).then(|| freed.max(phase.blocked_until.unwrap_or(0)))
        };
        let as_new = fits_at(limit)?;
        if phase.level == 0 {
            return Some(as_new);
        }
        let as_new = as_new.max(self.forgotten_at(phase.until));
        let on_parole = fits_at(self.places(phase.level));
        Some(on_parole.map_or(as_new, |at| at.min(as_new)))
    }

    /// When all of the limit is available.
    pub(super) fn reset_at(&self, state: &LockoutState, phase: &Phase) -> u64 {
        let forgotten = |level, until| {
            let has_parole = self.places(level) < self.quota.limit();
            if has_parole {
                self.forgotten_at(until)
            } else {
                0
            }
        };
        let blocked = phase.blocked_until.unwrap_or(0);
        if phase.is_full {
            return forgotten(1, blocked).max(blocked);
        }
        let newest = state.attempts.newest().filter(|_| phase.used > 0);
        let expires = newest.map_or(0, |newest| newest + self.quota.period_ns());
        expires
            .max(forgotten(phase.level, phase.until))
            .max(blocked)
    }

    /// When the state decides like a fresh one, at any later moment.
    pub(super) fn unused_at(&self, state: &LockoutState) -> u64 {
        if state.attempts.cost_from(0) >= self.places(state.level) {
            return self.forgotten_at(self.block_end(state));
        }
        // What has expired by the newest moment is gone, so an older moment must not find a fresh key.
        let expired = match state.attempts.seen {
            0 if state.attempts.len() == 0 => 0,
            seen => seen + self.quota.period_ns(),
        };
        let forgotten = match state.level {
            0 => state.until,
            _ => self.forgotten_at(state.until),
        };
        expired.max(forgotten)
    }

    /// The end of the block that starts with the newest attempt.
    fn block_end(&self, state: &LockoutState) -> u64 {
        let length = self.block_after(state.level);
        let end = state.attempts.seen.saturating_add(length);
        end.max(state.until).min(Tick::MAX.as_nanos())
    }

    const fn forgotten_at(&self, until: u64) -> u64 {
        until.saturating_add(self.forget)
    }

    /// What is kept under other settings than those of `from`.
    pub(super) fn convert(&self, state: &mut LockoutState, from: &Self, now: Tick) {
        let phase = from.phase(state, now);
        if phase.is_full {
            // A block keeps the end that clients were told.
            return state.block_to(&phase, 0);
        }
        state.enter(&phase);
        // Fewer places must not start a block, which would have begun in the past.
        state.attempts.keep_newest(self.places(phase.level) - 1);
    }
}
