//! What all the services of one layer share.

use std::sync::Arc;

use super::counts::Counters;
use super::policy_cache::PolicyCache;
use super::signals::Signals;
use crate::backend::Backend;
use crate::decision::Decision;
use crate::error::RateLimited;
use crate::queue::Lines;
use crate::respond::Policies;

/// Shared by a layer, its clones, its services and its handles.
#[derive(Debug)]
pub(crate) struct State<L> {
    pub(crate) limiter: L,
    pub(crate) counts: Counters,
    told: PolicyCache,
    /// Who waits.
    pub(crate) lines: Lines,
    signals: Signals,
}

impl<L> State<L> {
    pub(super) fn new(limiter: L) -> Self {
        Self {
            limiter,
            counts: Counters::new(),
            told: PolicyCache::new(),
            lines: Lines::new(),
            signals: Signals::default(),
        }
    }

    pub(super) fn rename(&self, name: &str) {
        self.told.rename(name);
        self.signals.rename(name);
    }

    pub(crate) fn name(&self) -> Arc<str> {
        self.told.name()
    }

    /// The limits have changed; clients are told the new ones from now on.
    pub(crate) fn refresh_policies(&self) {
        self.told.refresh_policies();
    }

    #[inline]
    pub(super) fn signals(&self) -> &Signals {
        &self.signals
    }

    /// Counts a request that goes on at once.
    #[inline]
    pub(super) fn admitted(&self) {
        self.counts.admitted();
        self.signals.admitted();
    }

    /// Reports what the limiter could not keep while it decided.
    #[inline]
    pub(super) fn watch<K>(&self)
    where
        L: Backend<K>,
    {
        self.signals.lost(|| self.limiter.losses());
    }

    /// Lends the limits as clients are told them.
    #[inline]
    pub(super) fn with_policies<K, T>(&self, lend: impl FnOnce(&Policies) -> T) -> T
    where
        L: Backend<K>,
    {
        self.told.with(|| self.limiter.quotas(), lend)
    }

    pub(super) fn denial<K>(&self, decision: Decision) -> RateLimited
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
