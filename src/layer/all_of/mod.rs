//! The gate of several limits that admit a request together.

mod keys;
mod pair;
mod part;

pub use self::{
    keys::{AndKeys, KeyPair},
    part::Slot,
};
use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

pub(crate) use self::part::Part;
use self::part::{Ended, Settling, go_on, settle_all};
#[cfg(feature = "policies")]
pub(crate) use self::part::{PartAsk, PartOf};
use super::gate::{Ask, Gate, Limiting, Look, MayWait, Passed, SettlePart};
use super::preview::Previewing;
use super::signals::Outcome;
use super::state::State;
use crate::decision::Decision;
use crate::error::RateLimited;
use crate::respond::{CostHandle, OwnRules, Policies};

/// Several limits, each with a key of its own: a request passes if all of them admit it, and none
/// counts it if one of them denies it. Made by [`LimitLayer::and`](super::LimitLayer::and) and by
/// policy files.
///
/// # Order
/// 1. A limit in this process that would deny the request is asked first. It denies the request, and no
///    other one has counted it.
/// 2. The others follow: those that admit the request at once, limits on a server, limits in whose queue
///    it waits, and limits on concurrency. Of two alike the first goes first, so put the one on a server
///    that denies more often first.
/// 3. If one denies the request, or it is dropped while it waits, what the others have taken is given
///    back: all of it that time has not returned yet.
///
/// So a limit on a server may count a request that another limit denies, until the refund has arrived.
/// If the refund fails, because the server is down or the process ends, the cost stays taken until time
/// has refilled it. No limit ever admits more than it should.
///
/// A limit whose server is down does as its own `on_store_error` says, and the others decide as usual.
pub struct AllOf<P> {
    state: Arc<State<P>>,
}

/// The limits of an [`AllOf`].
pub trait Parts<K>: Sized + Send + Sync + 'static {
    /// What a request has of each.
    type Slots: Default + Send + 'static;
}

/// How they are asked.
pub(crate) trait AskParts<K>: Parts<K> + Renamed {
    /// Calls `run` with the limits that apply to a request.
    fn with<T>(
        &self,
        key: &K,
        slots: &mut Self::Slots,
        run: impl FnOnce(&mut [&mut dyn Part]) -> T,
    ) -> T;

    /// See [`Gate::policies`].
    fn policies<'a>(&'a self, key: &'a K, decision: &mut Decision)
    -> (Arc<Policies>, OwnRules<'a>);
}

/// Limits that can be named.
pub(crate) trait Renamed {
    #[track_caller]
    fn renamed(&self, name: Option<&str>, number: &mut usize) -> Self;
}

impl<P> AllOf<P> {
    pub(crate) fn new(parts: P) -> Self {
        Self {
            state: Arc::new(State::new(parts)),
        }
    }

    /// Counts a request of which all limits have decided.
    fn end(&self, ask: Ask, ended: Ended) -> Passed {
        let Ended {
            decision,
            waited,
            decided,
        } = ended;
        let counts = &self.state.counts;
        match decision.filter(|_| ask.shadow) {
            Some(shadow) if shadow.is_denied() => counts.count(Outcome::ShadowDenied),
            Some(shadow) if !shadow.is_admitted() => counts.count(Outcome::ShadowWaited),
            _ if waited => counts.count(Outcome::Waited),
            _ => counts.count(Outcome::Admitted),
        };
        Passed {
            decision: decision.filter(|_| ask.figures),
            waited,
            decided,
            sampled: self.state.counts.is_sampled(),
        }
    }
}

impl<P: Renamed + Send + Sync + 'static> Limiting for AllOf<P> {
    type Limiter = P;

    #[inline]
    fn state(&self) -> &Arc<State<P>> {
        &self.state
    }

    #[track_caller]
    fn rename(&mut self, name: Option<&str>, number: &mut usize) {
        *number = (*number).max(1);
        let parts = Arc::new(self.state.backend.renamed(name, number));
        let own = name.unwrap_or(self.state.name());
        self.state = Arc::new(self.state.renamed(own, parts));
    }
}

impl<K, P: AskParts<K>> Gate<K> for AllOf<P> {
    type Entry = P::Slots;
    type Settling = Settling;

    fn look(&self, key: &K, ask: Ask) -> Look {
        self.state
            .backend
            .with(key, &mut P::Slots::default(), |parts| {
                let looks = || parts.iter().map(|part| part.look(ask));
                let denies = looks().find(|look| *look == Look::Denies);
                denies.or_else(|| looks().max()).unwrap_or(Look::Passes)
            })
    }

    fn preview(&self, key: &K, ask: Ask) -> Vec<Previewing> {
        let parts = &self.state.backend;
        parts.with(key, &mut P::Slots::default(), |parts| {
            parts.iter().flat_map(|part| part.preview(ask)).collect()
        })
    }

    fn poll_enter(
        &self,
        key: &K,
        ask: Ask,
        slots: &mut P::Slots,
        may_wait: MayWait<'_>,
        cx: Option<&mut Context<'_>>,
    ) -> Poll<Result<Passed, RateLimited>> {
        let parts = &self.state.backend;
        let polled = parts.with(key, slots, |parts| go_on(parts, ask, may_wait, cx));
        polled.map(|ended| match ended {
            Ok(ended) => Ok(self.end(ask, ended)),
            Err(denied) => {
                self.state.counts.count(Outcome::Denied);
                Err(denied)
            }
        })
    }

    fn leave(&self, key: &K, slots: &mut P::Slots) {
        let give_back = |parts: &mut [&mut dyn Part]| {
            if parts.iter().any(|part| part.waits()) {
                self.state.counts.count(Outcome::Waited);
            }
            for part in parts {
                part.leave();
            }
        };
        self.state.backend.with(key, slots, give_back);
    }

    fn settle(&self, key: &K, slots: &mut P::Slots, settle: SettlePart<'_>) -> Option<Settling> {
        let settle_parts = |parts: &mut [&mut dyn Part]| {
            settle_all(parts.iter_mut().filter_map(|part| part.settle(settle)))
        };
        self.state.backend.with(key, slots, settle_parts)
    }

    fn cost_handle(&self, key: &K, slots: &mut P::Slots) -> Option<CostHandle> {
        let of_all = |parts: &mut [&mut dyn Part]| {
            let handles = parts.iter_mut().filter_map(|part| part.cost_handle());
            handles.reduce(|all, one| all.and(Some(one)))
        };
        self.state.backend.with(key, slots, of_all)
    }

    fn policies<'a>(
        &'a self,
        key: &'a K,
        decision: &mut Decision,
    ) -> (Arc<Policies>, OwnRules<'a>) {
        self.state.backend.policies(key, decision)
    }
}

/// Manual impl: derive would require `P: Clone`.
impl<P> Clone for AllOf<P> {
    fn clone(&self) -> Self {
        Self {
            state: Arc::clone(&self.state),
        }
    }
}

impl<P: fmt::Debug> fmt::Debug for AllOf<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AllOf").field(&self.state.backend).finish()
    }
}
