//! Limits that follow the latency of the service: pure transitions from one window to the next.

mod aimd;
mod baseline;
mod gradient2;
mod math;
mod range;
mod system_guard;
mod vegas;
mod window;

pub use self::{
    aimd::{Aimd, AimdState},
    gradient2::{Gradient2, Gradient2State},
    system_guard::{SystemGuard, SystemGuardState},
    vegas::{Vegas, VegasState},
    window::{Outcome, Samples, Window},
};

/// Computes the next limit from the last one and what was measured in a window.
///
/// A pure transition, in integers: it has no clock, and the same windows give the same limits.
///
/// A layer calls [`start`](Self::start), [`next`](Self::next) and [`limit`](Self::limit) under a lock
/// that its requests need. They must not block, panic, or use the handle of this layer.
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::concurrency::{Adaptive, Gradient2, Window};
///
/// let algorithm = Gradient2::new().start_at(10);
/// let mut state = algorithm.start();
/// // 50 requests, at most as many at a time as allowed, and no queue yet: the limit rises.
/// for expected in [10, 20, 40, 80] {
///     let limit = algorithm.limit(&state);
///     assert_eq!(limit, expected);
///     state = algorithm.next(&state, &Window::new(Duration::from_millis(20), 50, limit, 0));
/// }
/// // The latency triples: the service queues.
/// let before = algorithm.limit(&state);
/// state = algorithm.next(&state, &Window::new(Duration::from_millis(60), 50, before, 0));
/// assert!(algorithm.limit(&state) < before);
/// ```
pub trait Adaptive: Send + Sync + 'static {
    /// What is kept from one window to the next.
    type State: Clone + Send + 'static;

    /// The state before the first window.
    fn start(&self) -> Self::State;

    /// The state after `window`.
    #[must_use]
    fn next(&self, state: &Self::State, window: &Window) -> Self::State;

    /// How many requests may be in flight.
    fn limit(&self, state: &Self::State) -> u64;

    /// The load of the system, in any unit, for an algorithm that needs it. A layer calls it when a
    /// window has ended, and gives it to [`next`](Self::next) as [`Window::load`].
    ///
    /// It is called under no lock, so it may use the handle of this layer. The request that has ended
    /// the window waits for it.
    fn load(&self) -> u64 {
        0
    }
}
