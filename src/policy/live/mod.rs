//! The limits of a policy file at work.

mod active;
mod backend;
mod body;
mod environment;
mod future;
mod generation;
mod key;
mod keys;
mod layer;
#[cfg(feature = "tonic")]
mod named_service;
#[cfg(not(feature = "axum"))]
mod nested_disabled;
#[cfg(feature = "axum")]
mod nested_enabled;
mod reload;
mod report;
mod respond;
mod service;
mod shared;
mod stack;
mod stores;

#[cfg(not(feature = "axum"))]
use self::nested_disabled::nested;
#[cfg(feature = "axum")]
use self::nested_enabled::nested;
pub use self::{
    backend::{PolicyBackend, PolicyDecision},
    body::PolicyBody,
    environment::Environment,
    future::PolicyFuture,
    key::PolicyKey,
    layer::{PolicyHandle, PolicyLayer},
    report::Reloaded,
    service::PolicyService,
};
