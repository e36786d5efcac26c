//! What is asked of the settings of all parts.

use super::super::{Algorithm, Facts, Packing};
use super::parts::VisitPart;
use crate::error::ConfigError;
use crate::quota::Quota;

pub(super) struct FirstQuota(pub(super) Option<Quota>);

impl VisitPart for FirstQuota {
    fn visit<A: Algorithm>(&mut self, part: &A) {
        self.0.get_or_insert_with(|| part.quota());
    }
}

pub(super) struct Quotas(pub(super) Vec<Quota>);

impl VisitPart for Quotas {
    fn visit<A: Algorithm>(&mut self, part: &A) {
        self.0.append(&mut A::Packing::quotas(part));
    }
}

pub(super) struct Validate(pub(super) Result<(), ConfigError>);

impl VisitPart for Validate {
    fn visit<A: Algorithm>(&mut self, part: &A) {
        if self.0.is_ok() {
            self.0 = part.validate();
        }
    }
}

pub(super) struct FactsOf(pub(super) Facts);

impl VisitPart for FactsOf {
    #[inline]
    fn visit<A: Algorithm>(&mut self, part: &A) {
        self.0 = self.0.and(part.facts());
    }
}
