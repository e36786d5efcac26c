//! What the services, clones and handles of one layer share.

use std::{
    hash::{Hash, Hasher},
    sync::Arc,
};

use super::counts::Counters;
use super::policy_cache::PolicyCache;
use super::signals::Signals;
use crate::backend::Backend;
use crate::decision::Decision;
use crate::error::RateLimited;
use crate::queue::{LineGuard, Lines};
use crate::respond::{Policies, ResponseHooks};

/// Shared by a layer, its clones, its services and its handles.
#[derive(Debug)]
pub(crate) struct State<L> {
    pub(crate) backend: L,
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
            counts: Counters::new(),
            policy_cache: PolicyCache::new(),
            lines: Lines::new(),
            signals: Signals::default(),
        }
    }

    /// The same with another backend.
    pub(super) fn map_backend<T>(self, change: impl FnOnce(L) -> T) -> State<T> {
        State {
            backend: change(self.backend),
            counts: self.counts,
            policy_cache: self.policy_cache,
            lines: self.lines,
            signals: self.signals,
        }
    }

    /// Locks the queue in which requests of `key` wait.
    pub(super) fn lock_queue<K: Hash + ?Sized>(&self, key: &K) -> LineGuard<'_>
    where
        L: Backend<K>,
    {
        self.lines.lock_key(&QueueOf(key, &self.backend))
    }

    pub(super) fn rename(&self, name: &str) {
        self.policy_cache.rename(name);
        self.signals.rename(name);
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
    pub(super) fn report_losses<K>(&self)
    where
        L: Backend<K>,
    {
        self.signals.record_losses(|| self.backend.losses());
    }

    /// Calls `read` with the limits as clients are told them.
    #[inline]
    pub(super) fn with_policies<K, T>(&self, read: impl FnOnce(&Policies) -> T) -> T
    where
        L: Backend<K>,
    {
        self.policy_cache.with(|| self.backend.quotas(), read)
    }

    pub(super) fn denial_error<K>(&self, decision: Decision) -> RateLimited
    where
        L: Backend<K>,
    {
        let denied = RateLimited::new(decision);
        match self.with_policies(|policies| Some(Arc::clone(&policies.of(&decision)?.name))) {
            Some(name) => denied.by(name),
            None => denied,
        }
    }
}

impl<L> State<L> {
    /// The answer to a denied request, with what the response says about the limit.
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
        let decision = denied.decision().copied();
        let mut answer = respond.refuse(request, denied);
        if let (true, Some(decision), Ok(response)) = (R::WRITES_HEADERS, decision, &mut answer) {
            self.with_policies(|policies| respond.tell(response, policies, &decision));
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
