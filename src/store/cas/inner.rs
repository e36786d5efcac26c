//! What the clones of a limiter, and the tasks that decide for it, share.

use std::time::Duration;

use super::{
    CasStore,
    decider::{KeyCall, is_request, is_update},
    lanes::{Lanes, Waiting},
    shared::Shared,
};
use crate::algorithm::Algorithm;
use crate::backend::Op;
use crate::clock::{Tick, nanos};
use crate::decision::{Decision, Verdict};
use crate::error::StoreError;
use crate::store::{
    events::RemoteMetrics,
    remote::{Asked, DenyCache},
};

/// How long after the deadline of its last call a task may still be ending.
const GRACE: Duration = Duration::from_millis(50);

pub(super) struct Inner<S: CasStore, A: Algorithm> {
    pub(super) shared: Shared<S>,
    pub(super) lanes: Lanes<A>,
    /// The start of the names of its keys.
    pub(super) name_prefix: String,
    pub(super) deny_cache: Option<DenyCache>,
}

impl<S: CasStore, A: Algorithm> Inner<S, A> {
    /// The denial of a call that was made at `at`, if nothing can have changed between an earlier denial and that
    /// moment. Else the version of the cache.
    pub(super) fn known_denial(
        &self,
        key: &str,
        call: &KeyCall<A>,
        at: Tick,
    ) -> Result<Decision, u64> {
        let (Some(cache), Some(asked)) = (&self.deny_cache, asked(call)) else {
            return Err(0);
        };
        let denial = cache.get(key, asked, at)?;
        RemoteMetrics(S::NAME).denied_by_cache();
        Ok(denial)
    }

    /// Ends the calls whose denial is known: a reply that has come since answers them too.
    pub(super) fn end_known(&self, calls: &mut Vec<Waiting<A>>) {
        calls.retain_mut(|waiting| {
            match self.known_denial(&waiting.key, &waiting.call, waiting.queued_at) {
                Ok(denial) => waiting.reply(Ok(denial)),
                Err(version) => waiting.version = version,
            }
            waiting.reply_tx.is_some()
        });
    }

    /// The result of a call, which was asked for at `asked_at`. Tells the cache of denials what it means for later ones.
    pub(super) fn learn(
        &self,
        waiting: &Waiting<A>,
        asked_at: Tick,
        decided: Result<Decision, StoreError>,
    ) -> Result<Decision, StoreError> {
        if let Some(cache) = &self.deny_cache {
            let Waiting {
                key, call, version, ..
            } = waiting;
            let denial = decided.as_ref().ok().filter(|decided| decided.is_denied());
            if let (Some(asked), Some(denial)) = (asked(call), denial) {
                cache.insert(key, asked, *denial, (asked_at, *version));
            } else if is_update(call.op) {
                // A call that was made later may have been executed earlier.
                cache.invalidate(key);
            }
        }
        decided
    }

    /// The denial that a lockout returns instead of this error, for a request made at `called_at`. `None` unless the
    /// store has replied since then. Then too many requests for one key were in flight, and this attempt was not
    /// counted, so it must not pass.
    pub(super) fn denial_instead(
        &self,
        KeyCall { op, decider }: &KeyCall<A>,
        error: &StoreError,
        called_at: Tick,
    ) -> Option<Decision> {
        let facts = decider.algorithm.capabilities();
        let is_contended = error.is_transient() && self.shared.has_answered_since(called_at);
        (is_request(*op) && facts.is_about_one_key && is_contended).then(|| {
            let (limit, retry_after) = (
                decider.algorithm.quota().limit(),
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

/// What a request asks for, if its denial may be repeated.
fn asked<A: Algorithm>(call: &KeyCall<A>) -> Option<Asked> {
    match call.op {
        Op::Take(cost) if cost > 0 => Some((cost, call.decider.algorithm.quota())),
        _ => None,
    }
}
