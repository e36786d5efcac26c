//! How full a table is.

use super::attempt::{StateOps, is_of_epoch};
use super::states::{Attempt, Effect};
use super::table::Table;
use crate::algorithm::Words;
use crate::clock::Tick;

/// The most sets that are read.
const MOST_SETS: usize = 4_096;

impl<A: Words> Table<A> {
    /// The number of slots whose states have not expired.
    ///
    /// In a table of more than [`MOST_SETS`] sets, it is an estimate from as many, at equal
    /// distances. The hash chooses the set of a key, so these are as full as the others.
    pub(super) fn live(&self, now: Tick) -> usize {
        let all = self.core.sets.len;
        let read = all.min(MOST_SETS);
        let scale = |count: usize, to: usize| {
            let scaled = count as u128 * to as u128 / read as u128;
            usize::try_from(scaled).unwrap_or(usize::MAX)
        };
        let live = (0..read).map(|number| self.live_in_set(scale(number, all), now));
        scale(live.sum(), all)
    }

    fn live_in_set(&self, at: usize, now: Tick) -> usize {
        let set = self.core.sets.set(at);
        let mut step = |_: &A, _: &mut A::State| Effect::Read;
        loop {
            let attempt = Attempt::new(self, &mut step);
            let snapshot = set.snapshot();
            if is_of_epoch(snapshot.header, &attempt) {
                let slots = 0..set.slots();
                let live = slots.filter(|slot| {
                    snapshot.tags[*slot] != 0
                        && attempt.forgettable_at(&snapshot.states[*slot]) > now
                });
                return live.count();
            }
            let _ = attempt.migrate_set(at);
        }
    }
}
