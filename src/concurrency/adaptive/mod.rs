//! Limits that follow the latency of the service.

mod aimd;
mod baseline;
mod gradient2;
mod math;
mod range;
mod window;

pub(super) use self::window::{RequestEnd, Samples};
pub use self::{aimd::Aimd, gradient2::Gradient2, window::Window};

/// Changes a limit by what was measured in each window.
///
/// It has no clock, so the same windows give the same limits. A layer calls it under a lock that its requests need:
/// it must not block, panic, or use the handle of the layer.
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::concurrency::{Adaptive, ConcurrencyLimitLayer, Window};
///
/// /// Falls by one in a window of more than 100 ms, or of failures, and rises by one otherwise.
/// struct Steps(u32);
///
/// impl Adaptive for Steps {
///     fn limit(&self) -> u32 {
///         self.0
///     }
///
///     fn next(&mut self, window: &Window) {
///         match window.latency() {
///             Some(latency) if latency <= Duration::from_millis(100) => self.0 += 1,
///             _ => self.0 = (self.0 - 1).max(1),
///         }
///     }
/// }
///
/// let mut steps = Steps(10);
/// // The latency, the requests, the most of them in flight at a time, and the drops.
/// steps.next(&Window::new(Duration::from_millis(20), 50, 10, 0));
/// assert_eq!(steps.limit(), 11);
/// let layer = ConcurrencyLimitLayer::adaptive(steps);
/// assert_eq!(layer.handle().limit(), 11);
/// ```
pub trait Adaptive: Send + 'static {
    /// How many requests may be in flight now; a 0 counts as 1.
    fn limit(&self) -> u32;

    /// Changes the limit after `window`.
    fn next(&mut self, window: &Window);
}
