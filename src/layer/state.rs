//! What the services, clones and handles of one layer share.

use std::{
    hash::{BuildHasher, Hash},
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use super::counts::{Counters, Outcome};
use super::signals::Signals;
use super::ticket::Ticket;
use crate::backend::{Backend, Op};
use crate::decision::Decision;
use crate::error::RateLimited;
use crate::queue::Lines;
use crate::quota::Plan;
use crate::respond::{Event, Policies, Settle};
use crate::store::local::Seeded;
use crate::sync::Swap;

/// The name of a limit that has not been given one.
pub(crate) const UNNAMED: &str = "default";

/// Shared by a layer, its services and its handles, and by its clones unless they are renamed.
#[derive(Debug)]
pub struct State<L> {
    pub(crate) backend: Arc<L>,
    shared: Arc<Shared>,
    name: Arc<str>,
    /// The limits as clients are told them, of the version that was needed last: one per change of the quotas, or per
    /// limit of a concurrency limit.
    policies: Swap<Option<(u64, Arc<Policies>)>>,
}

/// What belongs to the limit, whatever a layer calls it.
#[derive(Debug, Default)]
pub struct Shared {
    pub(crate) counts: Counters,
    /// The requests that wait.
    pub(crate) lines: Arc<Lines>,
    line_ids: Seeded,
    /// How often the quotas have changed.
    quota_changes: AtomicU64,
    /// How many denied clients were told times that are spread.
    pub(super) spread: AtomicU64,
    signals: Signals,
}

impl<L> State<L> {
    pub(crate) fn new(backend: L) -> Self {
        Self {
            backend: Arc::new(backend),
            shared: Arc::default(),
            name: UNNAMED.into(),
            policies: Swap::default(),
        }
    }

    /// The same limit under another name.
    #[track_caller]
    pub(crate) fn renamed<T>(&self, name: &str, backend: Arc<T>) -> State<T> {
        assert!(
            !name.is_empty() && name.bytes().all(|byte| matches!(byte, b' '..=b'~')),
            "name: {name:?} is not allowed; give printable ASCII"
        );
        State {
            backend,
            shared: Arc::clone(&self.shared),
            name: name.into(),
            policies: Swap::default(),
        }
    }

    /// What counts and reports under this name.
    pub(super) fn without_backend(&self) -> Arc<State<()>> {
        Arc::new(self.renamed(&self.name, Arc::new(())))
    }

    /// The limits of a key as its client is told them.
    pub(super) fn policies_of<K>(&self, key: &K) -> Arc<Policies>
    where
        L: Backend<K>,
    {
        let Some((plan, quotas)) = self.backend.plan_of(key) else {
            let changes = self.quota_changes.load(Ordering::Acquire);
            return self.policies(changes, &|name| Policies::new(name, &self.backend.quotas()));
        };
        Arc::new(match plan {
            Plan::Blocked => Policies::at_once(self.name(), 0),
            Plan::Tier(name) => Policies::new(name, &quotas),
            _ => Policies::new(self.name(), &quotas),
        })
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

    /// Gives back the turn of a request that leaves, without awaiting it.
    pub(super) fn cancel<K>(&self, key: &K, ticket: Ticket)
    where
        L: Backend<K>,
    {
        if let Some(receipt) = ticket.receipt.filter(|_| ticket.cost > 0) {
            self.backend.detach(key, Op::Cancel(ticket.cost, receipt));
        }
    }

    /// Settles a cost without awaiting it.
    pub(super) fn settle<K: Hash>(&self, key: &K, ticket: Ticket, settle: Settle)
    where
        L: Backend<K>,
    {
        if let Some(op) = ticket.settled_by(settle) {
            self.backend.detach(key, op);
            self.tell(key);
        }
    }
}

impl<L> State<L> {
    pub(crate) const fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// One version of the limits as clients are told them, which `make` makes of their name if it is not kept.
    pub(crate) fn policies(&self, version: u64, make: &dyn Fn(&str) -> Policies) -> Arc<Policies> {
        let known = self.policies.read(|kept| {
            let known = kept.as_ref().filter(|known| known.0 == version);
            known.map(|(_, policies)| Arc::clone(policies))
        });
        known.unwrap_or_else(|| {
            let policies = Arc::new(make(&self.name));
            self.policies.set(Some((version, Arc::clone(&policies))));
            policies
        })
    }

    /// Counts and reports what has happened to a request.
    #[inline]
    pub(crate) fn record(&self, event: Event<'_>, shadow: bool) {
        self.signals.observe(&self.name, event, shadow);
        self.counts.count(Outcome::of(event, shadow));
    }
}

impl Shared {
    /// Identifies the line of a key. Two keys with one 64-bit hash share a line.
    pub(super) fn line_id<K: Hash + ?Sized>(&self, key: &K) -> u64 {
        self.line_ids.hash_one(key)
    }

    /// Lets the requests of a key that wait ask again: something was given back.
    pub(super) fn tell<K: Hash + ?Sized>(&self, key: &K) {
        if self.lines.waiting() > 0 {
            self.lines.tell(self.line_id(key));
        }
    }

    /// Lets all requests that wait ask the backend as it is now, and makes responses state its limits.
    pub(crate) fn changed(&self) {
        self.lines.tell_all();
        self.quota_changes.fetch_add(1, Ordering::Release);
    }
}

impl<L> Deref for State<L> {
    type Target = Shared;

    #[inline]
    fn deref(&self) -> &Shared {
        &self.shared
    }
}
