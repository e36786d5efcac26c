//! Windows that divide time, and the count of one window.

use std::num::NonZeroU64;
use std::time::Duration;

use super::Cost;
use super::fields::Fields;
use super::kernel::{Cells, Division, Kernel};
use crate::clock::Tick;
use crate::decision::{Decision, Verdict};
use crate::quota::Quota;

/// Windows of one length. One ends at `offset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grid {
    /// Non-zero, so that dividing by it cannot panic.
    length: NonZeroU64,
    pub(super) offset: u64,
}

impl Grid {
    pub(super) const fn new(length: u64, offset: u64) -> Self {
        let Some(length) = NonZeroU64::new(length) else {
            panic!("the period of a quota is not zero");
        };
        Self { length, offset }
    }

    pub(super) const fn length(&self) -> u64 {
        self.length.get()
    }

    /// Where a window ends that began at zero or before.
    pub(super) const fn first_end(&self) -> u64 {
        self.offset % self.length.get()
    }

    /// When the window of `now` ends.
    pub(super) const fn end(&self, now: Tick) -> u64 {
        let (now, length) = (now.as_nanos(), self.length.get());
        let into = (now + (length - self.first_end())) % length;
        now + (length - into)
    }

    /// Lists the end of a window.
    pub(super) fn list_end(&self, end: &mut u64, fields: &mut Fields<'_>) {
        fields.end(end, self.length(), |at| self.end(at));
    }

    /// What windows of this grid count, of which `count` are counted together.
    pub(super) fn kernel(&self, quota: Quota, count: u64, division: Division) -> Kernel {
        Kernel::Cells(Cells {
            limit: quota.limit(),
            length: self.length.get(),
            offset: self.offset,
            count,
            division,
        })
    }
}

/// The count of one window: the state of a key under [`FixedWindow`](crate::FixedWindow) and
/// [`CalendarWindow`](crate::CalendarWindow).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowState {
    /// When the window ends; 0 if there was none yet.
    pub(super) end: u64,
    pub(super) used: u64,
}

impl WindowState {
    /// Nanoseconds until the window is over.
    #[inline]
    pub(super) const fn left(&self, now: Tick) -> u64 {
        self.end.saturating_sub(now.as_nanos())
    }

    /// The window that is open at `now`, or a new one with this end. If `now` is older than the window, the
    /// window counts.
    #[inline]
    fn open(self, now: Tick, end: impl FnOnce() -> u64) -> Self {
        match self.left(now) {
            0 => Self {
                end: end(),
                used: 0,
            },
            _ => self,
        }
    }

    #[inline]
    pub(super) fn decide(
        &mut self,
        limit: u64,
        now: Tick,
        cost: u64,
        end: impl FnOnce() -> u64,
    ) -> Decision {
        let mut open = self.open(now, end);
        let takes = cost > 0 && cost <= limit.saturating_sub(open.used);
        if takes {
            open.used += cost;
            *self = open;
        }
        let until = |most| if open.used > most { open.left(now) } else { 0 };
        decision(limit, open.used, if takes { 0 } else { cost }, until)
    }

    /// The cost of an earlier window is not in the count.
    pub(super) fn refund(&mut self, now: Tick, cost: Cost, start: impl FnOnce(&Self) -> u64) {
        if self.left(now) > 0 && cost.at.as_nanos() >= start(self) {
            self.used = self.used.saturating_sub(cost.units);
        }
    }

    pub(super) fn charge(
        &mut self,
        limit: u64,
        now: Tick,
        cost: u64,
        end: impl FnOnce() -> u64,
    ) -> Duration {
        let mut open = self.open(now, end);
        if cost > 0 {
            open.used = open.used.saturating_add(cost).min(Tick::MAX.as_nanos());
            *self = open;
        }
        let is_in_debt = open.used > limit;
        Duration::from_nanos(if is_in_debt { open.left(now) } else { 0 })
    }
}

/// The decision on a cost beside what is `used` of the limit. `until` is the time until at most so much is used.
#[inline]
pub(super) fn decision(limit: u64, used: u64, cost: u64, until: impl Fn(u64) -> u64) -> Decision {
    let remaining = limit.saturating_sub(used);
    let (mut verdict, mut retry_after) = (Verdict::Admit, None);
    if cost > remaining {
        verdict = Verdict::Deny;
        retry_after = (cost <= limit).then(|| until(limit - cost));
    }
    Decision::new(verdict, limit, remaining, retry_after, until(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_match_their_definition() {
        let lengths = [1, 2, 3, 7, 24, 100_000_000, (1 << 32) + 1, (1 << 59) - 1];
        for length in lengths {
            for offset in [0, 1, length / 2, length - 1, length, 3 * length + 1] {
                let grid = Grid::new(length, offset);
                let near = [0, 1, 2, 50, 1 << 33, (1 << 62) / length * length, 1 << 63];
                for now in near
                    .into_iter()
                    .flat_map(|at: u64| [at.saturating_sub(1), at, at + 1])
                {
                    let now = Tick::from_nanos(now);
                    let end = grid.end(now);
                    let is_a_bound =
                        (i128::from(end) - i128::from(offset)) % i128::from(length) == 0;
                    let is_next = now.as_nanos() < end && end - now.as_nanos() <= length;
                    assert!(is_a_bound && is_next, "{now:?}: {end} of {grid:?}");
                }
            }
        }
    }
}
