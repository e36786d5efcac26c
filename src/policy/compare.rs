//! What a policy file asks about the limits in it.

use super::spec::Spec;
use super::term::Term;
use crate::quota::Quota;

impl Spec {
    /// The same limits with others beside them.
    pub(super) fn extend(&mut self, other: Self) {
        self.terms.extend(other.terms);
    }

    /// Whether requests may wait for it.
    pub(super) fn has_queue(&self) -> bool {
        self.terms.iter().any(|term| term.value("queue").is_some())
    }

    pub(super) fn has_lockout(&self) -> bool {
        self.terms.iter().any(|term| term.kind.name == "lockout")
    }

    /// A limit that is there twice.
    pub(super) fn repeated(&self) -> Option<String> {
        let terms = self.terms.iter().enumerate();
        let mut twice = terms.filter(|(at, term)| self.terms[..*at].contains(term));
        twice.next().map(|(_, term)| term.to_string())
    }

    /// The quota of a single limit, if `other` has another quota and is the same otherwise.
    pub(super) fn changed_quota(&self, other: &Self) -> Option<Quota> {
        let ([old], [new]) = (&*self.terms, &*other.terms) else {
            return None;
        };
        let rest = |term: &Term| {
            let options = term.options.iter().cloned();
            options
                .filter(|(option, _)| option.name != "burst")
                .map(|(option, value)| (option.name, value))
                .collect::<Vec<_>>()
        };
        let same = old.kind.name == new.kind.name && rest(old) == rest(new);
        new.quota().ok().filter(|_| same)
    }
}
