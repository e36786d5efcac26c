//! One suite of laws for every algorithm, every wrapper and every place of a state.
//!
//! The oracle is written from the promises, not from the code: what is admitted and kept stays
//! within the bound in every interval, a denial takes nothing, `retry_after` is exact, a place
//! decides like a plain state, and a set of limits decides like its parts.
//!
//! Stores decide as a state in process, as `tests/servers` shows. `TRACES=100000 cargo test --release
//! --test algorithms places` is the long run.

mod alike;
mod bounds;
#[cfg(feature = "cas")]
mod cas;
mod composition;
mod place;
mod planted;
mod subjected;
