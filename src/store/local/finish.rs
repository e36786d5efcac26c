//! What a caller of the fast path makes of its decision.

use crate::backend::Admission;
use crate::decision::Decision;

/// Turns a decision into what the caller needs.
///
/// The fast path calls it at each of its ends, so that the compiler computes a figure only where it
/// is read. A closure would not always be inlined.
pub(super) trait Finish {
    type Output;

    fn finish(&self, decision: Decision) -> Self::Output;
}

/// The decision itself.
pub(super) struct Whole;

impl Finish for Whole {
    type Output = Decision;

    #[expect(clippy::inline_always, reason = "see `Finish`")]
    #[inline(always)]
    fn finish(&self, decision: Decision) -> Decision {
        decision
    }
}

/// The decision, except for an admission if the closure returns true.
pub(super) struct UnlessUnread<F>(pub(super) F);

impl<F: Fn() -> bool> Finish for UnlessUnread<F> {
    type Output = Admission<Decision>;

    #[expect(clippy::inline_always, reason = "see `Finish`")]
    #[inline(always)]
    fn finish(&self, decision: Decision) -> Admission<Decision> {
        if decision.is_admitted() && (self.0)() {
            Admission::Admitted
        } else {
            Admission::Other(decision)
        }
    }
}
