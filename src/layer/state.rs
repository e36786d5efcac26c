//! What the services, clones and handles of one layer share.

use std::{
    hash::{Hash, Hasher},
    ops::Deref,
    sync::Arc,
};

use super::counts::Counters;
use super::policy_cache::{PolicyCache, PolicyList};
use super::signals::Signals;
use crate::backend::{Backend, Losses};
use crate::decision::Decision;
use crate::error::RateLimited;
use crate::queue::Lines;
use crate::quota::Quota;
use crate::respond::ResponseHooks;

/// Shared by a layer, its clones, its services and its handles.
#[derive(Debug)]
pub(crate) struct State<L> {
    pub(crate) backend: L,
    layer: LayerState,
}

/// The part of the state that does not depend on the type of the backend.
#[derive(Debug)]
pub(crate) struct LayerState {
    pub(crate) counts: Counters,
    pub(super) policy_cache: PolicyCache,
    /// The requests that wait.
    pub(crate) lines: Lines,
    signals: Signals,
}

impl<L> State<L> {
    pub(super) fn new(backend: L) -> Self {
        Self {
            backend,
            layer: LayerState::new(),
        }
    }

    /// The same with another backend.
    pub(super) fn map_backend<T>(self, change: impl FnOnce(L) -> T) -> State<T> {
        State {
            backend: change(self.backend),
            layer: self.layer,
        }
    }

    /// The line in which requests of `key` wait.
    pub(super) fn line_id<K: Hash + ?Sized>(&self, key: &K) -> u64
    where
        L: Backend<K>,
    {
        self.lines.line_id(&QueueOf(key, &self.backend))
    }

    /// The limits as clients are told them.
    pub(super) fn policies<K>(&self) -> PolicyList<'_>
    where
        L: Backend<K>,
    {
        self.policy_cache.get(&|| self.backend.quotas())
    }
}

impl<L> Deref for State<L> {
    type Target = LayerState;

    #[inline]
    fn deref(&self) -> &LayerState {
        &self.layer
    }
}

impl LayerState {
    #[inline(never)]
    fn new() -> Self {
        Self {
            counts: Counters::new(),
            policy_cache: PolicyCache::new(),
            lines: Lines::new(),
            signals: Signals::default(),
        }
    }

    #[track_caller]
    pub(super) fn rename(&self, name: &str) {
        self.signals.rename(name);
        self.policy_cache.rename(name);
    }

    pub(crate) fn name(&self) -> Arc<str> {
        self.policy_cache.name()
    }

    /// Makes responses state the limits that the backend has now.
    pub(crate) fn refresh_policies(&self) {
        self.policy_cache.refresh_policies();
    }

    #[inline]
    pub(super) fn signals(&self) -> &Signals {
        &self.signals
    }

    /// Counts a request that goes on at once. Returns whether it is one of the
    /// [sample](Counters::is_sampled).
    #[inline]
    pub(super) fn record_admitted(&self) -> bool {
        self.signals.record_admitted();
        self.counts.record_admitted()
    }

    /// Reports a request with a proxy header that the key extractor ignores.
    #[cold]
    #[inline(never)]
    pub(super) fn record_unread_proxy_header(&self) {
        self.counts.record_unread_proxy_header();
        self.signals.record_unread_proxy_header();
    }

    /// Reports what the backend evicted or denied because it was full.
    #[inline]
    pub(super) fn report_losses(&self, losses: impl FnOnce() -> Losses) {
        self.signals.record_losses(losses);
    }

    /// The error of a denied request, with the name of the limit. `quotas` are those of the backend.
    pub(super) fn denial_error(
        &self,
        quotas: &dyn Fn() -> Vec<Quota>,
        decision: Decision,
    ) -> RateLimited {
        let denied = RateLimited::new(decision);
        match self.policy_cache.get(quotas).of(&decision) {
            Some(policy) => denied.by(Arc::clone(&policy.name)),
            None => denied,
        }
    }
}

impl<L> State<L> {
    /// The answer to a denied request, with what the response says about the limit.
    #[inline(never)]
    pub(super) fn deny<K, R, Req, Res, Err>(
        &self,
        respond: &R,
        request: Req,
        denied: RateLimited,
    ) -> Result<Res, Err>
    where
        L: Backend<K>,
        R: ResponseHooks<Req, K, Res, Err>,
    {
        if !R::WRITES_HEADERS {
            return respond.refuse(request, denied);
        }
        let decision = denied.decision().copied();
        let mut answer = respond.refuse(request, denied);
        if let (Some(decision), Ok(response)) = (decision, &mut answer) {
            respond.tell(response, &self.policies(), &decision);
        }
        answer
    }
}

/// Identifies the queue of a key.
struct QueueOf<'a, K: ?Sized, L>(&'a K, &'a L);

impl<K: Hash + ?Sized, L: Backend<K>> Hash for QueueOf<'_, K, L> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.1.hash_queue(self.0, state);
    }
}
