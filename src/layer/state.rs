//! What the services, clones and handles of one layer share.

use std::{
    hash::{BuildHasher, Hash},
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
use crate::quota::Plan;
use crate::respond::{Event, Policies, Settle};
use crate::store::local::Seeded;

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
    line_ids: Seeded,
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

    /// The limits of a key as its client is told them.
    pub(super) fn policies_of<K>(&self, key: &K) -> PolicyList<'_>
    where
        L: Backend<K>,
    {
        let Some((plan, quotas)) = self.backend.plan_of(key) else {
            let changes = self.quota_changes.load(Ordering::Acquire);
            return self.policies(changes, &|name| Policies::new(name, &self.backend.quotas()));
        };
        PolicyList::Latest(Arc::new(match plan {
            Plan::Blocked => Policies::at_once(self.name(), 0),
            Plan::Tier(name) => Policies::new(name, &quotas),
            _ => Policies::new(self.name(), &quotas),
        }))
    }

    /// The error of a denied request, with the name of the limit.
    pub(super) fn denial_error<K>(&self, key: &K, decision: Decision) -> RateLimited
    where
        L: Backend<K>,
    {
        let policies = self.policies_of(key);
        let name = policies.of(&decision).map(|policy| &policy.name);
        RateLimited::new(decision).by(Arc::clone(name.unwrap_or_else(|| self.name())))
    }

    /// Lets the requests of a key that wait ask again: something was given back.
    pub(super) fn tell<K: Hash>(&self, key: &K) {
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
                line_ids: Seeded::default(),
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
}

impl Shared {
    /// Identifies the line of a key. Two keys with one 64-bit hash share a line.
    pub(super) fn line_id<K: Hash + ?Sized>(&self, key: &K) -> u64 {
        self.line_ids.hash_one(key)
    }

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
