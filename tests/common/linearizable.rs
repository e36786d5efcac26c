//! Whether a history of concurrent operations has a sequential order.
//!
//! The order keeps each operation before those that were called after it had returned, and in it the
//! plain algorithm returns the same decisions. The search for it is the algorithm of Wing, Gong and
//! Lowe.

use std::collections::HashSet;

use tower_throttle::{Decision, algorithm::Words, clock::Tick};

/// A request for `cost` that was decided at `now`.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) key: u64,
    pub(crate) now: Tick,
    pub(crate) cost: u64,
    pub(crate) decision: Decision,
    /// When it was called and when it returned, by a counter shared by all threads.
    pub(crate) called: u64,
    pub(crate) returned: u64,
}

/// Whether the events of one key are linearizable.
fn is_key_linearizable<A: Words>(algorithm: &A, events: &[&Event]) -> bool {
    let mut seen = HashSet::new();
    let mut open = vec![(0_u64, algorithm.fresh(Tick::ZERO))];
    let all = (1_u64 << events.len()) - 1;
    while let Some((done, state)) = open.pop() {
        if done == all {
            return true;
        }
        if !seen.insert((done, format!("{state:?}"))) {
            continue;
        }
        let left = || {
            events
                .iter()
                .enumerate()
                .filter(|(at, _)| done & 1 << at == 0)
        };
        let first_return = left()
            .map(|(_, event)| event.returned)
            .min()
            .unwrap_or(u64::MAX);
        for (at, event) in left().filter(|(_, event)| event.called < first_return) {
            let mut next = state.clone();
            if algorithm.decide(&mut next, event.now, event.cost) == event.decision {
                open.push((done | 1 << at, next));
            }
        }
    }
    false
}

pub(crate) fn is_linearizable<A: Words>(algorithm: &A, events: &[Event]) -> bool {
    let keys: HashSet<_> = events.iter().map(|event| event.key).collect();
    keys.into_iter().all(|key| {
        let of_key: Vec<_> = events.iter().filter(|event| event.key == key).collect();
        is_key_linearizable(algorithm, &of_key)
    })
}
