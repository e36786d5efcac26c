//! A permit, and the place in line of a request that waits for one.

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use super::state::State;

/// Lets one request be in flight. Dropping it releases it, and the next waiter of its key gets it.
pub(super) struct Permit {
    state: Arc<State>,
    id: u64,
    units: u64,
}

impl Permit {
    /// The permit of units that were taken from the table.
    #[inline]
    pub(super) const fn new(state: Arc<State>, id: u64, units: u64) -> Self {
        Self { state, id, units }
    }

    pub(super) const fn state(&self) -> &Arc<State> {
        &self.state
    }

    /// The permits of the key that are taken.
    pub(super) fn in_flight(&self) -> u64 {
        self.state.table.in_flight(self.id)
    }
}

impl Drop for Permit {
    #[inline]
    fn drop(&mut self) {
        self.state.table.release(self.id, self.units);
    }
}

/// Manual impl: not even the hash of a key is shown.
impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").finish_non_exhaustive()
    }
}

/// The place of a request in the line of its key. Dropping it leaves the line, and passes on a permit
/// that it was granted in the meantime.
pub(super) struct Place {
    state: Arc<State>,
    id: u64,
    units: u64,
    /// `None` once it has left the line.
    at: Option<u32>,
}

impl Place {
    /// The place of the node `at` of the line.
    pub(super) const fn new(state: Arc<State>, id: u64, units: u64, at: u32) -> Self {
        Self {
            state,
            id,
            units,
            at: Some(at),
        }
    }

    /// Ready with the permit, once.
    pub(super) fn poll(&mut self, cx: &Context<'_>) -> Poll<Permit> {
        let Some(at) = self.at else {
            return Poll::Pending;
        };
        match self.state.table.poll_waiter(self.id, at, cx.waker()) {
            Poll::Ready(()) => {
                self.at = None;
                Poll::Ready(self.permit())
            }
            Poll::Pending => Poll::Pending,
        }
    }

    /// Leaves the line. Returns the permit if it was granted at the last moment.
    pub(super) fn leave(&mut self) -> Option<Permit> {
        let at = self.at.take()?;
        let granted = self.state.table.leave(self.id, at);
        granted.then(|| self.permit())
    }

    fn permit(&self) -> Permit {
        Permit::new(Arc::clone(&self.state), self.id, self.units)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(self.leave());
    }
}
