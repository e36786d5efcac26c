//! States that also hold what this machine has taken ahead.

use crate::clock::Tick;
use crate::store::beside::{Beside, BesideState, OWN_WORDS, Own};

/// An algorithm whose states also hold the units of this machine.
pub(super) type Leasing<A> = Beside<A, Held>;

/// The state of a key on one machine: that of the fleet as of the last exchange, with what this machine
/// has used since.
pub(super) type LeasedState<S> = BesideState<S, Held>;

/// The most units that the fast path may use before the slow path runs.
pub(super) const MAX_ROOM: u64 = (1 << ROOM_BITS) - 1;

/// What this machine may use of a key without the slow path, as one word. So a decision reads and writes
/// two words if the state of the key is one.
///
/// ```text
/// | moment at which the slow path decides | units | denies | listed |
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held(u64);

/// Whether there are units, or units that were used and are to be reported.
const LISTED: u64 = 1;
/// Whether nothing is left, as of an exchange. Then requests are denied as the state says.
const DENIES: u64 = 2;
const ROOM_SHIFT: u32 = 2;
const ROOM_BITS: u32 = 15;
const END_SHIFT: u32 = ROOM_SHIFT + ROOM_BITS;
/// Moments are kept in units of 2^16 ns, so that every [`Tick`] fits.
const MOMENT_BITS: u32 = 16;

const _: () = assert!(Tick::MAX.as_nanos() >> MOMENT_BITS >> (u64::BITS - END_SHIFT) == 0);

impl Held {
    /// At most [`MAX_ROOM`] units, which may be used until then.
    pub(super) fn units(room: u64, until: Tick) -> Self {
        Self(end_of(until) | room.min(MAX_ROOM) << ROOM_SHIFT | LISTED)
    }

    /// No units until then: requests are denied as the state says.
    pub(super) fn denial(until: Tick) -> Self {
        Self(end_of(until) | DENIES)
    }

    pub(super) const fn is_listed(self) -> bool {
        self.0 & LISTED != 0
    }

    pub(super) const fn is_denying(self) -> bool {
        self.0 & DENIES != 0
    }

    /// How many units may be used.
    pub(super) const fn room(self) -> u64 {
        self.0 >> ROOM_SHIFT & MAX_ROOM
    }

    /// Takes the units that may be used.
    pub(super) fn take_room(&mut self) -> u64 {
        let room = self.room();
        self.0 -= room << ROOM_SHIFT;
        room
    }

    /// A moment at which all that was used had been used, in the window or cell in which it was used.
    pub(super) fn last_moment(self, now: Tick) -> Tick {
        let end = self.0 >> END_SHIFT << MOMENT_BITS;
        now.min(Tick::from_nanos(end.saturating_sub(1)))
    }
}

/// A moment as a part of the word. It is rounded down, because nothing may be used later.
const fn end_of(until: Tick) -> u64 {
    until.as_nanos() >> MOMENT_BITS << END_SHIFT
}

impl Own for Held {
    const WORDS: usize = 1;
    const WORDS_WITHOUT_CELLS: usize = 1;

    fn is_kept(&self) -> bool {
        self.is_listed()
    }

    #[inline]
    fn after(self, now: Tick, cost: u64) -> Option<Self> {
        if now.as_nanos() >> MOMENT_BITS >= self.0 >> END_SHIFT {
            return None;
        }
        if self.is_denying() {
            return Some(self);
        }
        // What is not listed has no units.
        (cost <= self.room()).then(|| Self(self.0 - (cost << ROOM_SHIFT)))
    }

    #[inline]
    fn may_admit(&self) -> bool {
        !self.is_denying()
    }

    #[inline]
    fn after_denial(self) -> Option<Self> {
        Some(self)
    }

    #[inline]
    fn to_words(self) -> [u64; OWN_WORDS] {
        [self.0, 0]
    }

    #[inline]
    fn from_words(words: &[u64]) -> Self {
        Self(words.first().copied().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn units_are_used_one_by_one_until_they_run_out_or_their_time_is_over() {
        let end = Tick::from_nanos(1_790_000_000_000_000_000);
        let just = |early| Tick::from_nanos(end.as_nanos() - early);
        let mut held = Held::units(5, end);
        assert!(held.is_listed() && held.may_admit());
        for (cost, left) in [
            (1, Some(4)),
            (5, None),
            (3, Some(1)),
            (1, Some(0)),
            (1, None),
        ] {
            let after = held.after(just(1 << 20), cost);
            assert_eq!(after.map(Held::room), left, "cost {cost}");
            held = after.unwrap_or(held);
        }
        let held = Held::units(5, end);
        assert_eq!(held.after(end, 1), None);
        assert_eq!(held.after(just(1 << 17), 1).map(Held::room), Some(4));
        assert_eq!(held.after(just(1 << 17), u64::MAX), None);
    }

    /// Otherwise a unit could count in a window in which it was not used.
    #[test]
    fn no_unit_is_used_after_the_moment_as_of_which_it_counts() {
        for until in [
            0,
            1,
            65_535,
            65_536,
            1_790_000_000_123_456_789,
            i64::MAX as u64,
        ] {
            let until = Tick::from_nanos(until);
            let held = Held::units(MAX_ROOM + 7, until);
            assert_eq!(held.room(), MAX_ROOM);
            let last = held.last_moment(Tick::MAX);
            assert!(last < until || until == Tick::ZERO);
            assert!(until.since(last) <= Duration::from_nanos(1 << MOMENT_BITS));
            for at in [last, last.plus(Duration::from_nanos(1)), until] {
                let is_usable = held.after(at, 1).is_some();
                assert_eq!(is_usable, at <= last && until.as_nanos() > 65_535, "{at:?}");
            }
        }
    }

    #[test]
    fn a_denial_takes_nothing_and_ends() {
        let end = Tick::from_nanos(1 << 40);
        let denial = Held::denial(end);
        assert!(!denial.is_listed() && !denial.may_admit());
        assert_eq!(denial.after(Tick::ZERO, 1), Some(denial));
        assert_eq!(denial.after(end, 1), None);
        assert_eq!(Held::default().after(Tick::ZERO, 1), None);
    }
}
