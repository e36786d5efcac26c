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
mod reload;
mod report;
mod respond;
mod service;
mod shared;
mod stack;
mod stores;

pub use self::{
    body::PolicyBody,
    environment::Environment,
    future::PolicyFuture,
    key::PolicyKey,
    layer::{PolicyHandle, PolicyLayer},
    report::Reloaded,
    service::PolicyService,
};
