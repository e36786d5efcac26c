//! Without the feature `tracing`, nothing is logged.

use super::Switch;
use crate::backend::Losses;
use crate::clock::Tick;

#[derive(Debug, Default)]
pub(in crate::store) struct SwitchLog(());

#[expect(clippy::unused_self, reason = "same surface as the module that logs")]
impl SwitchLog {
    #[inline]
    pub(in crate::store) fn record(&self, _: &Switch<'_>, _: bool) {}
}

#[cfg(feature = "cas")]
pub(in crate::store) fn breaker_probed(_: &'static str) {}

#[derive(Debug, Default)]
pub(in crate::store) struct OverflowLog(());

#[expect(clippy::unused_self, reason = "same surface as the module that logs")]
impl OverflowLog {
    #[inline]
    pub(in crate::store) fn record(&self, _: Tick, _: impl FnOnce() -> Losses) {}
}
