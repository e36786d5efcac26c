//! `Backend` for limits with a quota per key, and the tasks of their lookups.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use super::{
    PerKey, PerKeyDecision, QuotaSource, Shared, Tried,
    lookups::{Found, Joined, Lookup, Wait},
    planned::{Planned, PlannedState},
};
use crate::algorithm::Words;
use crate::backend::{Backend, IntoBackend, Losses, Op};
use crate::clock::{Clock, Tick};
use crate::decision::Decision;
use crate::key::Key;
use crate::quota::Quota;
use crate::store::local::transition::{Effect, Outcome};

/// Ends a lookup, whatever becomes of its task.
struct Finish<A: Words, S> {
    shared: Arc<Shared<A, S>>,
    hash: u64,
    lookup: Arc<Lookup<A>>,
    found: Option<Found<Arc<A>>>,
}

impl<A: Words, S> Drop for Finish<A, S> {
    fn drop(&mut self) {
        let shared = &*self.shared;
        let found = self.found.take().unwrap_or_else(|| {
            shared
                .lookups
                .record_failure("the source panicked or its runtime has ended");
            None
        });
        let now = shared.table.shared.clock.now();
        shared
            .lookups
            .finish(self.hash, &self.lookup, found.clone(), |is_outdated| {
                let until = if is_outdated {
                    now
                } else {
                    shared.fresh_until(found.is_some(), now)
                };
                // Without a slot, each request that waits assigns the quota itself.
                let _ = shared.table.at(self.hash, now, true, |_, state| {
                    state.assign(self.hash, (found.as_ref(), until), &shared.default, now);
                });
            });
    }
}

impl<A, K, S, P> PerKey<A, K, S, P>
where
    A: Words,
    K: Send + Sync + 'static,
    S: QuotaSource<K>,
{
    /// The lookup of `key`: the one in flight, or one that begins. `None` if it cannot begin.
    pub(super) fn look_up(&self, hash: u64, key: impl FnOnce() -> K) -> Option<Arc<Lookup<A>>> {
        let lookups = &self.shared.lookups;
        let Ok(runtime) = Handle::try_current() else {
            lookups.record_failure("no tokio runtime runs the lookup");
            return None;
        };
        let lookup = match lookups.join(hash) {
            Joined::Full => return None,
            Joined::Running(lookup) => return Some(lookup),
            Joined::New(lookup) => lookup,
        };
        let mut finish = Finish {
            shared: Arc::clone(&self.shared),
            hash,
            lookup: Arc::clone(&lookup),
            found: None,
        };
        let key = key();
        runtime.spawn(async move {
            let shared = Arc::clone(&finish.shared);
            let asked = shared.source.quota(&key);
            let answered = tokio::time::timeout(shared.times.deadline, asked).await;
            let found = match answered {
                Ok(Ok(None)) => Ok(Arc::clone(&shared.default)),
                Ok(Ok(Some(quota))) => shared
                    .algorithm(quota)
                    .map_err(|error| format!("the quota {quota}: {error}")),
                Ok(Err(error)) => Err(error.to_string()),
                Err(_) => Err("the source has not answered within the deadline".to_owned()),
            };
            finish.found = Some(match found {
                Ok(found) => Some(found),
                Err(error) => {
                    shared.lookups.record_failure(error);
                    None
                }
            });
            drop(finish);
        });
        Some(lookup)
    }
}

impl<A, K, S, Q> Backend<Q> for PerKey<A, K, S>
where
    A: Words,
    K: Send + Sync + 'static,
    S: QuotaSource<K>,
    Q: Key + ToOwned<Owned = K> + ?Sized,
{
    type Future = PerKeyDecision;

    fn apply(&self, key: &Q, op: Op) -> PerKeyDecision {
        let shared = &self.shared;
        let hash = shared.table.hash(key);
        // These need no quota: they concern what was taken under that of the key.
        if !matches!(
            op,
            Op::Take(_) | Op::Borrow(_) | Op::Peek(_) | Op::Charge(_)
        ) {
            return PerKeyDecision::ready(shared.table.apply_hashed(hash, op));
        }
        let now = shared.table.shared.clock.now();
        let tried = shared.try_apply(hash, op, now);
        match tried {
            Ok(Tried::Unknown) => {}
            decided => {
                if let Ok(Tried::Decided {
                    refreshes: true, ..
                }) = decided
                {
                    let _ = self.look_up(hash, || key.to_owned());
                }
                return PerKeyDecision::ready(shared.decided(&decided, now));
            }
        }
        let Some(lookup) = self.look_up(hash, || key.to_owned()) else {
            return PerKeyDecision::ready(shared.apply_found(hash, op, None));
        };
        let shared = Arc::clone(shared);
        PerKeyDecision::pending(async move {
            let found = Wait::new(lookup).await;
            shared.apply_found(hash, op, found.as_ref())
        })
    }

    /// A charge that has to wait for the quota is made in a task.
    fn detach(&self, key: &Q, op: Op) {
        let deciding = self.apply(key, op);
        if let (true, Ok(runtime)) = (deciding.is_pending(), Handle::try_current()) {
            runtime.spawn(deciding);
        }
    }

    fn current_decision(&self, key: &Q, cost: u64) -> Option<Decision> {
        let shared = &self.shared;
        let now = shared.table.shared.clock.now();
        let tried = shared.try_apply(shared.table.hash(key), Op::Peek(cost), now);
        match tried {
            Ok(Tried::Decided { decision, .. }) => Some(decision),
            _ => None,
        }
    }

    fn losses(&self) -> Losses {
        self.shared.table.shared.losses()
    }

    /// The default.
    fn quotas(&self) -> Vec<Quota> {
        vec![self.shared.default.quota()]
    }

    fn max_wait(&self, _: &Q) -> Duration {
        self.shared.default.facts().max_wait
    }

    fn quota_of(&self, key: &Q) -> Option<Quota> {
        let shared = &self.shared;
        let (hash, now) = (shared.table.hash(key), shared.table.shared.clock.now());
        Some(shared.quota_of(hash, now))
    }
}

impl<A: Words, S> Shared<A, S> {
    /// The quota that the key with this hash is under, or the default.
    pub(super) fn quota_of(&self, hash: u64, now: Tick) -> Quota {
        let read = |_: &Planned<A>, state: &mut PlannedState<A>| {
            ReadQuota(state.of(hash).map(|known| known.algorithm.quota()))
        };
        let known = self.table.at(hash, now, false, read).ok();
        known
            .and_then(|ReadQuota(quota)| quota)
            .unwrap_or_else(|| self.default.quota())
    }
}

struct ReadQuota(Option<Quota>);

impl Outcome for ReadQuota {
    fn effect(&self) -> Effect {
        Effect::Read
    }
}

impl<A: Words, K, S, P> IntoBackend for PerKey<A, K, S, P>
where
    K: 'static,
    S: Send + Sync + 'static,
    P: Send + Sync + 'static,
{
    type Backend = Self;

    fn into_backend(self) -> Self {
        self.shared.table.allocate();
        self
    }
}
