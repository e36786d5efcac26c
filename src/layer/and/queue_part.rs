//! The limit for which requests queue.

use std::sync::atomic::{AtomicU8, Ordering};

/// One of two limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(in crate::layer) enum Part {
    First = 1,
    Second = 2,
}

/// The limit for which requests queue: the one that had a wait first.
///
/// A waiting request has a place in one queue, that of its key for this limit. The other limit
/// cannot queue it too: if the request left early, its place there would be granted again to a
/// request of another key, while requests behind it keep theirs.
#[derive(Debug, Default)]
pub(in crate::layer) struct QueuePart(AtomicU8);

impl QueuePart {
    #[inline]
    pub(in crate::layer) fn get(&self) -> Option<Part> {
        match self.0.load(Ordering::Acquire) {
            1 => Some(Part::First),
            2 => Some(Part::Second),
            _ => None,
        }
    }

    /// Whether requests may queue for `part`. It is the queue from now on if there was none.
    pub(super) fn claim(&self, part: Part) -> bool {
        let claimed = self
            .0
            .compare_exchange(0, part as u8, Ordering::AcqRel, Ordering::Acquire);
        claimed.is_ok() || self.get() == Some(part)
    }
}
