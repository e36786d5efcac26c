//! What a policy file asks about the limits in it.

use super::spec::Spec;

impl Spec {
    /// Whether it is a lockout, or several.
    pub(super) fn is_lockout(&self) -> bool {
        self.terms.iter().all(|term| term.kind == "lockout")
    }

    /// The first algorithm beside a lockout, if both are there.
    pub(super) fn beside_lockout(&self) -> Option<&'static str> {
        let kinds = || self.terms.iter().map(|term| term.kind);
        let other = kinds().find(|kind| *kind != "lockout");
        other.filter(|_| kinds().any(|kind| kind == "lockout"))
    }

    /// A limit that is there twice.
    pub(super) fn repeated(&self) -> Option<String> {
        let terms = self.terms.iter().enumerate();
        let mut twice = terms.filter(|(at, term)| self.terms[..*at].contains(term));
        twice.next().map(|(_, term)| term.to_string())
    }
}
