//! A permit.

use std::sync::Arc;

use super::adaptive::RequestEnd;
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
        let usage = permits.table.take(request)?;
        Ok((Self::new(Arc::clone(permits), request), usage))
    }

    /// Adds a request that began at a moment with so many in flight to the samples of an adaptive limit.
    pub(super) fn record(&self, began: (Tick, u64), outcome: RequestEnd) {
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
        self.permits.release(self.request);
    }
}
