//! What the clones of a limiter, and the tasks that decide for it, share.

use std::{sync::Arc, time::Duration};

use super::{CasStore, decider::Decider, lanes::Lanes, shared::Shared};
use crate::algorithm::Algorithm;
use crate::clock::{Tick, nanos};
use crate::decision::{Decision, Verdict};
use crate::error::StoreError;
use crate::store::remote::DenyCache;

/// How long after the deadline of its last call a task may still be ending.
const GRACE: Duration = Duration::from_millis(50);

pub(super) struct Inner<S: CasStore, A: Algorithm> {
    pub(super) shared: Arc<Shared<S>>,
    pub(super) decider: Arc<Decider<A>>,
    pub(super) lanes: Lanes<A>,
    /// The start of the names of its keys.
    pub(super) name_prefix: String,
    pub(super) deny_cache: Option<Arc<DenyCache>>,
}

impl<S: CasStore, A: Algorithm> Inner<S, A> {
    /// The denial that a lockout returns instead of this error, for a request made at `called_at`. `None` unless the
    /// store has replied since then. Then too many requests for one key were in flight, and this attempt was not
    /// counted, so it must not pass.
    pub(super) fn denial_instead(&self, error: &StoreError, called_at: Tick) -> Option<Decision> {
        let facts = self.decider.algorithm.capabilities();
        let is_contended = error.is_transient() && self.shared.has_answered_since(called_at);
        (facts.is_about_one_key && is_contended).then(|| {
            let (limit, retry_after) = (
                self.decider.algorithm.quota().limit(),
                nanos(self.shared.deadline),
            );
            Decision::new(Verdict::Deny, limit, 0, Some(retry_after), retry_after)
        })
    }

    /// When a task that starts now has ended.
    pub(super) fn ends_by(&self, now: Tick) -> Tick {
        now.plus(self.shared.deadline).plus(GRACE)
    }
}
