//! Lists of clients that are not limited, or that are blocked.

mod networks;
mod predicates;
mod watched;

pub use self::{networks::Networks, predicates::Within, watched::Watched};
