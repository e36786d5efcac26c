//! What a layer can be given as its limit.

use super::permits::{Permits, checked_limit};
use super::source::InProcess;
use crate::error::expect_valid;

/// A limit on concurrency: a number, or the number of a fleet, `fleet::FleetLimit` (feature `cas`). There are no others.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a limit on concurrency",
    label = "give a `u32`",
    note = "a limit that follows latency is made with `ConcurrencyLimitLayer::adaptive`"
)]
pub trait IntoLimit {
    /// Where the permits are.
    type Source;

    /// The permits of a layer, and where they are.
    fn into_limit(self) -> (Permits, Self::Source);
}

impl IntoLimit for u32 {
    type Source = InProcess;

    #[track_caller]
    fn into_limit(self) -> (Permits, InProcess) {
        (
            Permits::new(expect_valid(checked_limit(self)), false),
            InProcess,
        )
    }
}
