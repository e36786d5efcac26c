//! Sorted ranges of numbers.
//!
//! ```text
//! prefixes    [--------- listed ---------]      [- listed -]
//!                   [excepted]
//! edges       |     |         |          |      |          |
//! ```
//!
//! Nested prefixes are flattened when the list is made: the longest prefix of a number decides. A
//! number is listed if an odd number of edges is at or below it.

/// A range of numbers, both ends included, and whether they are listed. Two ranges are disjoint or
/// nested, because they are prefixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) first: u128,
    pub(super) last: u128,
    pub(super) is_listed: bool,
}

/// The numbers at which being listed begins or ends, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Edges<T> {
    numbers: Box<[T]>,
    /// How many edges are before each group of numbers, and before the end.
    before: Box<[u32]>,
    /// Each group has `2^shift` numbers, the first one from here on. The last has all after it, too.
    first: u128,
    shift: u32,
}

impl<T: Copy + Ord + TryFrom<u128> + Into<u128>> Edges<T> {
    pub(super) fn new(ranges: Vec<Range>) -> Self {
        // The edge after the last IPv4 address is none.
        let edges = edges(ranges).into_iter();
        let edges: Box<[T]> = edges.filter_map(|edge| T::try_from(edge).ok()).collect();
        // Groups of few edges, if they are spread evenly. Two at least, as a shift by all bits overflows.
        let bits = (edges.len() / 4).max(2).ilog2();
        let number = |edge: Option<&T>| edge.map_or(0, |edge| (*edge).into());
        let (first, last) = (number(edges.first()), number(edges.last()));
        let shift = (u128::BITS - (last - first).leading_zeros()).saturating_sub(bits);
        let before = (0..1 << bits).map(|group: u128| {
            let is_before = |edge: &T| ((*edge).into() - first) >> shift < group;
            edges.partition_point(is_before)
        });
        let before = before.chain([edges.len()]);
        let before = before.map(|count| u32::try_from(count).unwrap_or(u32::MAX));
        Self {
            before: before.collect(),
            numbers: edges,
            first,
            shift,
        }
    }

    /// Whether `number` is listed: if an odd number of edges is at or below it.
    #[inline]
    pub(super) fn contains(&self, number: T) -> bool {
        let group = number.into().saturating_sub(self.first) >> self.shift;
        let group = usize::try_from(group)
            .unwrap_or(usize::MAX)
            .min(self.before.len() - 2);
        let (from, to) = (self.before[group] as usize, self.before[group + 1] as usize);
        let in_group = self.numbers[from..to].partition_point(|edge| *edge <= number);
        (from + in_group) % 2 == 1
    }

    pub(super) const fn len(&self) -> usize {
        self.numbers.len()
    }
}

impl<T: Copy + Ord + TryFrom<u128> + Into<u128>> Default for Edges<T> {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

fn edges(mut ranges: Vec<Range>) -> Vec<u128> {
    // An outer range before those within it.
    ranges.sort_unstable_by(|a, b| a.first.cmp(&b.first).then(b.last.cmp(&a.last)));
    let mut changes = Changes::default();
    let mut open = Vec::<Range>::new();
    for range in ranges {
        while let Some(ended) = open.last().copied().filter(|open| open.last < range.first) {
            open.pop();
            changes.end(ended, open.last());
        }
        changes.set(range.first, range.is_listed);
        open.push(range);
    }
    while let Some(ended) = open.pop() {
        changes.end(ended, open.last());
    }
    changes.edges()
}

/// From which number on numbers are listed or not, in order.
#[derive(Default)]
struct Changes(Vec<(u128, bool)>);

impl Changes {
    fn set(&mut self, from: u128, is_listed: bool) {
        match self.0.last_mut() {
            Some((last, was_listed)) if *last == from => *was_listed = is_listed,
            _ => self.0.push((from, is_listed)),
        }
    }

    /// After `ended` the range around it decides again.
    fn end(&mut self, ended: Range, outer: Option<&Range>) {
        if let Some(next) = ended.last.checked_add(1) {
            self.set(next, outer.is_some_and(|outer| outer.is_listed));
        }
    }

    fn edges(self) -> Vec<u128> {
        let mut was_listed = false;
        let changes = self.0.into_iter();
        let edges = changes
            .filter(|(_, is_listed)| std::mem::replace(&mut was_listed, *is_listed) != *is_listed);
        edges.map(|(from, _)| from).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The prefix with `bits` free bits that contains `number`.
    fn prefix(number: u128, bits: u32, is_listed: bool) -> Range {
        let size = 1 << bits;
        let first = number / size * size;
        Range {
            first,
            last: first + (size - 1),
            is_listed,
        }
    }

    /// The shortest range that contains `number` decides.
    fn scan(ranges: &[Range], number: u128) -> bool {
        let around = ranges
            .iter()
            .filter(|range| (range.first..=range.last).contains(&number));
        let shortest = around.min_by_key(|range| range.last - range.first);
        shortest.is_some_and(|range| range.is_listed)
    }

    /// Calls `check` with all orders of `ranges`.
    fn permute(ranges: &mut [Range], from: usize, check: &mut impl FnMut(&[Range])) {
        if from == ranges.len() {
            check(ranges);
        }
        for other in from..ranges.len() {
            ranges.swap(from, other);
            permute(ranges, from + 1, check);
            ranges.swap(from, other);
        }
    }

    /// Shows promise 193.
    #[test]
    fn every_number_is_found_as_by_a_linear_scan_in_all_insert_orders() {
        let mut random = 1_u64;
        let mut below = |bound: u64| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 33) % bound
        };
        for _ in 0..400 {
            let mut ranges = Vec::<Range>::new();
            for _ in 0..=below(5) {
                let bits = u32::try_from(below(6)).unwrap();
                let range = prefix(u128::from(below(64)), bits, below(2) == 0);
                let is_new = |other: &Range| (other.first, other.last) != (range.first, range.last);
                if ranges.iter().all(is_new) {
                    ranges.push(range);
                }
            }
            permute(&mut ranges, 0, &mut |ranges| {
                let edges = Edges::<u128>::new(ranges.to_vec());
                assert!(edges.numbers.is_sorted_by(|a, b| a < b), "{edges:?}");
                for number in 0..70 {
                    let found = edges.contains(number);
                    assert_eq!(found, scan(ranges, number), "{number} in {ranges:?}");
                }
            });
        }
    }

    /// Shows promise 193.
    #[test]
    fn numbers_are_found_in_every_group() {
        for step in [3, 1 << 20 | 1, 1 << 26] {
            let ranges = (0..40).map(|n| prefix(u128::from(n * step), 0, true));
            let edges = Edges::<u32>::new(ranges.collect());
            assert_eq!((edges.len(), edges.before.len()), (80, 17));
            for number in (0..40).flat_map(|n| [0, 1, 2].map(|more| n * step + more)) {
                assert_eq!(edges.contains(number), number % step == 0, "{number}");
            }
        }
    }

    /// Shows promise 193.
    #[test]
    fn the_first_and_the_last_number_may_be_listed() {
        let single = |number| prefix(number, 0, true);
        let edges = Edges::<u128>::new(vec![single(0), single(u128::MAX)]);
        let found = [0, 1, u128::MAX - 1, u128::MAX].map(|number| edges.contains(number));
        assert_eq!(found, [true, false, false, true]);
        let edges = Edges::<u32>::new(vec![single(0), single(u32::MAX.into())]);
        let found = [0, 1, u32::MAX - 1, u32::MAX].map(|number| edges.contains(number));
        assert_eq!(found, [true, false, false, true]);
    }
}
