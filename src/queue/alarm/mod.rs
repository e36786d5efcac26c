//! What tells a line that a moment has come, where there are timers.

#[cfg(all(test, tower_throttle_loom))]
mod modelled;
#[cfg(all(feature = "tokio", not(all(test, tower_throttle_loom))))]
mod with_tokio;
#[cfg(not(any(feature = "tokio", all(test, tower_throttle_loom))))]
mod without;

#[cfg(all(test, tower_throttle_loom))]
pub(super) use self::modelled::at_present;
#[cfg(all(test, tower_throttle_loom))]
pub(crate) use self::modelled::{Alarm, Driver};
#[cfg(all(feature = "tokio", not(all(test, tower_throttle_loom))))]
pub(crate) use self::with_tokio::{Alarm, Driver};
#[cfg(not(any(feature = "tokio", all(test, tower_throttle_loom))))]
pub(crate) use self::without::{Alarm, Driver};

/// What became of an alarm that was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Set {
    /// It will ring.
    Will,
    /// The moment has come already; it will not ring.
    Come,
    /// It will never ring again: what drives it is gone.
    #[cfg_attr(
        any(not(feature = "tokio"), all(test, tower_throttle_loom)),
        expect(dead_code, reason = "only a runtime can go away")
    )]
    Never,
}
