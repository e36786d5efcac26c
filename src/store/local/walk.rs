//! Which sets a change of the algorithm migrates.

use std::ops::Range;

use super::slot::EPOCHS;

/// The sets that changes of the algorithm migrate in turn.
#[derive(Debug, Default)]
pub(super) struct Walk {
    next: usize,
}

impl Walk {
    /// The fewest sets per change.
    pub(super) const LEAST_STEP: usize = 64;
    /// The most changes until every set has had its turn.
    const MOST_CHANGES: usize = 4_096;

    /// The sets per change, and the number of changes until every set of `sets` has had its turn.
    pub(super) fn pace(sets: usize) -> (usize, usize) {
        let step = sets.div_ceil(Self::MOST_CHANGES).max(Self::LEAST_STEP);
        (step, sets.div_ceil(step))
    }

    /// The sets of the next step.
    pub(super) fn advance(&mut self, step: usize, sets: usize) -> Range<usize> {
        let from = self.next;
        let to = (from + step).min(sets);
        self.next = to % sets;
        from..to
    }
}

const _: () = assert!((Walk::MOST_CHANGES as u64) < EPOCHS / 4);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_reaches_every_set_within_its_number_of_changes() {
        for sets in [1, 63, 64, 65, 1_000, 262_144, 262_145, 5_000_000] {
            let (step, changes) = Walk::pace(sets);
            assert!(changes <= Walk::MOST_CHANGES, "{sets} sets");
            let mut walk = Walk::default();
            for _ in 0..2 {
                let ranges = (0..changes).map(|_| walk.advance(step, sets));
                let end = ranges.fold(0, |end, range| {
                    assert_eq!(range.start, end, "{sets} sets");
                    range.end
                });
                assert_eq!(end, sets);
            }
        }
    }
}
