//! What an operator gets of a store that refuses, in every mode: an error that stays an error, one line of
//! the log per cause, counts, and an alert. And the metrics of a store that is down.
#![cfg(all(
    feature = "redis",
    feature = "postgres",
    feature = "metrics",
    feature = "tracing"
))]

mod alerts;
mod outages;
mod refusals;

use test_support::{log, measured};
