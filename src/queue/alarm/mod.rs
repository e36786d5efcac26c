//! What wakes a request that waits, where there are timers.

#[cfg(feature = "tokio")]
mod with_tokio;
#[cfg(not(feature = "tokio"))]
mod without;

#[cfg(feature = "tokio")]
pub(crate) use self::with_tokio::Alarm;
#[cfg(not(feature = "tokio"))]
pub(crate) use self::without::Alarm;
