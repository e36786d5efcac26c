//! The search among sorted edges.
//!
//! ```text
//! edges       e0 e1   e2          e3 e4 e5       e6
//! buckets     |---0---|---1---|---2---|---3---|---4---|      of equal width, from e0 on
//! starts      0       2       3       3       6       6      edges below each bucket
//! ```
//!
//! A bucket is found by a shift, and then the edges in it are halved. So an address among 100,000
//! scattered networks takes two or three reads of memory, rather than one per halving of all edges.

use super::ranges::{Range, edges};

/// Numbers in order at which being listed begins or ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Edges<T> {
    numbers: Box<[T]>,
    /// How many edges are below each bucket; then the number of all.
    starts: Box<[u32]>,
    /// The width of a bucket is two to the power of this.
    shift: u32,
}

/// An address as a number.
pub(super) trait Number: Copy + Ord + Into<u128> {
    /// `self - first`, without the lowest bits.
    fn above(self, first: Self, shift: u32) -> usize;
}

impl Number for u32 {
    #[inline]
    fn above(self, first: Self, shift: u32) -> usize {
        ((self - first) >> shift) as usize
    }
}

impl Number for u128 {
    #[inline]
    fn above(self, first: Self, shift: u32) -> usize {
        usize::try_from((self - first) >> shift).unwrap_or(usize::MAX / 2)
    }
}

impl<T> Default for Edges<T> {
    fn default() -> Self {
        Self {
            numbers: Box::default(),
            starts: Box::default(),
            shift: 0,
        }
    }
}

impl<T: Number + TryFrom<u128>> Edges<T> {
    pub(super) fn new(ranges: Vec<Range>) -> Self {
        // The edge after the last IPv4 address is none.
        let edges = edges(ranges).into_iter();
        let edges: Box<[T]> = edges.filter_map(|edge| T::try_from(edge).ok()).collect();
        let [Some(first), Some(last)] = [edges.first(), edges.last()].map(Option::<&T>::copied)
        else {
            return Self::default();
        };
        // At most as many buckets as edges, but one at least.
        let span = last.into() - first.into();
        let most = edges.len().ilog2();
        let shift = (u128::BITS - span.leading_zeros()).saturating_sub(most);
        let buckets = last.above(first, shift) + 1;
        let mut starts = Vec::with_capacity(buckets + 1);
        for (at, edge) in (0..).zip(&edges) {
            let bucket = edge.above(first, shift);
            while starts.len() <= bucket {
                starts.push(at);
            }
        }
        starts.push(u32::try_from(edges.len()).unwrap_or(u32::MAX));
        Self {
            numbers: edges,
            starts: starts.into(),
            shift,
        }
    }

    /// Whether `number` is listed: if an odd number of edges is at or below it.
    #[inline]
    pub(super) fn contains(&self, number: T) -> bool {
        let Some(first) = self.numbers.first().filter(|first| **first <= number) else {
            return false;
        };
        let bucket = number.above(*first, self.shift);
        // Not `bucket + 1`, which a number far above the edges would overflow.
        let bounds = self.starts.get(bucket..).and_then(<[u32]>::first_chunk);
        let Some([start, end]) = bounds.copied() else {
            return self.numbers.len() % 2 == 1;
        };
        let (start, end) = (start as usize, end as usize);
        let within = &self.numbers[start..end];
        let below = start + within.partition_point(|edge| *edge <= number);
        below % 2 == 1
    }
}

impl<T> Edges<T> {
    pub(super) const fn len(&self) -> usize {
        self.numbers.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: u128, size: u128, is_listed: bool) -> Range {
        Range {
            first,
            last: first + (size - 1),
            is_listed,
        }
    }

    /// Few and many networks, in a cluster, scattered, or both.
    #[test]
    fn every_edge_is_found_as_by_halving_all_of_them() {
        let mut random = 5_u64;
        for count in [0_usize, 1, 2, 3, 10, 1_000, 20_000] {
            for mask in [u32::MAX, 0xffff, 0x3ff, 0xff00_00ff] {
                let ranges: Vec<_> = (0..count)
                    .map(|_| {
                        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                        u128::from((random >> 32) as u32 & mask)
                    })
                    .map(|at| range(at, 1, true))
                    .collect();
                let plain = edges(ranges.clone());
                let indexed = Edges::<u32>::new(ranges.clone());
                let wide = Edges::<u128>::new(ranges);
                let near = |edge: &u128| [edge.saturating_sub(1), *edge, edge.saturating_add(1)];
                let numbers = plain.iter().flat_map(near);
                for number in numbers.chain([0, 1, 77_777, u128::from(u32::MAX)]) {
                    let expected = plain.partition_point(|edge| *edge <= number) % 2 == 1;
                    assert_eq!(wide.contains(number), expected, "{number}");
                    if let Ok(number) = u32::try_from(number) {
                        assert_eq!(indexed.contains(number), expected, "{number}");
                    }
                }
                assert!(wide.starts.len() <= plain.len() + 2);
                assert!(!wide.contains(u128::MAX));
            }
        }
    }

    /// Such as `2001:db8:0:1::` and a list of `2001:db8::1` alone, whose buckets have a width of 1.
    #[test]
    fn a_number_that_far_above_the_edges_is_in_no_bucket() {
        let edges = Edges::<u128>::new(vec![range(1, 1, true)]);
        assert_eq!(edges.shift, 0);
        for above in [u64::MAX - 1, u64::MAX, u64::MAX / 2, u32::MAX.into()] {
            assert!(!edges.contains(1 + u128::from(above)), "{above}");
        }
        let edges = Edges::<u32>::new(vec![range(0, 1, true)]);
        assert!(edges.contains(0) && !edges.contains(u32::MAX));
    }

    /// Such as the upper half of all addresses, and a few single ones far below.
    #[test]
    fn a_range_that_reaches_the_last_number_has_no_edge_above_the_buckets() {
        let few = [0, 2, 4, 6].map(|at| range(at, 1, true)).to_vec();
        let upper = |bits: u32| [few.clone(), vec![range(1 << bits, 1 << bits, true)]].concat();
        let edges = Edges::<u32>::new(upper(31));
        assert!(u32::MAX >> edges.shift >= u32::try_from(edges.starts.len()).unwrap());
        let found = [6, 7, (1 << 31) - 1, 1 << 31, 3 << 30, u32::MAX];
        let found = found.map(|number| edges.contains(number));
        assert_eq!(found, [true, false, false, true, true, true]);
        let edges = Edges::<u128>::new(upper(127));
        let found = [6, 7, (1 << 127) - 1, 1 << 127, 3 << 126, u128::MAX];
        let found = found.map(|number| edges.contains(number));
        assert_eq!(found, [true, false, false, true, true, true]);
    }

    #[test]
    fn the_first_and_the_last_number_are_in_a_bucket() {
        let both = [range(0, 1, true), range(u128::MAX, 1, true)];
        let edges = Edges::<u128>::new(both.to_vec());
        let found = [0, 1, u128::MAX - 1, u128::MAX].map(|number| edges.contains(number));
        assert_eq!(found, [true, false, false, true]);
        let both = [range(0, 1, true), range(u32::MAX.into(), 1, true)];
        let edges = Edges::<u32>::new(both.to_vec());
        let found = [0, 1, u32::MAX - 1, u32::MAX].map(|number| edges.contains(number));
        assert_eq!(found, [true, false, false, true]);
    }
}
