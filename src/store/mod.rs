//! Stores: where the states of many keys live.

mod any;
mod apply;
#[cfg(feature = "cas")]
pub mod cas;
#[cfg(feature = "tokio")]
mod deadline;
mod events;
mod fallback;
#[cfg(feature = "cas")]
pub mod fleet;
pub mod local;
mod quotas;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "cas")]
#[cfg_attr(tower_throttle_docs, doc(cfg(feature = "cas")))]
#[cfg_attr(
    not(all(feature = "cas", feature = "redis")),
    allow(dead_code, unused_imports, reason = "each store uses a part of it")
)]
pub mod remote;
#[cfg(all(test, feature = "cas", not(tower_throttle_loom)))]
mod tests;

#[cfg(feature = "policies")]
pub(crate) use self::any::{AnyLimit, any, fixed};
pub use self::fallback::Fallback;
#[cfg(feature = "tokio")]
pub use self::quotas::Cached;
pub use self::{
    any::AnyDecision,
    quotas::{Lookup, QuotaPerKey, Quotas},
};
pub use crate::backend::{Backend, IntoBackend, Op, Stats};
pub use crate::quota::Plan;
pub use crate::receipt::Receipt;
pub use crate::saved::{SaveState, StateFile};
