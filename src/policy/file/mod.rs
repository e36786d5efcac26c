//! A policy file: what it holds, and what is wrong with it.

mod check;
mod lines;
mod model;
mod problem;
mod read;
#[cfg(test)]
mod tests;
mod toml;
mod values;

pub(super) use self::{
    model::{Deny, Limit, ListSource, Override, Requests, StoreSource},
    problem::not_defined,
    values::KeySource,
};
pub use self::{
    model::{PolicyFile, schema},
    problem::{Problem, Problems},
};
