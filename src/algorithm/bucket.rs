//! The bucket that a token bucket empties and a leaky meter fills: they are mirrors of each other.

use super::pace::{Due, Pace};
use crate::clock::Tick;
use crate::decision::{Decision, Verdict};
use crate::quota::Quota;

/// A capacity under a rate. The state of a key is when its bucket is unused again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bucket {
    pub(super) pace: Pace,
    pub(super) capacity: u64,
    /// The time that the whole capacity is worth; at most 2^62 ns.
    pub(super) depth: Due,
}

impl Bucket {
    pub(super) const fn new(quota: &Quota) -> Self {
        let pace = Pace::new(quota);
        Self {
            depth: pace.span(quota.capacity()),
            capacity: quota.capacity(),
            pace,
        }
    }

    /// Takes `cost` if it is there, or will be after a wait of at most `most`.
    #[inline]
    pub(super) fn take(&self, state: &mut Due, now: Tick, cost: u64, most: Due) -> Decision {
        let present = Due::at(now);
        let mut due = (*state).max(present);
        // A bucket that is used up right now is unused again at `edge`.
        let edge = self.pace.add(present, self.depth);
        let mut verdict = Verdict::Admit;
        let mut retry_after = None;
        if cost > self.capacity {
            verdict = Verdict::Deny;
        } else if cost > 0 {
            let after = self.pace.add(due, self.pace.span(cost));
            if after <= edge {
                due = after;
                *state = after;
            } else {
                let missing = self.pace.sub(after, edge);
                if missing <= most {
                    verdict = Verdict::after(missing.ceil());
                    due = after;
                    *state = after;
                } else {
                    verdict = Verdict::Deny;
                    retry_after = Some(self.pace.sub(missing, most).ceil());
                }
            }
        }
        let remaining = if due < edge {
            self.pace.count(self.pace.sub(edge, due))
        } else {
            0
        };
        Decision::new(
            verdict,
            self.capacity,
            remaining,
            retry_after,
            due.after(now),
        )
    }

    /// Takes `cost` even if it is not there; answers the time until what is owed has come back.
    pub(super) fn force(&self, state: &mut Due, now: Tick, cost: u64) -> u64 {
        let present = Due::at(now);
        if cost > 0 {
            *state = self.pace.add((*state).max(present), self.pace.span(cost));
        }
        let edge = self.pace.add(present, self.depth);
        self.pace.sub(*state, edge).ceil()
    }

    /// The time that what is used of the capacity, or owed beyond it, is worth.
    pub(super) fn used(&self, state: Due, now: Tick) -> Due {
        let present = Due::at(now);
        self.pace.sub(state.max(present), present)
    }

    /// The state in which `used` is gone at `now`.
    pub(super) const fn using(&self, used: Due, now: Tick) -> Due {
        self.pace.add(Due::at(now), used)
    }
}
