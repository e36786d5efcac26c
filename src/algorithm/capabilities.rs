//! What others ask about the settings of an algorithm.

use super::Turns;

/// What limiters, queues and stores ask about the settings of an algorithm, in one value.
///
/// The default is right for an algorithm of your own: one limit without turns, which runs on a copy of the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// How many limits it holds, for [`Decision::policy`](crate::Decision::policy).
    pub(crate) limits: usize,
    pub(crate) turns: Turns,
    /// Whether a denial changes the state of its key. Then it must be decided, and not only peeked at or
    /// repeated from a cache.
    pub(crate) counts_denials: bool,
    /// Whether each key needs a state of its own: a refund is about one key alone.
    pub(crate) is_about_one_key: bool,
    /// Whether the algorithm, or a part of it, is not one of this crate's. Then it runs on a copy of the
    /// state, and cannot use the table that calls it.
    pub(crate) is_user_code: bool,
}

impl Capabilities {
    /// No limit, to which others are added.
    pub(super) const NO_LIMIT: Self = Self {
        limits: 0,
        turns: Turns::Vary(0),
        counts_denials: false,
        is_about_one_key: false,
        is_user_code: false,
    };

    /// A limit of this crate that needs nothing special.
    pub(super) const ONE_LIMIT: Self = Self {
        limits: 1,
        ..Self::NO_LIMIT
    };

    /// Those of such a limit whose turns follow each other so.
    #[inline]
    pub(super) const fn with_turns(turns: Turns) -> Self {
        Self {
            turns,
            ..Self::ONE_LIMIT
        }
    }

    /// Whether a request can [book](super::reserve) a turn in one of its limits.
    #[inline]
    pub(crate) const fn books_turns(self) -> bool {
        matches!(self.turns, Turns::Booked | Turns::Steps(_))
    }

    /// Those of two limits that decide together.
    #[inline]
    #[must_use]
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            limits: self.limits + other.limits,
            turns: self.turns.max(other.turns),
            counts_denials: self.counts_denials | other.counts_denials,
            is_about_one_key: self.is_about_one_key | other.is_about_one_key,
            is_user_code: self.is_user_code | other.is_user_code,
        }
    }
}

impl Default for Capabilities {
    fn default() -> Self {
        Self {
            is_user_code: true,
            ..Self::ONE_LIMIT
        }
    }
}
