//! Without the feature `tracing`, nothing is logged.

use crate::decision::Decision;
use crate::error::{Rejection, StoreError};

#[derive(Debug, Default)]
pub(super) struct EventLogger;

#[expect(clippy::unused_self, reason = "same surface as the module that logs")]
impl EventLogger {
    pub(super) const fn new(_: &str) -> Self {
        Self
    }

    pub(super) fn log_recovery(&self) {}

    pub(super) fn log_waited(&self, _: &Decision, _: bool) {}

    pub(super) fn log_denied(&self, _: &Decision, _: bool) {}

    pub(super) fn log_rejected(&self, _: &Rejection, _: bool) {}

    pub(super) fn log_store_error(&self, _: &StoreError) {}

    pub(super) fn log_unread_proxy_header(&self) {}
}
