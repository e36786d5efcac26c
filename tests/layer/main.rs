//! The layer and its service: the `Service` contract, keys, settings and requests of any type.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

// With the feature `metrics` each request also allocates the labels of its counter.
#[cfg(not(feature = "metrics"))]
mod allocations;
mod and;
mod clones;
mod contract;
mod costs;
#[cfg(not(feature = "metrics"))]
#[path = "../common/counting.rs"]
#[expect(dead_code, reason = "shared with other tests")]
mod counting;
#[cfg(feature = "tokio")]
mod denials;
mod handle;
mod keys;
#[cfg(feature = "tokio")]
mod lists;
#[cfg(feature = "tokio")]
mod lockout;
#[cfg(feature = "tracing")]
#[path = "../common/log.rs"]
mod log;
#[cfg(feature = "metrics")]
#[path = "../common/measured.rs"]
#[expect(dead_code, reason = "shared with other tests")]
mod measured;
#[cfg(feature = "tokio")]
mod per_key;
mod plain;
mod policy;
#[cfg(feature = "tokio")]
mod refunds;
mod refused;
mod remote;
#[cfg(all(feature = "metrics", feature = "tracing"))]
mod reports;
mod sharing;
mod stacks;
mod support;
mod types;
#[cfg(not(feature = "tokio"))]
mod untimed;
#[cfg(feature = "tokio")]
mod waiting;
mod watch;
