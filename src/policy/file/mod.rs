//! A policy file: what it holds, and what is wrong with it.

mod check;
mod lines;
mod model;
mod problem;
mod read;
#[cfg(test)]
mod tests;
#[cfg(feature = "toml")]
mod toml;
mod values;

pub(super) use self::{
    model::{Deny, HeaderValues, Limit, ListSource, Requests, StoreSource},
    values::{AllowOrDeny, KeySource},
};
pub use self::{
    model::{PolicyFile, schema},
    problem::{Problem, Problems},
};
