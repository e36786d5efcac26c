//! What tells a line that a moment has come, where there are timers.

#[cfg(not(any(feature = "tokio", all(test, tower_throttle_loom))))]
mod disabled;
#[cfg(all(feature = "tokio", not(all(test, tower_throttle_loom))))]
mod enabled;
#[cfg(all(test, tower_throttle_loom))]
mod mock;

#[cfg(not(any(feature = "tokio", all(test, tower_throttle_loom))))]
pub(crate) use self::disabled::{Driver, LineTimer};
#[cfg(all(feature = "tokio", not(all(test, tower_throttle_loom))))]
pub(crate) use self::enabled::{Driver, LineTimer};
#[cfg(all(test, tower_throttle_loom))]
pub(super) use self::mock::set_now;
#[cfg(all(test, tower_throttle_loom))]
pub(crate) use self::mock::{Driver, LineTimer};

/// What became of an alarm that was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimerStatus {
    /// It will ring.
    Armed,
    /// The moment has come already; it will not ring.
    Elapsed,
    /// It will never ring again: what drives it is gone.
    #[cfg_attr(
        any(not(feature = "tokio"), all(test, tower_throttle_loom)),
        expect(dead_code, reason = "only a runtime can go away")
    )]
    RuntimeGone,
}
