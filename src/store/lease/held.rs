//! States that also hold what this machine has taken ahead.

use super::plan::MAX_ROOM;
use crate::clock::Tick;
use crate::store::{
    beside::{Beside, BesideState, OWN_WORDS, Own},
    cas::report::Change,
};

/// An algorithm whose states also hold the units of this machine.
pub(super) type Leasing<A> = Beside<A, Held>;

/// The state of a key on one machine: that of the fleet as of the last exchange, with what this machine
/// has used since.
pub(super) type LeasedState<S> = BesideState<S, Held>;

/// What this machine may use of a key without the slow path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    /// Whether there are units, or units that were used and are to be reported.
    pub(super) is_listed: bool,
    /// Whether nothing is left, as of an exchange. Then requests are denied as the state says.
    pub(super) is_denying: bool,
    /// From this moment on the slow path decides.
    pub(super) until: Tick,
    /// What was used since the last report.
    pub(super) used: u32,
    /// How much may be used; at most [`MAX_ROOM`].
    pub(super) room: u32,
}

impl Held {
    /// Uses units, if they are there.
    pub(super) fn take(&mut self, cost: u64) -> bool {
        let sum = u32::try_from(u64::from(self.used) + cost).ok();
        let room = u64::from(self.room).checked_sub(cost);
        let (Some(used), Some(room)) = (sum, room) else {
            return false;
        };
        self.used = used;
        self.room = u32::try_from(room).unwrap_or(MAX_ROOM);
        true
    }

    /// What was used, as a change that is to be reported. It counts as of a moment at which all of it had
    /// been used, in the window or cell in which it was used.
    pub(super) fn take_used(&mut self, now: Tick) -> Option<Change> {
        let cost = u64::from(std::mem::take(&mut self.used));
        let last = Tick::from_nanos(self.until.as_nanos().saturating_sub(1));
        let taken_at = now.min(last);
        (cost > 0).then_some(Change::Charge { taken_at, cost })
    }
}

impl Own for Held {
    fn is_kept(&self) -> bool {
        self.is_listed
    }

    #[inline]
    fn after(mut self, now: Tick, cost: u64) -> Option<Self> {
        let may_decide = now < self.until && (self.is_denying || self.is_listed && self.take(cost));
        may_decide.then_some(self)
    }

    #[inline]
    fn may_admit(&self) -> bool {
        !self.is_denying
    }

    #[inline]
    fn may_deny(&self) -> bool {
        true
    }

    #[inline]
    fn to_words(self) -> [u64; OWN_WORDS] {
        [
            self.until.as_nanos() << 1 | u64::from(self.is_listed),
            u64::from(self.used) << 32 | u64::from(self.room) << 1 | u64::from(self.is_denying),
        ]
    }

    #[expect(clippy::cast_possible_truncation, reason = "the halves of a word")]
    #[inline]
    fn from_words(words: &[u64]) -> Self {
        let &[end, counts] = words else {
            return Self::default();
        };
        Self {
            is_listed: end & 1 == 1,
            until: Tick::from_nanos(end >> 1),
            used: (counts >> 32) as u32,
            room: counts as u32 >> 1,
            is_denying: counts & 1 == 1,
        }
    }
}
