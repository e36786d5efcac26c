//! Without the feature `tracing`, nothing is logged.

use crate::error::StoreError;

#[derive(Debug)]
pub(in crate::store) struct RefusalLog(());

#[expect(clippy::unused_self, reason = "same surface as the module that logs")]
impl RefusalLog {
    pub(in crate::store) const fn new() -> Self {
        Self(())
    }

    #[inline]
    pub(in crate::store) fn record(&self, _: &str, _: &StoreError) {}
}
