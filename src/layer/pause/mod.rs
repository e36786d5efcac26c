//! Waiting for one's turn, where there are timers to wait with.

#[cfg(feature = "tokio")]
mod with_tokio;
#[cfg(not(feature = "tokio"))]
mod without;

#[cfg(feature = "tokio")]
pub(super) use self::with_tokio::Pause;
#[cfg(not(feature = "tokio"))]
pub(super) use self::without::Pause;
