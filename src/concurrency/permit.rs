//! A permit, and the place in line of a request that waits for one.

use std::{
    sync::Arc,
    task::{Context, Poll, ready},
};

use super::adaptive::Outcome;
use super::line::{End, QueuedPermit};
use super::permits::Permits;
use super::request::{KeyUsage, PermitRequest};
use crate::clock::Tick;

/// Lets one request be in flight. Dropping it releases it, and the next waiter of its key gets it.
#[derive(Debug)]
pub(crate) struct Permit {
    permits: Arc<Permits>,
    request: PermitRequest,
}

impl Permit {
    /// The permit of units that were taken from the table.
    #[inline]
    pub(super) const fn new(permits: Arc<Permits>, request: PermitRequest) -> Self {
        Self { permits, request }
    }

    /// Takes a permit if there is room. Returns what is taken then, or what leaves no room.
    #[cfg(feature = "accept")]
    pub(crate) fn try_take(
        permits: &Arc<Permits>,
        request: PermitRequest,
    ) -> Result<(Self, KeyUsage), KeyUsage> {
        let usage = permits.table.try_take(request)?;
        Ok((Self::new(Arc::clone(permits), request), usage))
    }

    /// Adds a request that began at a moment with so many in flight to the samples of an adaptive limit.
    pub(super) fn record(&self, began: (Tick, u64), outcome: Outcome) {
        self.permits.record(began, self.request.reserved, outcome);
    }

    /// How much of the limit of the key is taken.
    pub(super) fn usage(&self) -> KeyUsage {
        self.permits.table.usage(self.request)
    }
}

impl Drop for Permit {
    #[inline]
    fn drop(&mut self) {
        self.permits.table.release(self.request);
    }
}

/// The place of a request in the line of its key. Dropping it leaves the line, and passes on a permit
/// that it was granted in the meantime.
#[derive(Debug)]
pub(super) struct WaiterPlace {
    permits: Arc<Permits>,
    pub(super) request: PermitRequest,
    /// `None` once it has left the line.
    queued: Option<QueuedPermit>,
}

impl WaiterPlace {
    pub(super) const fn new(
        permits: Arc<Permits>,
        request: PermitRequest,
        queued: QueuedPermit,
    ) -> Self {
        Self {
            permits,
            request,
            queued: Some(queued),
        }
    }

    /// Ready once: with the permit, or with how else the wait has ended.
    pub(super) fn poll(&mut self, cx: &Context<'_>) -> Poll<Result<Permit, End>> {
        let Some(queued) = &self.queued else {
            return Poll::Pending;
        };
        let end = ready!(queued.poll(cx.waker()));
        self.queued = None;
        Poll::Ready(match end {
            End::Granted => Ok(self.permit()),
            end => Err(end),
        })
    }

    /// Leaves the line. Returns the permit if it was granted at the last moment.
    pub(super) fn leave(&mut self) -> Option<Permit> {
        let queued = self.queued.take()?;
        let granted = self.permits.table.leave(self.request, &queued);
        granted.then(|| self.permit())
    }

    fn permit(&self) -> Permit {
        Permit::new(Arc::clone(&self.permits), self.request)
    }
}

impl Drop for WaiterPlace {
    fn drop(&mut self) {
        drop(self.leave());
    }
}
