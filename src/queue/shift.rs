//! By how much refunds move the slots of a line, exactly.

use crate::clock::Tick;
use crate::quota::Quota;

/// A sum of costs as time, in units of 1/[`limit`](Shift::limit) nanoseconds.
pub(super) type Parts = u128;

/// The running total of all refunds.
///
/// A slot is stored with the total at which it was granted, its base. Since then it has moved
/// earlier by the difference. So a refund is one addition however many slots it moves, and no
/// fraction of a nanosecond is lost.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shift {
    /// The limit of the quota that all refunds were worth something by. Zero before the first.
    limit: u64,
    pub(super) total: Parts,
}

impl Shift {
    /// What `cost` is worth: cost x period, in parts of the limit. Less than 2^126.
    pub(super) fn worth(cost: u64, quota: &Quota) -> Parts {
        Parts::from(cost) * Parts::from(quota.period_ns())
    }

    /// Whether `worth` by `quota` can be added. If not, all slots have to be stored anew, with
    /// base zero and a new total.
    pub(super) fn can_add(&self, worth: Parts, quota: &Quota) -> bool {
        [0, quota.limit()].contains(&self.limit) && self.total.checked_add(worth).is_some()
    }

    pub(super) fn add(&mut self, worth: Parts, quota: &Quota) {
        self.limit = quota.limit();
        self.total += worth;
    }

    /// Where a slot is that has moved by `parts`.
    #[inline]
    pub(super) fn apply(&self, slot: Tick, parts: Parts) -> Tick {
        if parts == 0 {
            return slot;
        }
        let ns = u64::try_from(parts / Parts::from(self.limit.max(1))).unwrap_or(u64::MAX);
        Tick::from_nanos(slot.as_nanos().saturating_sub(ns))
    }
}
