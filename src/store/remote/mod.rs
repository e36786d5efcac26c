//! What all stores on servers have in common: how keys are named, and what happens when a server
//! fails.
//!
//! A store on a server decides by calls. This module knows no server's protocol: a store implements
//! the port `Executor`, and gets deadlines, circuit breakers, batches, a cache of denials and quotas
//! that change while the fleet runs.

mod batch;
mod breaker;
mod breakers;
#[cfg(any(feature = "redis", feature = "postgres", feature = "cassandra"))]
mod connector;
mod deny_cache;
mod executor;
mod key;
mod layout;
mod limiter;
mod line;
mod pending;
mod task;

#[cfg(any(feature = "redis", feature = "postgres", feature = "cassandra"))]
pub(crate) use self::connector::{Connect, Connector, Pick};
pub(crate) use self::{
    batch::Batcher,
    breaker::BreakerConfig,
    breakers::{Breakers, Server},
    deny_cache::{CacheSlot, DenyCache},
    executor::{Executor, rare},
    key::{check_name, key_name},
    layout::{layout, layout_of, padding},
    line::{Line, TaskId, Waiting},
    pending::{PendingCall, Remote},
    task::{catch_panic, runtime},
};
pub use self::{
    breaker::BreakerCounts,
    key::{KeyName, RemoteKey},
    limiter::StoreLimiter,
};
