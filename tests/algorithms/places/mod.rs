//! Every place of a state decides like a plain state, and a set of limits like its parts.
//!
//! So the laws, which `laws` checks on plain states, hold everywhere. A place that is a backend is compared by the test
//! kit: a table, two machines on one store, and in `tests/servers` each server. `TRACES=100000 cargo test --release
//! --test algorithms places` is the long run.

mod alike;
#[cfg(feature = "cas")]
mod cas;
mod composition;
mod place;
mod planted;
