//! The future of a decision.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use super::fleet::Fleet;
use crate::algorithm::Portable;
use crate::decision::Decision;
use crate::error::StoreError;
use crate::store::{cas::CasStore, fleet::FleetFuture};

/// The decision of a [`Synced`](super::Synced) limiter: known at once, unless a [strict
/// budget](super::SyncedBuilder::strict_budget) is used up.
///
/// # Cancel safety
/// If it is dropped while it is pending, nothing is taken.
#[must_use = "futures do nothing unless polled"]
pub struct SyncedFuture<S: CasStore, A: Portable>(pub(super) FleetFuture<Fleet<S, A>>);

impl<S: CasStore, A: Portable> SyncedFuture<S, A> {
    #[inline]
    pub(super) const fn ready(result: Result<Decision, StoreError>) -> Self {
        Self(FleetFuture::ready(result))
    }
}

impl<S: CasStore, A: Portable> Future for SyncedFuture<S, A> {
    type Output = Result<Decision, StoreError>;

    #[expect(clippy::inline_always, reason = "so that no decision is copied")]
    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx)
    }
}

/// Manual impl: the key is not logged.
impl<S: CasStore, A: Portable> fmt::Debug for SyncedFuture<S, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SyncedFuture").finish_non_exhaustive()
    }
}
