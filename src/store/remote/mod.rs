//! What all stores on servers have in common: how keys are named, and what happens when a server
//! fails.
//!
//! This module knows no server's protocol: it has circuit breakers, connections that are made once, a cache of denials
//! and the names of keys.

mod breaker;
mod breakers;
#[cfg(any(feature = "redis", feature = "postgres", feature = "cassandra"))]
pub(crate) mod connector;
mod deny_cache;
mod key;
mod layout;
mod slots;
mod task;

#[cfg(any(feature = "redis", feature = "postgres", feature = "cassandra"))]
pub(crate) use self::connector::{Connect, Connector};
#[cfg(any(feature = "postgres", feature = "cassandra"))]
pub(crate) use self::key::is_table_name;
pub use self::key::{KeyName, RemoteKey};
pub(crate) use self::{
    breakers::Breakers,
    deny_cache::{Asked, DenyCache},
    key::{check_name, key_name},
    layout::{layout, layout_of, padding},
    task::{catch_panic, is_own_thread, join_all, task_runtime},
};

/// What to do if an error of a connection says that a certificate is not trusted. That is no outage.
#[cfg(any(feature = "redis", feature = "postgres", feature = "cassandra"))]
pub(crate) fn certificate_advice(error: &str) -> Option<&'static str> {
    let advice = "; check the server's certificate, its host name and the trusted certificates";
    error.contains("certificate").then_some(advice)
}
