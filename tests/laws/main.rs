//! One suite of laws for every algorithm, every wrapper and every place of a state.
//!
//! The oracle is written from the promises, not from the code: what is admitted and kept stays
//! within the bound in every interval, a denial takes nothing, `retry_after` is exact, a place
//! decides like a plain state, and a set of limits decides like its parts.
//!
//! The suite of stores, `tests/conformance`, runs them over every store. `TRACES=100000 cargo test
//! --release --test laws` is the long run.
#![cfg(feature = "testkit")]

mod bounds;
#[cfg(feature = "cas")]
mod cas;
mod composition;
mod denials;
mod place;
mod places;
mod planted;
mod subjected;
#[path = "../algorithms/subjects.rs"]
#[expect(dead_code, reason = "shared with the tests of the algorithms")]
mod subjects;

use test_support::random;
