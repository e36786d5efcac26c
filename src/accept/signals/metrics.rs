//! A counter and a gauge for `metrics`, labelled with the name of the limit.

use std::sync::Arc;

use metrics::SharedString;

pub(super) fn count(limit: &Arc<str>, outcome: &'static str) {
    let limit = SharedString::from_shared(Arc::clone(limit));
    metrics::counter!("tower_throttle_connections_total", "limit" => limit, "outcome" => outcome)
        .increment(1);
}

pub(super) fn add_open(limit: &Arc<str>, change: f64) {
    let limit = SharedString::from_shared(Arc::clone(limit));
    metrics::gauge!("tower_throttle_connections_open", "limit" => limit).increment(change);
}
