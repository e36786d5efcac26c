//! The limits of a policy file at work.

mod active;
mod backend;
mod body;
mod environment;
mod future;
mod keys;
mod layer;
#[cfg(feature = "tonic")]
mod named_service;
mod reload;
mod respond;
mod service;
mod stores;

pub use self::{
    body::PolicyBody,
    environment::Environment,
    future::PolicyFuture,
    keys::{PolicyKey, PolicyKeys},
    layer::{PolicyHandle, PolicyLayer},
    reload::Reloaded,
    respond::{PolicyDeny, PolicyHeaders, PolicySettle},
    service::PolicyService,
};
