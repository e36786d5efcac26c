//! The algorithms against their promises.
//!
//! Each property is a function that answers what it found wrong, so that the same function that
//! must find nothing in an algorithm must find something in a broken copy of it.

mod adversary;
mod composition;
mod differential;
mod laws;
mod limits;
mod oracle;
#[cfg(feature = "tokio")]
mod own;
mod packed;
mod planted;
mod promises;
mod random;
mod rescale;
mod subjects;
