//! Without the feature `tracing`, nothing is logged.

use crate::respond::Event;

#[derive(Debug, Default)]
pub(super) struct EventLogger;

#[expect(clippy::unused_self, reason = "same surface as the module that logs")]
impl EventLogger {
    pub(super) const fn new(_: &str) -> Self {
        Self
    }

    pub(super) fn observe(&self, _: Event<'_>, _: bool) {}
}
