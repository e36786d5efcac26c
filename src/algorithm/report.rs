//! What a state holds.

/// What a state holds at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The largest cost that is admitted at once.
    pub available: u64,
    /// Whether a block or a ban holds.
    pub is_blocked: bool,
}

impl Report {
    /// That of two limits that decide together.
    #[must_use]
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            available: self.available.min(other.available),
            is_blocked: self.is_blocked | other.is_blocked,
        }
    }
}
