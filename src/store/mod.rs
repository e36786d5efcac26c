//! Stores: where the states of many keys live.

#[cfg(feature = "cas")]
#[cfg_attr(tower_throttle_docs, doc(cfg(feature = "cas")))]
pub mod cas;
mod events;
mod fallback;
pub mod local;
#[cfg(feature = "redis")]
#[cfg_attr(tower_throttle_docs, doc(cfg(feature = "redis")))]
pub mod redis;

pub use self::fallback::{Fallback, FallbackFuture};
pub use crate::backend::{Backend, IntoBackend, Losses, Op};
pub use crate::receipt::Receipt;
