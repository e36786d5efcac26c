//! The timer of a line.

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
pub(crate) use self::mock::{Driver, LineTimer};
#[cfg(all(test, tower_throttle_loom))]
pub(super) use self::mock::{fire_due, next_deadline, set_now};

/// The result of arming a timer.
#[cfg_attr(
    not(any(feature = "tokio", all(test, tower_throttle_loom))),
    expect(dead_code, reason = "without timers, none is armed")
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimerStatus {
    /// It will fire.
    Armed,
    /// The moment has passed already. It will not fire.
    Elapsed,
    /// It will never fire: its runtime is gone.
    #[cfg_attr(
        all(test, tower_throttle_loom),
        expect(dead_code, reason = "only a tokio runtime can shut down")
    )]
    RuntimeGone,
}
