//! What an algorithm has to obey.

/// A law of [`algorithm`](crate::algorithm).
///
/// ```
/// use tower_throttle::testkit::Law;
///
/// assert!(Law::ALL.contains(&Law::Denial));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Law {
    /// No burst at any moment, and no clock that steps back, gets more than the [`Promise`](super::Promise).
    Promise,
    /// A request that is refunded at once has taken nothing.
    Undo,
    /// The costs that are kept after refunds stay within the [`Promise`](super::Promise).
    Refunds,
    /// A charge takes as much as a request of its cost, and all that is left if that is less.
    Charge,
    /// A denied request and a cost of zero change nothing.
    Denial,
    /// The request passes at `retry_after`, and is denied one nanosecond earlier. If there is none, it
    /// never passes.
    RetryAfter,
    /// The whole limit is available from `reset_after` on, and not earlier.
    ResetAfter,
    /// A key of which the whole limit is available resets after no time, also after refunds.
    UnusedKey,
    /// `remaining` is the largest cost that is admitted.
    Remaining,
    /// A moment older than the state admits no more than the newest one.
    StepBack,
    /// A charge, a refund or a reservation at an older moment leaves no more than at the newest one.
    StepBackOperations,
    /// From `forgettable_at` on the state decides like a fresh one.
    Forgettable,
    /// How often a bucket is asked does not change what it admits: rounding errors do not add up.
    Rounding,
}

impl Law {
    /// All laws, in the order in which they are checked.
    pub const ALL: [Self; 13] = [
        Self::Denial,
        Self::Promise,
        Self::Undo,
        Self::Refunds,
        Self::Charge,
        Self::RetryAfter,
        Self::ResetAfter,
        Self::UnusedKey,
        Self::Remaining,
        Self::StepBack,
        Self::StepBackOperations,
        Self::Forgettable,
        Self::Rounding,
    ];
}
