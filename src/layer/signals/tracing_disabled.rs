//! Nothing is logged.

use crate::decision::Decision;
use crate::error::{Rejection, StoreError};

#[derive(Debug, Default)]
pub(super) struct EventLogger;

#[expect(
    clippy::unused_self,
    reason = "one surface with the module that does log"
)]
impl EventLogger {
    pub(super) fn rename(&self, _: &str) {}

    pub(super) fn decided(&self) {}

    pub(super) fn waits(&self, _: &Decision) {}

    pub(super) fn denied(&self, _: &Decision, _: bool) {}

    pub(super) fn rejected(&self, _: &Rejection) {}

    pub(super) fn failed(&self, _: &StoreError) {}

    pub(super) fn untimed(&self) {}
}
