//! Checks of an algorithm, a backend or a store of your own, which those of this crate pass.
//!
//! Each check is a plain function for a test. It returns what is wrong as text. The
//! [guide](crate::guide::extending) shows one of each kind.
//!
//! | check | of | finds |
//! |---|---|---|
//! | [`check_algorithm`] | an [`Algorithm`](crate::algorithm::Algorithm) | what breaks its promise or a [law](crate::algorithm) |
//! | [`check_cas_store`] | a [`CasStore`](crate::store::cas::CasStore) | lost and repeated writes, stale reads, early expiry |
//! | [`check_backend`] | a [`Backend`](crate::store::Backend) | decisions that an algorithm would not make |

mod algorithm;
mod backend;
mod cas;
mod random;

pub use self::{algorithm::check_algorithm, backend::check_backend, cas::check_cas_store};

fn is(holds: bool, fault: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(fault()) }
}
