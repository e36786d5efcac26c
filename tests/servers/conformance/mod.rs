//! The suite, in each store.

mod cassandra;
mod memory;
mod memory_quotas;
mod postgres;
mod redis;
