//! The gate of several limits that admit a request together.

mod keys;
mod pair;
mod part;
mod round;

pub(crate) use self::part::{PartAsk, PartOf};
pub use self::{
    keys::{AndKeys, KeyPair},
    round::AllEntry,
};
use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll, ready},
};

use self::round::Round;
use super::counts::Outcome;
use super::gate::{
    Ask, Gate, Look, MayWait, Passed, Previewing, Progress, SettlePart, Settling, Told,
};
use super::state::State;
use crate::decision::Decision;
use crate::error::RateLimited;
use crate::respond::CostHandle;

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
pub trait Parts<K>: Send + Sync + Sized + 'static {
    /// What a request has of each.
    type Entries: Default + Send + 'static;

    /// Calls `run` with the gates of the limits that apply to a request.
    fn with<T>(&self, key: &K, run: impl FnOnce(&[&dyn Gate<K, Entry = Self::Entries>]) -> T) -> T;
}

impl<P> AllOf<P> {
    pub(crate) fn new(parts: P) -> Self {
        Self {
            state: Arc::new(State::new(parts)),
        }
    }

    pub(crate) const fn state(&self) -> &Arc<State<P>> {
        &self.state
    }

    /// Renames the whole, made of `parts` from now on.
    #[track_caller]
    pub(crate) fn set_name(&mut self, name: Option<&str>, parts: Arc<P>) {
        let name = name.unwrap_or(self.state.name());
        self.state = Arc::new(self.state.renamed(name, parts));
    }
}

impl<K, P: Parts<K>> Gate<K> for AllOf<P> {
    type Entry = AllEntry<P::Entries>;

    fn look(&self, key: &K, ask: Ask) -> Look {
        self.state.backend.with(key, |parts| {
            let looks = || parts.iter().map(|part| part.look(key, ask));
            let denies = looks().find(|look| *look == Look::Denies);
            denies.or_else(|| looks().max()).unwrap_or(Look::Passes)
        })
    }

    fn preview(&self, key: &K, ask: Ask) -> Vec<Previewing> {
        self.state.backend.with(key, |parts| {
            let previews = parts.iter().flat_map(|part| part.preview(key, ask));
            previews.collect()
        })
    }

    fn progress(&self, key: &K, entry: &mut Self::Entry) -> Progress {
        self.state.backend.with(key, |parts| {
            let all = parts.iter().map(|part| part.progress(key, &mut entry.each));
            all.min().unwrap_or(Progress::Passed)
        })
    }

    fn poll_enter(
        &self,
        key: &K,
        ask: Ask,
        entry: &mut Self::Entry,
        mut may_wait: MayWait<'_>,
        cx: Option<&mut Context<'_>>,
    ) -> Poll<Result<Passed, RateLimited>> {
        let entered = ready!(self.state.backend.with(key, |gates| {
            Round { gates, key, ask }.go_on(entry, &mut may_wait, cx)
        }));
        let figures = may_wait.figures;
        self.state.counts.count(match &entered {
            Err(_) => Outcome::Denied,
            Ok(passed) => match figures.filter(|_| ask.shadow) {
                Some(shadow) if shadow.is_denied() => Outcome::ShadowDenied,
                Some(shadow) if !shadow.is_admitted() => Outcome::ShadowWaited,
                _ if *passed == Passed::Waited => Outcome::Waited,
                _ => Outcome::Admitted,
            },
        });
        *figures = figures.filter(|_| ask.figures);
        Poll::Ready(entered)
    }

    fn leave(&self, key: &K, entry: &mut Self::Entry) {
        if self.progress(key, entry) == Progress::Waits {
            self.state.counts.count(Outcome::Waited);
        }
        self.state.backend.with(key, |parts| {
            for part in parts {
                part.leave(key, &mut entry.each);
            }
        });
    }

    fn settle(&self, key: &K, entry: &mut Self::Entry, settle: SettlePart<'_>) -> Option<Settling> {
        self.state.backend.with(key, |parts| {
            let parts = parts.iter();
            let pending = parts.filter_map(|part| part.settle(key, &mut entry.each, settle));
            // Each has begun, so all end as soon as if they were awaited together.
            pending.reduce(|first, second| {
                Box::pin(async move {
                    first.await;
                    second.await;
                })
            })
        })
    }

    fn cost_handle(&self, key: &K, entry: &mut Self::Entry) -> Option<CostHandle> {
        self.state.backend.with(key, |parts| {
            let parts = parts.iter();
            let handles = parts.filter_map(|part| part.cost_handle(key, &mut entry.each));
            handles.reduce(|all, one| all.and(Some(one)))
        })
    }

    fn limits(&self, key: &K) -> usize {
        let sum = |parts: &[&dyn Gate<K, Entry = P::Entries>]| {
            parts.iter().map(|part| part.limits(key)).sum()
        };
        self.state.backend.with(key, sum)
    }

    fn policies(&self, key: &K, mut decision: Decision, told: Told<'_>) {
        self.state.backend.with(key, |parts| {
            for part in parts {
                let own = part.limits(key);
                if decision.policy < own {
                    return part.policies(key, decision, told);
                }
                decision.policy -= own;
            }
        });
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
