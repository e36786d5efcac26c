//! What is decided for several limits at once.

use std::cmp::Ordering;

use crate::decision::{Decision, Verdict};

/// The decision of two limits. All figures are those of the limit that binds; an accepted request
/// waits for the longer of both waits.
#[inline]
pub(crate) fn merge(first: Decision, second: Decision) -> Decision {
    let (mut binding, other) = if binds_more(&second, &first) {
        (second, first)
    } else {
        (first, second)
    };
    if let (Some(wait), Some(longer)) = (binding.wait(), other.wait()) {
        if longer > wait {
            binding.verdict = Verdict::Wait(longer);
        }
    }
    binding
}

/// Whether `a` binds rather than `b`, which comes first in the list.
///
/// A denial binds rather than an admission. Of two denials the one that ends later binds, or never
/// ends. Of two admissions the one with less room relative to its limit binds, and if that is
/// equal, the one that takes longer to reset.
fn binds_more(a: &Decision, b: &Decision) -> bool {
    match (a.is_denied(), b.is_denied()) {
        (true, true) => match (a.retry_after, b.retry_after) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(a), Some(b)) => a > b,
        },
        (false, false) => match relative_room(a, b) {
            Ordering::Less => true,
            Ordering::Equal => a.reset_after > b.reset_after,
            Ordering::Greater => false,
        },
        (a_denied, _) => a_denied,
    }
}

/// Compares `remaining / limit`, without dividing.
fn relative_room(a: &Decision, b: &Decision) -> Ordering {
    let cross =
        |one: &Decision, other: &Decision| u128::from(one.remaining()) * u128::from(other.limit);
    cross(a, b).cmp(&cross(b, a))
}
