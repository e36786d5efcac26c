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

pub use self::{model::PolicyFile, problem::Problems};
pub(super) use self::{
    model::{Deny, FileLimit, ListSource, Override, Requests, StoreSource},
    problem::{Problem, not_defined},
    values::KeySource,
};
