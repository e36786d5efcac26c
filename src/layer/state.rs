//! What the services, clones and handles of one layer share.

use std::{
    hash::{Hash, Hasher},
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use super::counts::Counters;
use super::policy_cache::{PolicyCache, PolicyList, UNNAMED};
use super::rate_entry::Ticket;
use super::signals::{Outcome, Signals};
use crate::backend::{Backend, Losses};
use crate::decision::Decision;
use crate::error::RateLimited;
use crate::queue::Lines;
use crate::quota::{Plan, Quota};
use crate::respond::{Event, Policies, Settle};

/// Shared by a layer, its services and its handles, and by its clones unless they are renamed.
#[derive(Debug)]
#[expect(unnameable_types, reason = "only layers use it")]
pub struct State<L> {
    pub(crate) backend: Arc<L>,
    layer: LayerState,
}

/// The part of the state that does not depend on the type of the backend.
#[derive(Debug)]
#[expect(unnameable_types, reason = "only layers use it")]
pub struct LayerState {
    shared: Arc<Shared>,
    policy_cache: PolicyCache,
    signals: Signals,
}

/// What belongs to the limit, whatever a layer calls it.
#[derive(Debug)]
#[expect(unnameable_types, reason = "only layers use it")]
pub struct Shared {
    pub(crate) counts: Counters,
    /// The requests that wait.
    pub(crate) lines: Arc<Lines>,
    /// How often the quotas have changed.
    quota_changes: AtomicU64,
    /// The denials whose times were spread.
    pub(super) spread: AtomicU64,
}

impl<L> State<L> {
    pub(crate) fn new(backend: L) -> Self {
        Self {
            backend: Arc::new(backend),
            layer: LayerState::new(),
        }
    }

    /// The same limit under another name.
    #[track_caller]
    pub(crate) fn renamed(&self, name: &str, backend: Arc<L>) -> Self {
        Self {
            backend,
            layer: LayerState {
                shared: Arc::clone(&self.shared),
                policy_cache: PolicyCache::new(name),
                signals: self.signals.renamed(name),
            },
        }
    }

    /// The line in which requests of `key` wait.
    pub(super) fn line_id<K: Hash + ?Sized>(&self, key: &K) -> u64
    where
        L: Backend<K>,
    {
        self.lines.line_id(&QueueOf(&[], key, &*self.backend))
    }

    /// Lets the requests of a key that wait ask again: something was given back.
    pub(super) fn tell<K: Hash>(&self, key: &K)
    where
        L: Backend<K>,
    {
        if self.lines.waiting() > 0 {
            self.lines.tell(self.line_id(key));
        }
    }

    /// Settles a cost without awaiting it.
    pub(super) fn settle_unawaited<K: Hash>(&self, key: &K, ticket: Ticket, settle: Settle)
    where
        L: Backend<K>,
    {
        if let Some(op) = ticket.settled_by(settle) {
            self.backend.detach(key, op);
            self.tell(key);
        }
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
    fn new() -> Self {
        Self {
            shared: Arc::new(Shared {
                counts: Counters::default(),
                lines: Lines::new(),
                quota_changes: AtomicU64::new(0),
                spread: AtomicU64::new(0),
            }),
            policy_cache: PolicyCache::new(UNNAMED),
            signals: Signals::default(),
        }
    }

    pub(crate) const fn name(&self) -> &Arc<str> {
        self.policy_cache.name()
    }

    pub(super) const fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The limits as clients are told them, which are made from `quotas`.
    pub(super) fn quota_policies(&self, quotas: &dyn Fn() -> Vec<Quota>) -> PolicyList<'_> {
        let changes = self.quota_changes.load(Ordering::Acquire);
        self.policies(changes, &|name| Policies::new(name, &quotas()))
    }

    /// The plan of one key as its client is told it.
    pub(super) fn policy_of(&self, plan: Plan) -> PolicyList<'static> {
        let name = self.policy_cache.name();
        let policies = match plan {
            Plan::Quota(quota) => Policies::new(name, &[quota]),
            Plan::Blocked => Policies::at_once(name, 0),
            Plan::Unlimited | Plan::Default => Policies::new(name, &[]),
        };
        PolicyList::Latest(Arc::new(policies))
    }

    /// One version of the limits as clients are told them, which `make` makes given their name.
    pub(crate) fn policies(&self, version: u64, make: &dyn Fn(&str) -> Policies) -> PolicyList<'_> {
        self.policy_cache.get(version, make)
    }

    /// Counts and reports what has happened to a request.
    pub(crate) fn record(&self, event: Event<'_>, shadow: bool) {
        self.signals.observe(event, shadow);
        self.counts.count(Outcome::of(event, shadow));
    }

    /// Counts a request that goes on at once. Returns whether it is one of the
    /// [sample](Counters::is_sampled).
    #[inline]
    pub(crate) fn record_admitted(&self, cost: u64) -> bool {
        self.signals.observe(Event::Admitted(cost), false);
        self.counts.count(Outcome::Admitted)
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
        match self.quota_policies(quotas).of(&decision) {
            Some(policy) => denied.by(Arc::clone(&policy.name)),
            None => denied.by(Arc::clone(self.name())),
        }
    }
}

impl Shared {
    /// Makes responses state the limits that the backend has now.
    pub(crate) fn refresh_policies(&self) {
        self.quota_changes.fetch_add(1, Ordering::Release);
    }
}

impl Deref for LayerState {
    type Target = Shared;

    #[inline]
    fn deref(&self) -> &Shared {
        &self.shared
    }
}

/// Identifies the queue of a key of one limit, as the layer's backend does in
/// [`Backend::hash_queue`].
pub(super) struct QueueOf<'a, K: ?Sized, L>(
    pub(super) &'a [usize],
    pub(super) &'a K,
    pub(super) &'a L,
);

impl<K: Hash + ?Sized, L: Backend<K>> Hash for QueueOf<'_, K, L> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self(tiers, key, backend) = self;
        tiers.iter().for_each(|tier| state.write_usize(*tier));
        backend.hash_queue(key, state);
    }
}
