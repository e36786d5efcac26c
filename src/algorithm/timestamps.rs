//! The moments of a log, oldest first.
//!
//! Most keys are used rarely, so up to three moments are stored inline: one memory access less and
//! no allocation.

use std::collections::VecDeque;

use super::fields::Fields;
use crate::clock::Tick;

/// How many entries are stored inline.
const INLINE_LEN: usize = 3;

/// The first capacity on the heap. It doubles.
const MIN_HEAP_LEN: usize = 8;

/// A moment, and the sum of all costs up to it, modulo 2^64. The cost between two moments is a
/// subtraction, and the moment when a sum is reached is a binary search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) at: Tick,
    pub(super) total: u64,
}

/// Moments, oldest first; up to three are stored inline.
#[derive(Debug)]
pub(super) struct Timestamps(Repr);

#[derive(Debug)]
enum Repr {
    Inline {
        times: [Tick; INLINE_LEN],
        costs: [u32; INLINE_LEN],
        len: u8,
    },
    Heap {
        /// Not empty.
        entries: VecDeque<Entry>,
        /// The total of the last entry that was removed.
        removed_total: u64,
    },
}

impl Default for Timestamps {
    fn default() -> Self {
        Self(Repr::Inline {
            times: [Tick::ZERO; INLINE_LEN],
            costs: [0; INLINE_LEN],
            len: 0,
        })
    }
}

/// Manual impl: a copy keeps the capacity, so that it grows in the same steps.
impl Clone for Timestamps {
    fn clone(&self) -> Self {
        Self(match &self.0 {
            Repr::Inline { times, costs, len } => Repr::Inline {
                times: *times,
                costs: *costs,
                len: *len,
            },
            Repr::Heap {
                entries,
                removed_total,
            } => {
                let mut copy = VecDeque::with_capacity(entries.capacity());
                copy.extend(entries);
                Repr::Heap {
                    entries: copy,
                    removed_total: *removed_total,
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
            Repr::Inline { times, len, .. } => (place < usize::from(*len)).then(|| Entry {
                at: times[place],
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

    /// The total of the entries before `place`, which is at most the length.
    #[inline]
    pub(super) fn total_before(&self, place: usize) -> u64 {
        match &self.0 {
            Repr::Inline { costs, .. } => costs.iter().take(place).copied().map(u64::from).sum(),
            Repr::Heap {
                entries,
                removed_total,
            } => {
                let before = place.checked_sub(1).and_then(|place| entries.get(place));
                before.map_or(*removed_total, |before| before.total)
            }
        }
    }

    /// The cost of the entries from `place` on.
    pub(super) fn total_from(&self, place: usize) -> u64 {
        let all = self.total_before(self.len());
        all.wrapping_sub(self.total_before(place))
    }

    /// The cost of the newest moment.
    pub(super) fn newest_cost(&self) -> u64 {
        self.total_from(self.len().saturating_sub(1))
    }

    /// The moment of the entry that completes `enough` cost, counted from `place` on.
    pub(super) fn completes(&self, place: usize, enough: u64) -> Option<Tick> {
        let first = self.total_before(0);
        let since = |total: u64| total.wrapping_sub(first);
        let target = since(self.total_before(place)) + enough;
        let reaches = |entry: &Entry| since(entry.total) >= target;
        // Usually that is the first one.
        let found = self.get(place).filter(reaches);
        let found = found.or_else(|| self.get(self.partition_point(|entry| !reaches(&entry))));
        found.map(|entry| entry.at)
    }

    /// Removes `cost` of the entries up to `taken_at`, newest first. The first `kept` entries stay.
    pub(super) fn take_back(&mut self, kept: usize, taken_at: Tick, cost: u64) {
        let mut newer = Vec::new();
        let mut left = cost;
        while let Some(last) = self.back().filter(|_| left > 0 && self.len() > kept) {
            let held = self.newest_cost();
            if last.at > taken_at {
                newer.push((last.at, held));
            } else if held > left {
                self.replace_back(last.at, held - left);
                break;
            } else {
                left -= held;
            }
            self.pop_back();
        }
        for (at, held) in newer.into_iter().rev() {
            self.push_back(at, held);
        }
    }

    /// How many of the first entries satisfy `expired`.
    #[inline]
    pub(super) fn partition_point(&self, mut expired: impl FnMut(Entry) -> bool) -> usize {
        match &self.0 {
            Repr::Inline { .. } => (0..INLINE_LEN)
                .take_while(|place| self.get(*place).is_some_and(&mut expired))
                .count(),
            Repr::Heap { entries, .. } => entries.partition_point(|entry| expired(*entry)),
        }
    }

    #[inline]
    pub(super) fn push_back(&mut self, now: Tick, cost: u64) {
        if let Repr::Inline { times, costs, len } = &mut self.0 {
            let place = usize::from(*len);
            if let (true, Ok(cost)) = (place < INLINE_LEN, u32::try_from(cost)) {
                times[place] = now;
                costs[place] = cost;
                *len += 1;
                return;
            }
        }
        let total = self.total_before(self.len()).wrapping_add(cost);
        self.update_heap(|entries| entries.push_back(Entry { at: now, total }));
    }

    /// Replaces the moment and the cost of the newest entry.
    #[inline]
    pub(super) fn replace_back(&mut self, at: Tick, cost: u64) {
        let last = self.len().wrapping_sub(1);
        if let Repr::Inline { times, costs, .. } = &mut self.0 {
            match (costs.get_mut(last), u32::try_from(cost)) {
                (Some(known), Ok(cost)) => {
                    times[last] = at;
                    *known = cost;
                    return;
                }
                (None, _) => return,
                // The cost does not fit inline.
                (Some(_), Err(_)) => {}
            }
        }
        let total = self.total_before(last).wrapping_add(cost);
        self.update_heap(|entries| {
            if let Some(back) = entries.back_mut() {
                *back = Entry { at, total };
            }
        });
    }

    /// Moves the entries to the heap and changes them. `change` must leave at least one entry.
    #[inline]
    fn update_heap(&mut self, change: impl FnOnce(&mut VecDeque<Entry>)) {
        if let Repr::Heap { entries, .. } = &mut self.0 {
            change(entries);
        } else {
            let mut entries = VecDeque::with_capacity(MIN_HEAP_LEN);
            entries.extend((0..INLINE_LEN).map_while(|place| self.get(place)));
            change(&mut entries);
            self.0 = Repr::Heap {
                entries,
                removed_total: 0,
            };
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

    /// Removes the first `count` entries; there are at least that many.
    #[inline]
    pub(super) fn remove_front(&mut self, count: usize) {
        let total = self.total_before(count);
        match &mut self.0 {
            Repr::Inline { times, costs, len } => {
                let count = count.min(INLINE_LEN);
                times.copy_within(count.., 0);
                costs.copy_within(count.., 0);
                *len = len.saturating_sub(u8::try_from(count).unwrap_or(u8::MAX));
            }
            Repr::Heap {
                entries,
                removed_total,
            } if count < entries.len() => {
                *removed_total = total;
                if count == 1 {
                    entries.pop_front();
                } else {
                    entries.drain(..count);
                }
                if entries.capacity() / 8 >= entries.len().max(MIN_HEAP_LEN) {
                    // The log was longer, under an earlier quota or more traffic.
                    entries.shrink_to(entries.len().next_power_of_two().max(MIN_HEAP_LEN));
                }
            }
            // An idle key keeps no memory.
            Repr::Heap { .. } => *self = Self::default(),
        }
    }

    /// Lists the entries, oldest first: how much later than the entry before, and the cost.
    pub(super) fn list(&mut self, fields: &mut Fields<'_>) {
        let entries = std::mem::take(self);
        let mut len = entries.len() as u64;
        fields.u64(&mut len);
        let (mut last, mut total) = (0, entries.total_before(0));
        for place in 0..len {
            let entry = usize::try_from(place)
                .ok()
                .and_then(|place| entries.get(place));
            let (mut later, mut cost) = entry.map_or((0, 0), |entry| {
                (entry.at.as_nanos() - last, entry.total.wrapping_sub(total))
            });
            fields.moment(&mut later);
            fields.moment(&mut cost);
            total = total.wrapping_add(cost);
            last += later;
            // Only of the newest moment can all be refunded.
            fields.require(last <= Tick::MAX.as_nanos() && (cost > 0 || place + 1 == len));
            if fields.has_failed() {
                return;
            }
            self.push_back(Tick::from_nanos(last), cost);
        }
    }

    /// The bytes on the heap.
    pub(super) fn heap_bytes(&self) -> usize {
        match &self.0 {
            Repr::Inline { .. } => 0,
            Repr::Heap { entries, .. } => entries.capacity() * size_of::<Entry>(),
        }
    }

    /// An upper bound of [`heap_bytes`](Self::heap_bytes) for up to `len` moments.
    pub(super) fn max_heap_bytes(len: usize) -> usize {
        let capacity = len.checked_next_power_of_two().unwrap_or(usize::MAX);
        capacity
            .max(MIN_HEAP_LEN)
            .saturating_mul(size_of::<Entry>())
    }
}

/// Manual impl: equal moments and costs are equal, wherever they are stored.
impl PartialEq for Timestamps {
    fn eq(&self, other: &Self) -> bool {
        let moment = |entries: &Self, place| {
            let entry = entries.get(place)?;
            let cost = entry.total.wrapping_sub(entries.total_before(place));
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

    /// Compares with a plain list of moments and costs.
    fn compare(log: &Timestamps, list: &[(u64, u64)]) {
        assert_eq!(log.len(), list.len());
        let mut total = log.total_before(0);
        for (place, (at, cost)) in list.iter().enumerate() {
            assert_eq!(log.total_before(place), total);
            total = total.wrapping_add(*cost);
            let at = Tick::from_nanos(*at);
            assert_eq!(log.get(place), Some(Entry { at, total }));
        }
        assert_eq!(log.get(list.len()), None);
        assert_eq!(log.front(), log.get(0));
        assert_eq!(
            log.back(),
            list.len().checked_sub(1).and_then(|last| log.get(last))
        );
    }

    #[test]
    fn timestamps_behave_like_a_list() {
        let mut seed = 7_u64;
        let mut random = |below: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            usize::try_from(seed >> 33).unwrap() % below
        };
        let (mut log, mut list) = (Timestamps::default(), Vec::new());
        let mut longest = 0;
        for step in 0..30_000_u64 {
            // It grows and shrinks in turns, with mostly small costs.
            let cost = if random(20) == 0 { LARGE } else { step % 7 + 1 };
            match random(if step / 100 % 2 == 0 { 6 } else { 10 }) {
                0..=3 => {
                    log.push_back(Tick::from_nanos(step), cost);
                    list.push((step, cost));
                }
                4 => {
                    log.pop_back();
                    list.pop();
                }
                5 => {
                    log.replace_back(Tick::from_nanos(step), cost);
                    if let Some(last) = list.last_mut() {
                        *last = (step, cost);
                    }
                }
                _ => {
                    let gone = random(list.len().min(6) + 1);
                    log.remove_front(gone);
                    list.drain(..gone);
                }
            }
            longest = longest.max(list.len());
            compare(&log, &list);
            let old = |at: u64| at + 10 < step;
            let gone = log.partition_point(|entry| old(entry.at.as_nanos()));
            assert_eq!(gone, list.partition_point(|(at, _)| old(*at)));
            assert!(log.heap_bytes() <= Timestamps::max_heap_bytes(longest));
            assert_eq!(log.clone().heap_bytes(), log.heap_bytes());
            if list.is_empty() {
                assert_eq!(log.heap_bytes(), 0, "an idle log keeps no memory");
            }
        }
        assert!(longest > 2 * MIN_HEAP_LEN, "{longest}");
    }

    #[test]
    fn totals_wrap_around() {
        let (mut log, mut list) = (Timestamps::default(), Vec::new());
        for step in 0..40 {
            log.push_back(Tick::from_nanos(step), 1 << 62);
            list.push((step, 1 << 62));
            if step > 10 {
                log.remove_front(1);
                list.remove(0);
            }
            compare(&log, &list);
        }
    }

    #[test]
    fn unused_capacity_is_released() {
        let mut log = Timestamps::default();
        (0..1_000).for_each(|n| log.push_back(Tick::from_nanos(n), 1));
        assert_eq!(log.heap_bytes(), Timestamps::max_heap_bytes(1_000));
        for n in 1_000..2_000 {
            log.push_back(Tick::from_nanos(n), 1);
            log.remove_front(if n % 2 == 0 { 1 } else { 2 });
        }
        // Half of the entries are still in use, so the capacity stays.
        assert_eq!(log.heap_bytes(), Timestamps::max_heap_bytes(1_000));
        log.remove_front(log.len() - 5);
        assert!(log.heap_bytes() <= Timestamps::max_heap_bytes(5), "{log:?}");
    }

    #[test]
    fn equality_ignores_the_representation() {
        let (mut few, mut many) = (Timestamps::default(), Timestamps::default());
        few.push_back(Tick::from_nanos(9), 9);
        (1..=9).for_each(|n| many.push_back(Tick::from_nanos(n), n));
        assert_ne!(few, many);
        many.remove_front(8);
        assert!(many.heap_bytes() > few.heap_bytes());
        assert_eq!(few, many);
        few.replace_back(Tick::from_nanos(9), 8);
        assert_ne!(few, many);
    }
}
