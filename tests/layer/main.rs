//! The layer and its service: the `Service` contract, keys, settings and requests of any type.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

// With the feature `metrics` each request also allocates the labels of its counter.
#[cfg(not(feature = "metrics"))]
mod allocations;
mod and;
mod contract;
mod costs;
mod handle;
#[cfg(feature = "tokio")]
mod lists;
#[cfg(feature = "tokio")]
mod lockout;
mod policy;
#[cfg(feature = "tokio")]
mod quotas;
#[cfg(feature = "tokio")]
mod refunds;
mod remote;
#[cfg(all(feature = "metrics", feature = "tracing"))]
mod reports;
mod sharing;
mod support;
#[cfg(not(feature = "tokio"))]
mod untimed;
#[cfg(feature = "tokio")]
mod waiting;
mod watch;

#[cfg(not(feature = "metrics"))]
use test_support::counting;

#[cfg(not(feature = "metrics"))]
#[global_allocator]
static COUNTING: counting::Counting = counting::Counting;
#[cfg(feature = "tracing")]
use test_support::log;
#[cfg(feature = "metrics")]
use test_support::measured;
