//! What a state means at one moment.
//!
//! ```text
//! places = limit if level = 0, else parole
//! full   = attempts >= places, when the newest of them was taken: at `seen`
//! block  = full, until max(seen + block_after(level), until)
//! after  : level + 1, until = that end, no attempts
//! ban    = not full, and now < until
//! level  = 0 from until + forget on
//! ```

use super::settings::Lockout;
use super::state::{LockoutState, next_level};
use crate::clock::Tick;

/// A state at one moment. What has ended by then is left out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Phase {
    /// How many blocks have ended.
    pub(super) level: u32,
    /// When the last of these ended, or when a ban ends.
    pub(super) until: u64,
    /// When the present block or ban ends.
    pub(super) blocked_until: Option<u64>,
    /// Whether there are as many attempts as start a block.
    pub(super) is_full: bool,
    /// How many moments of attempts do not count any more.
    pub(super) expired: usize,
    /// How many attempts count.
    pub(super) used: u64,
}

impl Lockout {
    pub(super) fn phase(&self, state: &LockoutState, now: Tick) -> Phase {
        let now = now.as_nanos().max(state.seen);
        let (mut level, mut until) = (state.level, state.until);
        let expired = if state.used(0) >= self.places(level) {
            let end = self.block_end(state.seen, level, until);
            if now < end {
                return Phase {
                    level,
                    until,
                    blocked_until: Some(end),
                    is_full: true,
                    expired: 0,
                    used: state.used(0),
                };
            }
            (level, until) = (next_level(level), end);
            state.len()
        } else {
            state.expired(now, self.period())
        };
        if level > 0 && now >= self.forgotten_at(until) {
            level = 0;
        }
        if level == 0 && now >= until {
            until = 0;
        }
        Phase {
            level,
            until,
            blocked_until: (now < until).then_some(until),
            is_full: false,
            expired,
            used: state.used(expired),
        }
    }

    /// The phase at `state.seen`, given that of the moment before `cost` was taken then.
    pub(super) fn phase_after_take(
        &self,
        state: &LockoutState,
        before: &Phase,
        cost: u64,
    ) -> Phase {
        let used = before.used + cost;
        let is_full = used >= self.places(before.level);
        let end = || self.block_end(state.seen, before.level, before.until);
        Phase {
            blocked_until: is_full.then(end),
            is_full,
            expired: 0,
            used,
            ..*before
        }
    }

    /// The largest cost that is admitted.
    pub(super) const fn remaining(&self, phase: &Phase) -> u64 {
        match phase.blocked_until {
            Some(_) => 0,
            None => self.places(phase.level).saturating_sub(phase.used),
        }
    }

    /// When `cost`, which is denied now, is admitted without other traffic. `None` if it never is.
    pub(super) fn retry_at(&self, state: &LockoutState, phase: &Phase, cost: u64) -> Option<u64> {
        let limit = self.quota.limit();
        if cost > limit {
            return None;
        }
        if let (true, Some(end)) = (phase.is_full, phase.blocked_until) {
            let on_parole = cost <= self.places(phase.level + 1);
            return Some(if on_parole {
                end
            } else {
                self.forgotten_at(end)
            });
        }
        let fits_at = |places: u64| {
            let excess = phase.used.saturating_add(cost).saturating_sub(places);
            let freed = match excess {
                0 => 0,
                _ => state.moment_of(phase.expired, excess) + self.period(),
            };
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
        let has_parole = |level| self.places(level) < self.quota.limit();
        match phase.blocked_until {
            Some(end) if phase.is_full && has_parole(1) => self.forgotten_at(end),
            Some(end) if phase.is_full => end,
            blocked_until => {
                let newest = state.newest().filter(|_| phase.used > 0);
                let expires = newest.map_or(0, |newest| newest + self.period());
                let forgotten = if has_parole(phase.level) {
                    self.forgotten_at(phase.until)
                } else {
                    0
                };
                expires.max(forgotten).max(blocked_until.unwrap_or(0))
            }
        }
    }

    /// When the state decides like a fresh one, at any later moment.
    pub(super) fn unused_at(&self, state: &LockoutState) -> u64 {
        if state.used(0) >= self.places(state.level) {
            return self.forgotten_at(self.block_end(state.seen, state.level, state.until));
        }
        // What has expired by the newest moment is gone, so an older moment must not find a fresh key.
        let expired = match (state.newest(), state.seen) {
            (None, 0) => 0,
            (_, seen) => seen + self.period(),
        };
        let forgotten = match state.level {
            0 => state.until,
            _ => self.forgotten_at(state.until),
        };
        expired.max(forgotten)
    }

    /// The end of the block that starts at `start`, after `level` blocks.
    fn block_end(&self, start: u64, level: u32, until: u64) -> u64 {
        let end = start.saturating_add(self.block_after(level)).max(until);
        end.min(Tick::MAX.as_nanos())
    }

    const fn forgotten_at(&self, until: u64) -> u64 {
        until.saturating_add(self.forget)
    }

    const fn period(&self) -> u64 {
        self.quota.period_ns()
    }
}
