//! Where the fields of a file are.

use std::collections::BTreeMap;

/// The line of each field by its path. Empty if the format reports no lines.
#[derive(Clone, Default)]
pub(super) struct Lines(pub(super) BTreeMap<String, u32>);

impl Lines {
    /// The line of a field, or of what it would be in.
    pub(super) fn of(&self, path: &str) -> Option<u32> {
        let parent = || self.of(&path[..path.rfind(['.', '['])?]);
        self.0.get(path).copied().or_else(parent)
    }
}

/// Manual impl: files that say the same are equal, wherever it is written.
impl PartialEq for Lines {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Lines {}
