//! Checks of an algorithm, a backend or a store of your own, which those of this crate pass.
//!
//! Each check is a plain function for a test. It returns what is wrong as text. The
//! [guide](crate::guide::extending) shows one of each kind.
//!
//! | check | of | finds |
//! |---|---|---|
//! | [`check_algorithm`] | an [`Algorithm`](crate::algorithm::Algorithm) | what is not one of its [laws](Law), in random traces |
//! | [`check_cas_store`] | a [`CasStore`](crate::store::cas::CasStore) | lost and repeated writes, stale reads, early expiry |
//! | [`check_backend`] | a [`Backend`](crate::store::Backend) | decisions that an algorithm would not make |

mod backend;
mod cas;
mod check;
mod law;
mod laws;
mod random;
mod subject;
mod trace;

pub use self::{
    backend::check_backend,
    cas::check_cas_store,
    check::{check_algorithm, random_quota},
    law::Law,
    subject::{Bound, Promise, Subject},
};

fn is(holds: bool, fault: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(fault()) }
}
