//! The limits of a file that apply to a request.

use std::{
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
};

use super::active::{Active, Generation};
use super::key::PolicyKey;
use crate::key::Key;

/// The limits of a policy file that apply to a request, and its key for each.
///
/// A reload does not change them: the request finishes under the limits under which it began.
#[derive(Clone)]
pub struct MatchedLimits {
    pub(super) generation: Arc<Generation>,
    /// The indexes of the limits. There is at least one.
    pub(super) limits: Vec<(usize, PolicyKey)>,
}

impl MatchedLimits {
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = (&Active, &PolicyKey)> {
        let limits = &self.generation.limits;
        self.limits.iter().map(|(at, key)| (&limits[*at], key))
    }
}

impl Key for MatchedLimits {}

impl Hash for MatchedLimits {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.limits.hash(state);
    }
}

/// Manual impl: keys must not be logged.
impl fmt::Debug for MatchedLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.iter().map(|(active, _)| &active.limit.name);
        f.debug_list().entries(names).finish()
    }
}
