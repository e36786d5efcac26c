//! Where the states of many keys live.

mod fallback;
pub(crate) mod local;
#[cfg(feature = "redis")]
#[cfg_attr(tower_throttle_docs, doc(cfg(feature = "redis")))]
pub mod redis;
mod signals;

pub use self::fallback::{Fallback, FallbackFuture};
