//! What all the services of one layer share.

use std::sync::{Arc, PoisonError, RwLock};

use super::counts::Counters;
use super::signals::Signals;
use crate::decision::Decision;
use crate::error::RateLimited;
use crate::limiter::KeyedLimiter;
use crate::queue::Lines;
use crate::respond::Policies;

/// Shared by a layer, its clones, its services and its handles.
#[derive(Debug)]
pub(crate) struct State<L> {
    pub(crate) limiter: L,
    pub(crate) counts: Counters,
    /// Who waits.
    pub(crate) lines: Lines,
    told: RwLock<Told>,
    signals: Signals,
}

/// What clients are told about the limits.
#[derive(Debug)]
struct Told {
    name: Arc<str>,
    /// Made when first needed: which key the limiter is asked with is not known before. Gone again
    /// when the name or a quota changes.
    policies: Option<Arc<Policies>>,
}

impl<L> State<L> {
    pub(super) fn new(limiter: L) -> Self {
        Self {
            limiter,
            counts: Counters::new(),
            lines: Lines::new(),
            told: RwLock::new(Told {
                name: "default".into(),
                policies: None,
            }),
            signals: Signals::default(),
        }
    }

    pub(super) fn rename(&self, name: &str) {
        let mut told = self.told.write().unwrap_or_else(PoisonError::into_inner);
        told.name = name.into();
        told.policies = None;
        self.signals.rename(name);
    }

    pub(crate) fn name(&self) -> Arc<str> {
        let told = self.told.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&told.name)
    }

    /// The limits have changed; clients are told the new ones from now on.
    pub(crate) fn retell(&self) {
        let mut told = self.told.write().unwrap_or_else(PoisonError::into_inner);
        told.policies = None;
    }

    #[inline]
    pub(super) fn signals(&self) -> &Signals {
        &self.signals
    }

    /// Lends the limits as clients are told them.
    pub(super) fn with_policies<K, T>(&self, lend: impl FnOnce(&Policies) -> T) -> T
    where
        L: KeyedLimiter<K>,
    {
        {
            let told = self.told.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(policies) = &told.policies {
                return lend(policies);
            }
        }
        let mut told = self.told.write().unwrap_or_else(PoisonError::into_inner);
        let policies = Arc::new(Policies::new(&told.name, &self.limiter.quotas()));
        told.policies = Some(Arc::clone(&policies));
        drop(told);
        lend(&policies)
    }

    pub(super) fn denial<K>(&self, decision: Decision) -> RateLimited
    where
        L: KeyedLimiter<K>,
    {
        let denied = RateLimited::new(decision);
        match self.with_policies(|policies| Some(Arc::clone(&policies.of(&decision)?.name))) {
            Some(name) => denied.by(name),
            None => denied,
        }
    }
}
