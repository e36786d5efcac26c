//! Limits as text.
//!
//! [`Spec`] is one limit as text, `token_bucket 10/s; burst=50`, and the vocabulary of all of them.

mod kinds;
mod nearest;
mod parse;
mod spec;

pub use self::spec::{Concurrency, Spec};
