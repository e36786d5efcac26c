//! What the line reports to a waiter and to the limiter.

use std::time::Duration;

/// Why a waiter need not wait any longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitOutcome {
    Released,
    /// It lost its position to a newer request. There may be room again after this long.
    Shed(Duration),
}

/// What happens to the cost of a waiter that leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CostOutcome {
    /// It is refunded to the limiter: the waiters behind have moved up.
    Refund,
    /// It stays taken.
    Keep,
}
