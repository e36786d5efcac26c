//! A sorted set of pairs of numbers: a B-tree with less code than a `BTreeMap`.

use std::mem;

/// The most entries of a node.
const WIDTH: usize = 64;

/// A sorted set of pairs of numbers, with a number for each pair.
///
/// Every operation takes time that is logarithmic in the number of entries.
#[derive(Debug, Default)]
pub(super) struct SortedPairs {
    root: Node,
    len: usize,
}

type Pair = (u64, u64);
type Entry = (Pair, u64);

/// Only a root may be empty. Two neighbors in a node have more than half of [`WIDTH`] entries together.
#[derive(Debug)]
enum Node {
    Leaf(Vec<Entry>),
    /// All of the same height, each with a pair that is not greater than any of its own.
    Inner(Vec<(Pair, Self)>),
}

// Not inlined and not generic: compiled once.
impl SortedPairs {
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    #[inline(never)]
    pub(super) fn insert(&mut self, pair: Pair, number: u64) {
        self.len += usize::from(self.get(pair).is_none());
        if let Some((first, behind)) = self.root.insert(pair, number) {
            let root = mem::take(&mut self.root);
            self.root = Node::Inner(vec![((0, 0), root), (first, behind)]);
        }
    }

    #[inline(never)]
    pub(super) fn remove(&mut self, pair: Pair) -> Option<u64> {
        let number = self.root.remove(pair)?;
        self.len -= 1;
        while let Node::Inner(children) = &mut self.root {
            if children.len() > 1 {
                break;
            }
            self.root = children.pop().map(|(_, only)| only).unwrap_or_default();
        }
        Some(number)
    }

    pub(super) fn get(&self, pair: Pair) -> Option<u64> {
        let (found, number) = self.next(pair)?;
        (found == pair).then_some(number)
    }

    /// The first pair that is not less than `least`.
    #[inline(never)]
    pub(super) fn next(&self, least: Pair) -> Option<Entry> {
        self.root.next(least)
    }

    /// The last pair that is not greater than `most`.
    #[inline(never)]
    pub(super) fn previous(&self, most: Pair) -> Option<Entry> {
        self.root.previous(most)
    }

    /// Calls `visit` for all entries, in order.
    pub(super) fn for_each(&self, visit: &mut dyn FnMut(Entry)) {
        self.root.for_each(visit);
    }

    #[cfg(test)]
    pub(super) fn entries(&self) -> Vec<Entry> {
        let mut entries = Vec::new();
        self.for_each(&mut |entry| entries.push(entry));
        entries
    }

    /// The least second number of the pairs that begin with `first`.
    pub(super) fn first_of(&self, first: u64) -> Option<u64> {
        let ((found, second), _) = self.next((first, 0))?;
        (found == first).then_some(second)
    }

    /// The greatest second number of the pairs that begin with `first`.
    pub(super) fn last_of(&self, first: u64) -> Option<u64> {
        let ((found, second), _) = self.previous((first, u64::MAX))?;
        (found == first).then_some(second)
    }
}

impl Default for Node {
    fn default() -> Self {
        Self::Leaf(Vec::new())
    }
}

impl Node {
    fn len(&self) -> usize {
        match self {
            Self::Leaf(entries) => entries.len(),
            Self::Inner(children) => children.len(),
        }
    }

    /// Returns the second half of a node that had to be split.
    fn insert(&mut self, pair: Pair, number: u64) -> Option<(Pair, Self)> {
        match self {
            Self::Leaf(entries) => {
                let at = match entries.binary_search_by_key(&pair, |(one, _)| *one) {
                    Ok(at) => {
                        entries[at].1 = number;
                        return None;
                    }
                    Err(at) => at,
                };
                let behind = insert_or_split(entries, at, (pair, number))?;
                Some((behind.first()?.0, Self::Leaf(behind)))
            }
            Self::Inner(children) => {
                let at = child_of(children, pair);
                let (first, child) = children.get_mut(at)?;
                *first = pair.min(*first);
                let split = child.insert(pair, number)?;
                let behind = insert_or_split(children, at + 1, split)?;
                Some((behind.first()?.0, Self::Inner(behind)))
            }
        }
    }

    fn remove(&mut self, pair: Pair) -> Option<u64> {
        match self {
            Self::Leaf(entries) => {
                let at = entries.binary_search_by_key(&pair, |(one, _)| *one);
                Some(entries.remove(at.ok()?).1)
            }
            Self::Inner(children) => {
                let at = child_of(children, pair);
                let number = children.get_mut(at)?.1.remove(pair)?;
                if children[at].1.len() == 0 {
                    children.remove(at);
                }
                for at in [at, at.saturating_sub(1)] {
                    join_small(children, at);
                }
                Some(number)
            }
        }
    }

    fn next(&self, least: Pair) -> Option<Entry> {
        match self {
            Self::Leaf(entries) => {
                let before = entries.partition_point(|(one, _)| *one < least);
                entries.get(before).copied()
            }
            Self::Inner(children) => {
                let mut from = children.iter().skip(child_of(children, least));
                let (_, child) = from.next()?;
                child.next(least).or_else(|| from.next()?.1.next(least))
            }
        }
    }

    fn previous(&self, most: Pair) -> Option<Entry> {
        match self {
            Self::Leaf(entries) => {
                let up_to = entries.partition_point(|(one, _)| *one <= most);
                entries.get(up_to.checked_sub(1)?).copied()
            }
            Self::Inner(children) => {
                let at = child_of(children, most);
                let found = children.get(at)?.1.previous(most);
                found.or_else(|| children.get(at.checked_sub(1)?)?.1.previous(most))
            }
        }
    }

    fn for_each(&self, visit: &mut dyn FnMut(Entry)) {
        match self {
            Self::Leaf(entries) => entries.iter().copied().for_each(visit),
            Self::Inner(children) => {
                for (_, child) in children {
                    child.for_each(visit);
                }
            }
        }
    }
}

/// The index of the only child that may hold `pair`.
fn child_of(children: &[(Pair, Node)], pair: Pair) -> usize {
    let up_to = children.partition_point(|(first, _)| *first <= pair);
    up_to.saturating_sub(1)
}

/// Inserts an item. Returns the second half of a list that was full.
fn insert_or_split<T>(items: &mut Vec<T>, at: usize, item: T) -> Option<Vec<T>> {
    if items.len() < WIDTH {
        items.insert(at, item);
        return None;
    }
    // Lists that are filled in order stay full.
    let mut behind = items.split_off(if at == WIDTH { WIDTH } else { WIDTH / 2 });
    match at.checked_sub(items.len()) {
        Some(at) => behind.insert(at, item),
        None => items.insert(at, item),
    }
    Some(behind)
}

/// Joins a child with the one behind it, if both are small.
fn join_small(children: &mut Vec<(Pair, Node)>, at: usize) {
    let Some([(_, child), (_, behind), ..]) = children.get_mut(at..) else {
        return;
    };
    if child.len() + behind.len() > WIDTH / 2 {
        return;
    }
    match (child, behind) {
        (Node::Leaf(child), Node::Leaf(behind)) => child.append(behind),
        (Node::Inner(child), Node::Inner(behind)) => {
            let last = child.len() - 1;
            child.append(behind);
            join_small(child, last);
        }
        _ => unreachable!("children of a node have the same height"),
    }
    children.remove(at + 1);
}

#[cfg(all(test, not(tower_throttle_loom), not(tower_throttle_shuttle)))]
pub(super) mod tests {
    use super::*;

    /// The promises of [`Node`]. Returns its height.
    fn assert_node(node: &Node, is_root: bool, (least, limit): (Pair, Option<Pair>)) -> u32 {
        assert!(node.len() <= WIDTH && (is_root || node.len() > 0));
        let children = match node {
            Node::Leaf(entries) => {
                let mut pairs = entries.iter().map(|(pair, _)| *pair);
                assert!(pairs.all(|pair| pair >= least && limit.is_none_or(|limit| pair < limit)));
                return 0;
            }
            Node::Inner(children) => children,
        };
        assert!(!is_root || children.len() > 1);
        let small = |two: &[(Pair, Node)]| two[0].1.len() + two[1].1.len() <= WIDTH / 2;
        assert!(!children.windows(2).any(small));
        let limits = children.iter().skip(1).map(|(first, _)| Some(*first));
        let limits = limits.chain([limit]);
        let heights = children.iter().zip(limits).map(|((first, child), limit)| {
            assert!(*first >= least);
            assert_node(child, false, (*first, limit))
        });
        let heights: Vec<_> = heights.collect();
        assert!(heights.iter().all(|height| *height == heights[0]));
        heights[0] + 1
    }

    /// Asserts the promises of a tree. Returns its height.
    pub(in super::super) fn assert_tree(pairs: &SortedPairs) -> u32 {
        let entries = pairs.entries();
        assert!(entries.is_sorted_by(|one, next| one.0 < next.0));
        assert_eq!(entries.len(), pairs.len());
        assert_node(&pairs.root, true, ((0, 0), None))
    }

    /// Entries come and leave in ascending, descending and mixed order.
    #[test]
    fn a_tree_stays_low_and_ends_empty() {
        const ENTRIES: u64 = 40_000;
        let orders: [fn(u64) -> u64; 3] = [|n| n, |n| ENTRIES - 1 - n, |n| n * 7_919 % ENTRIES];
        for comes in orders {
            for leaves in orders {
                let mut pairs = SortedPairs::default();
                for n in 0..ENTRIES {
                    pairs.insert((comes(n), 0), n);
                }
                assert!((2..=3).contains(&assert_tree(&pairs)));
                for n in 0..ENTRIES {
                    assert!(pairs.remove((leaves(n), 0)).is_some());
                    if n % 2_003 == 0 || ENTRIES - n < 50 {
                        let height = assert_tree(&pairs);
                        assert!(16_usize.pow(height) <= 2 * pairs.len() + 2, "{height}");
                    }
                }
                assert_eq!((pairs.len(), pairs.next((0, 0))), (0, None));
            }
        }
    }

    #[test]
    fn a_number_is_replaced() {
        let mut pairs = SortedPairs::default();
        for number in 0..1_000 {
            pairs.insert((number % 200, 7), number);
        }
        let numbers = pairs.entries().into_iter().map(|(_, number)| number);
        assert!(numbers.eq(800..1_000));
        assert_eq!((pairs.len(), pairs.get((3, 7))), (200, Some(803)));
    }

    #[test]
    fn the_first_and_last_of_a_number_are_those_of_no_other() {
        let mut pairs = SortedPairs::default();
        for pair in [(1, u64::MAX), (2, 3), (2, 5), (3, 0), (u64::MAX, 1)] {
            pairs.insert(pair, 0);
        }
        assert_eq!((pairs.first_of(2), pairs.last_of(2)), (Some(3), Some(5)));
        assert_eq!((pairs.first_of(0), pairs.last_of(4)), (None, None));
        assert_eq!(pairs.last_of(u64::MAX), Some(1));
        assert_eq!(pairs.remove((2, 5)), Some(0));
        assert_eq!((pairs.last_of(2), pairs.len()), (Some(3), 4));
    }
}
