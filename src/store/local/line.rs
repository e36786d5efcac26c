//! A line of slots, which are read together: a few states, and 40 bits for each of them.

use std::array::from_fn;

/// The slots of a line. Three states of 16 bytes take 64 bytes, which is a cache line.
pub(super) const SLOTS: usize = 3;
/// A key may use so many lines.
pub(super) const WINDOW: usize = 32;
/// So many low bits of a hash are stored. The distance of the line from the home of the key is above them.
pub(super) const FINGERPRINT_BITS: u32 = 34;
/// In the last bits of a slot: the last request was denied.
const DENIED: u8 = 1 << 7;
/// The same in the [`marked_tag`](SlotLine::marked_tag).
pub(super) const DENIED_MARK: u64 = (DENIED as u64) << 32;

#[derive(Clone)]
#[repr(C)]
pub(super) struct SlotLine<S> {
    /// That of an empty slot is unused.
    pub(super) states: [S; SLOTS],
    /// The low and the high bits of the tags. They are zero if the slot is empty.
    low: [u32; SLOTS],
    high: [u8; SLOTS],
    /// The greatest distance of a key whose home this line is.
    pub(super) reach: u8,
}

impl<S> SlotLine<S> {
    pub(super) fn empty(fresh: impl Fn() -> S) -> Self {
        Self {
            states: from_fn(|_| fresh()),
            low: [0; SLOTS],
            high: [0; SLOTS],
            reach: 0,
        }
    }

    #[inline]
    fn tag(&self, slot: usize) -> u64 {
        self.marked_tag(slot) & !DENIED_MARK
    }

    #[inline]
    pub(super) fn find(&self, tag: u64) -> Option<usize> {
        (0..SLOTS).find(|slot| self.tag(*slot) == tag)
    }

    pub(super) fn empty_slot(&self) -> Option<usize> {
        self.find(0)
    }

    /// The tag of a slot in use, and whether the last request was denied, as one number.
    #[inline]
    pub(super) fn marked_tag(&self, slot: usize) -> u64 {
        u64::from(self.low[slot]) | u64::from(self.high[slot]) << 32
    }

    /// Whether a key at this distance from its home is in it.
    pub(super) fn has_distance(&self, distance: usize) -> bool {
        let tagged = |slot| self.tag(slot) >> FINGERPRINT_BITS == distance as u64;
        (0..SLOTS).any(tagged)
    }

    #[inline]
    pub(super) fn is_denied(&self, slot: usize) -> bool {
        self.high[slot] & DENIED != 0
    }

    /// Writes nothing if it is so already: the line stays in the caches of other processors.
    #[inline]
    pub(super) fn set_denied(&mut self, slot: usize, is_denied: bool) {
        if self.is_denied(slot) != is_denied {
            self.high[slot] ^= DENIED;
        }
    }

    /// The slots in use.
    pub(super) fn used(&self) -> impl Iterator<Item = usize> + use<S> {
        let used: [bool; SLOTS] = from_fn(|slot| self.tag(slot) != 0);
        (0..SLOTS).filter(move |slot| used[*slot])
    }

    /// Sets what a slot has. A tag of zero empties it.
    #[expect(clippy::cast_possible_truncation, reason = "a marked tag has 40 bits")]
    pub(super) fn put(&mut self, slot: usize, marked_tag: u64, state: S) {
        self.states[slot] = state;
        self.low[slot] = marked_tag as u32;
        self.high[slot] = (marked_tag >> 32) as u8;
    }
}

/// How many lines after the home of a key its line of this number is. They lie further and further apart, so that a run
/// of full lines does not grow at its end.
#[inline]
pub(super) const fn offset(number: usize) -> usize {
    number * (number + 1) / 2
}

/// What is stored of a key with this hash, at this distance from its home. Never zero.
#[inline]
pub(super) const fn tag(hash: u64, distance: usize) -> u64 {
    let fingerprint = hash & ((1 << FINGERPRINT_BITS) - 1);
    // Zero marks an empty slot.
    let fingerprint = if fingerprint == 0 { 1 } else { fingerprint };
    fingerprint | (distance as u64) << FINGERPRINT_BITS
}
