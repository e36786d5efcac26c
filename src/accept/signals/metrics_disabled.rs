//! Without the feature `metrics`, nothing is measured.

use std::sync::Arc;

pub(super) const fn count(_: &Arc<str>, _: &'static str) {}

pub(super) const fn add_open(_: &Arc<str>, _: f64) {}
