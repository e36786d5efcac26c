//! The limits of one version of a file.

use std::collections::BTreeMap;

use super::active::{Active, ActiveDeny};
use crate::key::{Networks, Watched};
use crate::policy::file::{Deny, Problem};

/// The limits of one version of a file.
#[derive(Default)]
pub(super) struct Generation {
    /// In the order in which they are asked.
    pub(super) limits: Vec<Active>,
    pub(super) denies: Vec<ActiveDeny>,
    /// As the file says.
    pub(super) denied: Vec<Deny>,
    pub(super) lists: BTreeMap<String, Watched<Networks>>,
    pub(super) warnings: Vec<Problem>,
}

impl Generation {
    /// Whether the list `name` has the networks that it has in `other`.
    pub(super) fn has_list_of(&self, other: &Self, name: &str) -> bool {
        match (self.lists.get(name), other.lists.get(name)) {
            (Some(one), Some(other)) => one.get() == other.get(),
            (one, other) => one.is_none() && other.is_none(),
        }
    }
}
