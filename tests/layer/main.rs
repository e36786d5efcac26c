//! The tower part: the contract between services, keys, and what becomes of requests of any kind.

#[cfg(feature = "tokio")]
mod allocations;
mod contract;
mod handle;
mod keys;
mod plain;
mod policy;
mod remote;
mod sharing;
mod stacks;
mod support;
mod types;
#[cfg(feature = "tokio")]
mod waiting;
