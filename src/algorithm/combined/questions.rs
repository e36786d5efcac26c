//! What is asked of the settings of all parts.

use super::super::{Algorithm, Packing};
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

pub(super) struct IsUserCode(pub(super) bool);

impl VisitPart for IsUserCode {
    fn visit<A: Algorithm>(&mut self, part: &A) {
        self.0 |= A::Packing::is_user_code(part);
    }
}

pub(super) struct LimitCount(pub(super) usize);

impl VisitPart for LimitCount {
    #[inline]
    fn visit<A: Algorithm>(&mut self, part: &A) {
        self.0 += A::Packing::limit_count(part);
    }
}

pub(super) struct WaitingCount(pub(super) usize);

impl VisitPart for WaitingCount {
    fn visit<A: Algorithm>(&mut self, part: &A) {
        self.0 += A::Packing::waiting_count(part);
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

pub(super) struct ReplansLine(pub(super) bool);

impl VisitPart for ReplansLine {
    fn visit<A: Algorithm>(&mut self, part: &A) {
        self.0 |= part.replans_line();
    }
}

pub(super) struct IsAboutOneKey(pub(super) bool);

impl VisitPart for IsAboutOneKey {
    fn visit<A: Algorithm>(&mut self, part: &A) {
        self.0 |= A::Packing::is_about_one_key(part);
    }
}

pub(super) struct CountsDenials(pub(super) bool);

impl VisitPart for CountsDenials {
    #[inline]
    fn visit<A: Algorithm>(&mut self, part: &A) {
        self.0 |= A::Packing::counts_denials(part);
    }
}

pub(super) struct MaxHeapBytes(pub(super) usize);

impl VisitPart for MaxHeapBytes {
    fn visit<A: Algorithm>(&mut self, part: &A) {
        self.0 = self.0.saturating_add(A::Packing::max_heap_bytes(part));
    }
}

pub(super) struct WordCount(pub(super) usize);

impl VisitPart for WordCount {
    #[inline]
    fn visit<A: Algorithm>(&mut self, part: &A) {
        self.0 += A::Packing::word_count(part);
    }
}
