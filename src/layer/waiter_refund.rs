//! Refunds to a key while requests wait for it: the waiters move up.

use super::keyed::{KeyedBackend, single_quota};
use super::state::LayerState;
use crate::queue::{self, LineGuard};

/// Refunds a cost that was taken before the waiters took theirs. They move up; otherwise new requests
/// would be granted their moments. Calls `refund` if the backend has to get the cost back. Only for
/// backends that decide at once.
pub(super) fn refund_to_waiters(
    layer: &LayerState,
    line_id: u64,
    backend: &dyn KeyedBackend,
    refund: &mut dyn FnMut(),
) {
    let mut line = layer.lines.lock_line(line_id);
    refund_before_waiters(&mut line, backend, refund);
}

/// Calls `refund`, and moves the waiters up by as much as the backend gave back: the whole cost, or
/// less if time has returned a part of it already.
///
/// With several limits, nothing tells how much that was for the limit of the line. Then the cost
/// stays taken while others wait, as in [`Line`](crate::queue::Lines).
pub(super) fn refund_before_waiters(
    line: &mut LineGuard<'_>,
    backend: &dyn KeyedBackend,
    refund: &mut dyn FnMut(),
) {
    if line.is_empty() {
        refund();
        line.advance_epoch();
        return;
    }
    let reset_after = || {
        let decision = backend.current_decision(0);
        decision.map(|decision| decision.reset_after)
    };
    if single_quota(&backend.quotas()).is_none() {
        return;
    }
    // Read before the refund and after it, so what has passed in between is counted as given back.
    // The waiters then go a little too early for new requests, which go after them all the same.
    if let Some(before) = reset_after() {
        refund();
        let given = before.saturating_sub(reset_after().unwrap_or(before));
        line.shift_earlier(given, queue::now());
        line.advance_epoch();
    }
}
