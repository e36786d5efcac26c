//! A policy file: what it holds, and everything that is wrong with it.

mod check;
mod model;
mod problem;
mod read;
mod schema;
mod shape;
#[cfg(feature = "toml")]
mod toml;
mod tree;
mod values;
mod write;

pub use self::{
    model::PolicyFile,
    problem::{Problem, Problems},
    schema::schema,
};
pub(super) use self::{
    model::{
        Deny, HeaderValues, Limit, ListSource, NetworksSource, OverrideFor, Requests, StoreSource,
    },
    values::KeySource,
};
