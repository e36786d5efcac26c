//! The epoch of the lines at a decision.

use std::num::NonZero;

use crate::queue::Lines;

/// [`Lines::epoch`] at a decision: a counter that starts at one and advances when a refund changes the
/// times of waiters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(unnameable_types, reason = "only layers use it")]
pub struct QueueEpoch(NonZero<u64>);

impl QueueEpoch {
    #[inline]
    pub(super) fn current(lines: &Lines) -> Self {
        Self(NonZero::new(lines.epoch()).unwrap_or(NonZero::<u64>::MIN))
    }
}
