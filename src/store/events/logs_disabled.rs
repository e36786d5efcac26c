//! Without the feature `tracing`, nothing is logged.

use super::Switch;
use crate::backend::Losses;
use crate::clock::Tick;

#[derive(Debug, Default)]
pub(in crate::store) struct SwitchLog(());

#[expect(clippy::unused_self, reason = "same surface as the module that logs")]
impl SwitchLog {
    #[inline]
    pub(in crate::store) fn record(&self, _: &impl Switch) {}

    #[inline]
    pub(in crate::store) fn catch_up(&self, _: &impl Switch) {}

    #[cfg(feature = "cas")]
    #[inline]
    pub(in crate::store) fn has_left_out(&self) -> bool {
        false
    }
}

#[derive(Debug, Default)]
pub(in crate::store) struct OverflowLog(());

#[expect(clippy::unused_self, reason = "same surface as the module that logs")]
impl OverflowLog {
    #[inline]
    pub(in crate::store) fn record(&self, _: Tick, _: impl FnOnce() -> Losses) {}
}
