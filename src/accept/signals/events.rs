//! Events for `tracing`, with the target `tower_throttle`. A flood of refused connections must not fill a log.

use std::io;

use crate::accept::Refused;

pub(super) fn refused(limit: &str, reason: Refused) {
    tracing::debug!(target: "tower_throttle", limit, %reason, "a connection was refused");
}

pub(super) fn failed(limit: &str, error: &io::Error) {
    tracing::error!(
        target: "tower_throttle",
        limit,
        %error,
        "no connection can be accepted; trying again (logged once until one can)"
    );
}
