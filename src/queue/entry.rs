//! A line with its timer, and the position of a request in it.

use std::sync::Arc;

use super::Alarm;
use super::line::{Line, LineStatus};
use super::waiters::Rank;

/// The position of one request in a line.
#[derive(Debug)]
pub(crate) struct QueuePosition {
    line_status: Arc<LineStatus>,
    /// The rank, and whether the limiter decides at once in the lowest bit.
    rank: u64,
}

impl QueuePosition {
    /// `is_immediate` is for [`is_immediate`](Self::is_immediate).
    pub(super) fn new(line: &Line, rank: Rank, is_immediate: bool) -> Self {
        Self {
            line_status: Arc::clone(line.status()),
            rank: rank << 1 | u64::from(is_immediate),
        }
    }

    pub(super) const fn rank(&self) -> Rank {
        self.rank >> 1
    }

    /// Whether the limiter of the request decides at once. The line only stores this for the owner of
    /// the position: a type around this one would be larger.
    #[inline]
    pub(crate) const fn is_immediate(&self) -> bool {
        self.rank & 1 != 0
    }

    pub(super) fn line_id(&self) -> u64 {
        self.line_status.line_id
    }

    /// Whether it is known without a lock that the request has been released.
    #[inline]
    pub(super) fn is_released(&self) -> bool {
        self.line_status.has_released(self.rank())
    }
}

/// A line and its timer.
#[derive(Debug)]
pub(super) struct LineEntry {
    pub(super) line: Line,
    /// `None` until a waiter is polled.
    pub(super) alarm: Option<Alarm>,
}

impl LineEntry {
    pub(super) fn new(line_id: u64) -> Self {
        Self {
            line: Line::new(line_id),
            alarm: None,
        }
    }

    /// Whether `position` is in this line, and not in a removed one of the same key.
    pub(super) fn owns(&self, position: &QueuePosition) -> bool {
        Arc::ptr_eq(self.line.status(), &position.line_status)
    }
}
