//! The moments of a log. Most keys are used seldom, so a few moments stand in place: that is one look
//! at memory less, and nothing to allocate.

use std::collections::VecDeque;

use crate::clock::Tick;

/// So many stand in place.
const INLINE_LEN: usize = 3;

/// The room of those that do not, at first. It doubles.
const MIN_HEAP_LEN: usize = 8;

/// A moment, and the sum of all costs up to it, modulo 2^64: what lies between two moments is a
/// subtraction, and where a sum is reached a binary search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) at: Tick,
    pub(super) total: u64,
}

/// Moments, the oldest first.
#[derive(Debug)]
pub(super) struct Timestamps(Repr);

#[derive(Debug)]
enum Repr {
    Inline {
        at: [Tick; INLINE_LEN],
        costs: [u32; INLINE_LEN],
        len: u8,
    },
    Heap {
        /// Not empty.
        entries: VecDeque<Entry>,
        /// The total of the last one that has left.
        left: u64,
    },
}

impl Default for Timestamps {
    fn default() -> Self {
        Self(Repr::Inline {
            at: [Tick::ZERO; INLINE_LEN],
            costs: [0; INLINE_LEN],
            len: 0,
        })
    }
}

/// By hand: a copy has as much room, so that it grows by the same steps.
impl Clone for Timestamps {
    fn clone(&self) -> Self {
        Self(match &self.0 {
            Repr::Inline { at, costs, len } => Repr::Inline {
                at: *at,
                costs: *costs,
                len: *len,
            },
            Repr::Heap { entries, left } => {
                let mut copy = VecDeque::with_capacity(entries.capacity());
                copy.extend(entries);
                Repr::Heap {
                    entries: copy,
                    left: *left,
                }
            }
        })
    }
}

impl Timestamps {
    #[inline]
    pub(super) fn len(&self) -> usize {
        match &self.0 {
            Repr::Inline { len, .. } => usize::from(*len),
            Repr::Heap { entries, .. } => entries.len(),
        }
    }

    #[inline]
    pub(super) fn get(&self, place: usize) -> Option<Entry> {
        match &self.0 {
            Repr::Inline { at, len, .. } => (place < usize::from(*len)).then(|| Entry {
                at: at[place],
                total: self.total_before(place + 1),
            }),
            Repr::Heap { entries, .. } => entries.get(place).copied(),
        }
    }

    #[inline]
    pub(super) fn front(&self) -> Option<Entry> {
        self.get(0)
    }

    #[inline]
    pub(super) fn back(&self) -> Option<Entry> {
        self.get(self.len().wrapping_sub(1))
    }

    /// The total of what comes before `place`, which is there or is the end.
    #[inline]
    pub(super) fn total_before(&self, place: usize) -> u64 {
        match &self.0 {
            Repr::Inline { costs, .. } => costs.iter().take(place).copied().map(u64::from).sum(),
            Repr::Heap { entries, left } => {
                let before = place.checked_sub(1).and_then(|place| entries.get(place));
                before.map_or(*left, |before| before.total)
            }
        }
    }

    /// How many are `gone`, of which those are that come first.
    #[inline]
    pub(super) fn partition_point(&self, mut gone: impl FnMut(Entry) -> bool) -> usize {
        match &self.0 {
            Repr::Inline { .. } => (0..INLINE_LEN)
                .take_while(|place| self.get(*place).is_some_and(&mut gone))
                .count(),
            Repr::Heap { entries, .. } => entries.partition_point(|entry| gone(*entry)),
        }
    }

    #[inline]
    pub(super) fn push_back(&mut self, now: Tick, cost: u64) {
        if let Repr::Inline { at, costs, len } = &mut self.0 {
            let place = usize::from(*len);
            if let (true, Ok(cost)) = (place < INLINE_LEN, u32::try_from(cost)) {
                at[place] = now;
                costs[place] = cost;
                *len += 1;
                return;
            }
        }
        let total = self.total_before(self.len()).wrapping_add(cost);
        self.many(|entries| entries.push_back(Entry { at: now, total }));
    }

    /// Makes the newest later, and its cost another one.
    #[inline]
    pub(super) fn replace_back(&mut self, at: Tick, cost: u64) {
        let last = self.len().wrapping_sub(1);
        if let Repr::Inline { at: ats, costs, .. } = &mut self.0 {
            match (costs.get_mut(last), u32::try_from(cost)) {
                (Some(known), Ok(cost)) => {
                    ats[last] = at;
                    *known = cost;
                    return;
                }
                (None, _) => return,
                // It needs more room.
                (Some(_), Err(_)) => {}
            }
        }
        let total = self.total_before(last).wrapping_add(cost);
        self.many(|entries| {
            if let Some(back) = entries.back_mut() {
                *back = Entry { at, total };
            }
        });
    }

    /// Changes the entries where there is room for any, and which are not empty then.
    #[inline]
    fn many(&mut self, change: impl FnOnce(&mut VecDeque<Entry>)) {
        if let Repr::Heap { entries, .. } = &mut self.0 {
            change(entries);
        } else {
            let mut entries = VecDeque::with_capacity(MIN_HEAP_LEN);
            entries.extend((0..INLINE_LEN).map_while(|place| self.get(place)));
            change(&mut entries);
            self.0 = Repr::Heap { entries, left: 0 };
        }
    }

    pub(super) fn pop_back(&mut self) {
        match &mut self.0 {
            Repr::Inline { len, .. } => *len = len.saturating_sub(1),
            Repr::Heap { entries, .. } => {
                entries.pop_back();
                if entries.is_empty() {
                    *self = Self::default();
                }
            }
        }
    }

    /// Drops the first `gone`, of which there are so many.
    #[inline]
    pub(super) fn drop_first(&mut self, gone: usize) {
        let left_before = self.total_before(gone);
        match &mut self.0 {
            Repr::Inline { at, costs, len } => {
                let gone = gone.min(INLINE_LEN);
                at.copy_within(gone.., 0);
                costs.copy_within(gone.., 0);
                *len = len.saturating_sub(u8::try_from(gone).unwrap_or(u8::MAX));
            }
            Repr::Heap { entries, left } if gone < entries.len() => {
                *left = left_before;
                if gone == 1 {
                    entries.pop_front();
                } else {
                    entries.drain(..gone);
                }
                if entries.capacity() / 8 >= entries.len().max(MIN_HEAP_LEN) {
                    // Under an earlier quota, or in another hour, there were many more.
                    entries.shrink_to(entries.len().next_power_of_two().max(MIN_HEAP_LEN));
                }
            }
            // A key that is idle keeps no room.
            Repr::Heap { .. } => *self = Self::default(),
        }
    }

    /// What it has allocated.
    pub(super) fn held_bytes(&self) -> usize {
        match &self.0 {
            Repr::Inline { .. } => 0,
            Repr::Heap { entries, .. } => entries.capacity() * size_of::<Entry>(),
        }
    }

    /// What one of `len` moments may have allocated at the most.
    pub(super) fn max_heap_bytes(len: usize) -> usize {
        let room = len.checked_next_power_of_two().unwrap_or(usize::MAX);
        room.max(MIN_HEAP_LEN).saturating_mul(size_of::<Entry>())
    }
}

/// By hand: what counts is what each moment cost.
impl PartialEq for Timestamps {
    fn eq(&self, other: &Self) -> bool {
        let moment = |ring: &Self, place| {
            let entry = ring.get(place)?;
            let cost = entry.total.wrapping_sub(ring.total_before(place));
            Some((entry.at, cost))
        };
        self.len() == other.len()
            && (0..self.len()).all(|place| moment(self, place) == moment(other, place))
    }
}

impl Eq for Timestamps {}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE: u64 = 1 << 40;

    /// Whatever is done, it is as in a plain list of moments and costs.
    fn compare(ring: &Timestamps, list: &[(u64, u64)]) {
        assert_eq!(ring.len(), list.len());
        let mut total = ring.total_before(0);
        for (place, (at, cost)) in list.iter().enumerate() {
            assert_eq!(ring.total_before(place), total);
            total = total.wrapping_add(*cost);
            let at = Tick::from_nanos(*at);
            assert_eq!(ring.get(place), Some(Entry { at, total }));
        }
        assert_eq!(ring.get(list.len()), None);
        assert_eq!(ring.front(), ring.get(0));
        assert_eq!(
            ring.back(),
            list.len().checked_sub(1).and_then(|last| ring.get(last))
        );
    }

    #[test]
    fn timestamps_behave_like_a_list() {
        let mut seed = 7_u64;
        let mut random = |below: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            usize::try_from(seed >> 33).unwrap() % below
        };
        let (mut ring, mut list) = (Timestamps::default(), Vec::new());
        let mut longest = 0;
        for step in 0..30_000_u64 {
            // In turn it grows and shrinks, with small costs and now and then a large one.
            let cost = if random(20) == 0 { LARGE } else { step % 7 + 1 };
            match random(if step / 100 % 2 == 0 { 6 } else { 10 }) {
                0..=3 => {
                    ring.push_back(Tick::from_nanos(step), cost);
                    list.push((step, cost));
                }
                4 => {
                    ring.pop_back();
                    list.pop();
                }
                5 => {
                    ring.replace_back(Tick::from_nanos(step), cost);
                    if let Some(last) = list.last_mut() {
                        *last = (step, cost);
                    }
                }
                _ => {
                    let gone = random(list.len().min(6) + 1);
                    ring.drop_first(gone);
                    list.drain(..gone);
                }
            }
            longest = longest.max(list.len());
            compare(&ring, &list);
            let old = |at: u64| at + 10 < step;
            let gone = ring.partition_point(|entry| old(entry.at.as_nanos()));
            assert_eq!(gone, list.partition_point(|(at, _)| old(*at)));
            assert!(ring.held_bytes() <= Timestamps::max_heap_bytes(longest));
            assert_eq!(ring.clone().held_bytes(), ring.held_bytes());
            if list.is_empty() {
                assert_eq!(ring.held_bytes(), 0, "an idle one keeps no room");
            }
        }
        assert!(longest > 2 * MIN_HEAP_LEN, "{longest}");
    }

    #[test]
    fn totals_wrap_around() {
        let (mut ring, mut list) = (Timestamps::default(), Vec::new());
        for step in 0..40 {
            ring.push_back(Tick::from_nanos(step), 1 << 62);
            list.push((step, 1 << 62));
            if step > 10 {
                ring.drop_first(1);
                list.remove(0);
            }
            compare(&ring, &list);
        }
    }

    #[test]
    fn unused_capacity_is_released() {
        let mut ring = Timestamps::default();
        (0..1_000).for_each(|n| ring.push_back(Tick::from_nanos(n), 1));
        assert_eq!(ring.held_bytes(), Timestamps::max_heap_bytes(1_000));
        for n in 1_000..2_000 {
            ring.push_back(Tick::from_nanos(n), 1);
            ring.drop_first(if n % 2 == 0 { 1 } else { 2 });
        }
        // Half of it is still there, and then a little.
        assert_eq!(ring.held_bytes(), Timestamps::max_heap_bytes(1_000));
        ring.drop_first(ring.len() - 5);
        assert!(
            ring.held_bytes() <= Timestamps::max_heap_bytes(5),
            "{ring:?}"
        );
    }

    #[test]
    fn equality_ignores_the_representation() {
        let (mut few, mut many) = (Timestamps::default(), Timestamps::default());
        few.push_back(Tick::from_nanos(9), 9);
        (1..=9).for_each(|n| many.push_back(Tick::from_nanos(n), n));
        assert_ne!(few, many);
        many.drop_first(8);
        assert!(many.held_bytes() > few.held_bytes());
        assert_eq!(few, many);
        few.replace_back(Tick::from_nanos(9), 8);
        assert_ne!(few, many);
    }
}
