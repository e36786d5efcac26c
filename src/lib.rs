//! Rate limiting for any tower `Service`.
#![cfg_attr(tower_throttle_docs, feature(doc_cfg))]

pub mod algorithm;
mod clock;
mod decision;
mod error;
mod limiter;
mod lone;
mod quota;
mod sync;

#[cfg(feature = "governor")]
pub use self::algorithm::Gcra;
pub use self::{
    algorithm::{
        All, Charge, FixedWindow, Inherit, LeakyBucket, SlidingGrid, SlidingLog, SlidingWindow,
        TokenBucket, WarmUp,
    },
    clock::{Clock, ManualClock, ManualSleep, MonotonicClock, Tick, Timer},
    decision::{Decision, Verdict},
    error::{ConfigError, StoreError},
    limiter::{IntoLimiter, KeyedLimiter, Op},
    lone::Limiter,
    quota::Quota,
};
