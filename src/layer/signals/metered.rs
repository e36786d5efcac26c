//! One counter for `metrics`: `tower_throttle_requests_total`, labelled with the name of the limit
//! and the fate of the request.

use std::sync::{PoisonError, RwLock};

use metrics::SharedString;

#[derive(Debug, Default)]
pub(super) struct Metered {
    name: RwLock<Option<SharedString>>,
}

impl Metered {
    pub(super) fn rename(&self, name: &str) {
        let shared = SharedString::from_shared(name.into());
        *self.name.write().unwrap_or_else(PoisonError::into_inner) = Some(shared);
    }

    pub(super) fn count(&self, fate: &'static str) {
        let name = self.name.read().unwrap_or_else(PoisonError::into_inner);
        let name = name
            .clone()
            .unwrap_or_else(|| SharedString::const_str("default"));
        metrics::counter!("tower_throttle_requests_total", "limit" => name, "fate" => fate)
            .increment(1);
    }
}
