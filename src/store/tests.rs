//! A breadth-first search of all states that a model can reach.

use std::{
    collections::{HashSet, VecDeque},
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash},
};

/// The first fault that is found, and how many states there are.
pub(super) fn search<S: Hash>(
    first: S,
    next: impl Fn(&S) -> Vec<S>,
    fault_of: impl Fn(&S) -> Option<&'static str>,
) -> (Option<&'static str>, usize) {
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    let mut known = HashSet::from([hasher.hash_one(&first)]);
    let mut queue = VecDeque::from([first]);
    while let Some(state) = queue.pop_front() {
        if let Some(fault) = fault_of(&state) {
            return (Some(fault), known.len());
        }
        for next in next(&state) {
            if known.insert(hasher.hash_one(&next)) {
                queue.push_back(next);
            }
        }
    }
    (None, known.len())
}

/// The events that are left after one, if there is one. `None` if it is not there.
pub(super) fn left_after<E: Copy + PartialEq>(left: &[E], event: Option<E>) -> Option<Vec<E>> {
    let mut left = left.to_vec();
    if let Some(event) = event {
        let place = left.iter().position(|other| *other == event)?;
        left.remove(place);
    }
    Some(left)
}
