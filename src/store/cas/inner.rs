//! What the clones of a limiter, and the tasks that decide for it, share.

use std::{sync::Arc, time::Duration};

use super::{CasStore, error::Failure, lines::Lines, policy::CasPolicy, shared::Shared};
use crate::algorithm::Portable;
use crate::clock::Tick;
use crate::decision::Decision;
use crate::error::StoreError;
use crate::store::remote::{DenyCache, LivePolicy, Remote};

/// How long after the deadline of its last call a driver may still be ending.
const DRIVER_GRACE: Duration = Duration::from_millis(50);

pub(super) struct Inner<S: CasStore, A: Portable> {
    pub(super) shared: Arc<Shared<S>>,
    pub(super) policy: LivePolicy<CasPolicy<S, A>>,
    pub(super) lines: Lines<A>,
    /// The start of the names of its keys.
    pub(super) name_prefix: String,
    pub(super) deny_cache: Option<Arc<DenyCache>>,
    pub(super) follows_changes: bool,
}

impl<S: CasStore, A: Portable> Inner<S, A> {
    /// When a driver that starts now has ended.
    pub(super) fn ends_by(&self, now: Tick) -> Tick {
        now.plus(self.shared.deadline).plus(DRIVER_GRACE)
    }
}

impl<S: CasStore, A: Portable> Remote for Inner<S, A> {
    type Reply = Decision;

    const STORE: &'static str = S::NAME;

    fn deadline(&self) -> Duration {
        self.shared.deadline
    }

    fn deadline_exceeded(&self) -> StoreError {
        Failure::Deadline(self.shared.deadline).in_store(S::NAME)
    }
}
