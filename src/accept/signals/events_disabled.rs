//! Without the feature `tracing`, nothing is logged.

use std::io;

use crate::accept::Refused;

pub(super) const fn refused(_: &str, _: Refused) {}

pub(super) const fn failed(_: &str, _: &io::Error) {}
