//! The gate of a rate limit that learns at the end of a request what it has cost.
//!
//! | a request ends | the cost |
//! |---|---|
//! | by `commit`, the end or drop of its body, an error, a panic, a dropped future | is what was said, or stays |
//! | by a response that `settle` does not keep | is what `settle` says |
//! | before the service has it | is given back |
//!
//! A [`Ticket`] is in exactly one place: in its [`Request`], or taken out of it and settled.

use std::{
    fmt,
    future::Ready,
    hash::Hash,
    mem,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::Response;
use http_body::Body;

use super::gate::{Ask, Exit, Gate, Limiting, Look, MayWait, Passed, SettlePart};
use super::held_body::HeldBody;
use super::policy_cache::PolicyList;
use super::rate::Rate;
use super::rate_entry::{RateEntry, Ticket};
use super::state::State;
use super::{LimitLayer, RateLimitLayer};
use crate::backend::{Backend, IntoBackend};
use crate::decision::Decision;
use crate::error::RateLimited;
use crate::respond::{CostHandle, Meter, OwnRules, Settle};
use crate::sync::{Mutex, lock};

/// A rate limit that learns at the end of a request what it has cost; made by
/// [`RateLimitLayer::cost_at_end`].
pub struct CostAtEnd<L: IntoBackend>(Rate<L>);

/// Settles the cost of a request when it is dropped. A handle alone does that when its last clone is.
#[expect(unnameable_types, reason = "only layers use it")]
pub struct CostGuard(Option<Arc<dyn Meter>>);

/// A response body whose end settles the cost of its request.
pub type CostBody<B> = HeldBody<B, CostGuard>;

/// What a request has: of the rate limit until it goes on, and then to settle its cost.
#[derive(Debug, Default)]
#[expect(unnameable_types, reason = "only layers use it")]
pub struct CostEntry<E> {
    rate: E,
    guard: Option<CostGuard>,
}

type RateEntryOf<K, L> = <Rate<L> as Gate<K>>::Entry;

/// A request that has not been settled yet.
struct Request<K, L>
where
    K: Hash + Clone + Send + 'static,
    L: IntoBackend<Backend: Backend<K>>,
{
    rate: Rate<L>,
    key: K,
    taken: Mutex<Taken>,
}

struct Taken {
    /// `None` once it is settled, and if the limit has taken nothing.
    ticket: Option<Ticket>,
    /// `None` until something was said.
    said: Option<u64>,
}

impl<K, L: IntoBackend, R> RateLimitLayer<K, L, R> {
    /// The [`cost`](Self::cost) is an estimate, and what a request really costs is said while it is
    /// served: through the [`CostHandle`] in its extensions.
    ///
    /// The difference is taken, even into debt, or given back as far as time has not returned it yet.
    /// That happens once: on [`CostHandle::commit`], when the response body has ended or is dropped, or if
    /// the request ends without a body by an error, a panic or because the client is gone. If nothing was
    /// said, the estimate stays. If [`settle`](Self::settle) does not keep the cost, that counts
    /// instead. A server is told in the background.
    ///
    /// A response without a body, such as that to an upgrade, is no end: the cost is settled when the last
    /// clone of the handle is dropped.
    ///
    /// HTTP only. Set [`on_store_error`](Self::on_store_error) and [`order`](Self::order) before it.
    /// With [`and`](Self::and), each limit has its own estimate and says for itself whether it learns the
    /// cost at the end:
    ///
    /// ```
    /// use axum::{Extension, Router, extract::Request, routing::post};
    /// use tower_throttle::{FixedWindow, HeaderKey, Quota, RateLimitLayer, TokenBucket, respond::CostHandle};
    ///
    /// let user = || HeaderKey::new("x-api-key");
    /// let tokens = RateLimitLayer::new(user(), FixedWindow::new(Quota::per_day(100_000)))
    ///     .name("tokens")
    ///     .cost(|_: &Request| 500)
    ///     .cost_at_end();
    /// let limit = RateLimitLayer::new(user(), TokenBucket::new(Quota::per_minute(60)))
    ///     .name("requests")
    ///     .and(tokens);
    /// let complete = async |Extension(cost): Extension<CostHandle>| {
    ///     cost.set(730);
    ///     "text"
    /// };
    /// let app: Router = Router::new().route("/complete", post(complete)).layer(limit);
    /// ```
    pub fn cost_at_end(self) -> LimitLayer<K, CostAtEnd<L>, R> {
        self.map_gate(CostAtEnd)
    }
}

impl<L: IntoBackend> CostAtEnd<L> {
    /// A request that goes on with what it has of the rate limit.
    fn guard<K>(&self, key: &K, entry: RateEntryOf<K, L>) -> CostGuard
    where
        K: Hash + Clone + Send + Sync + 'static,
        L: IntoBackend<Backend: Backend<K>> + 'static,
    {
        let ticket = match entry {
            RateEntry::Has(ticket) => Some(ticket),
            _ => None,
        };
        let said = None;
        CostGuard(Some(Arc::new(Request {
            rate: self.0.clone(),
            key: key.clone(),
            taken: Mutex::new(Taken { ticket, said }),
        })))
    }
}

impl<K, L> Meter for Request<K, L>
where
    K: Hash + Clone + Send + Sync + 'static,
    L: IntoBackend<Backend: Backend<K>>,
{
    fn name(&self) -> &str {
        self.rate.state().name()
    }

    fn say(&self, change: &dyn Fn(u64) -> u64) {
        let said = &mut lock(&self.taken).said;
        *said = Some(change(said.unwrap_or(0)));
    }

    fn end(&self, settle: Option<Settle>) {
        self.settle(settle);
    }
}

impl<K, L> Request<K, L>
where
    K: Hash + Clone + Send + 'static,
    L: IntoBackend<Backend: Backend<K>>,
{
    fn settle(&self, settle: Option<Settle>) {
        let (ticket, said) = {
            let mut taken = lock(&self.taken);
            (taken.ticket.take(), taken.said)
        };
        if let (Some(ticket), Some(settle)) = (ticket, settle.or_else(|| said.map(Settle::Charge)))
        {
            self.rate.settle_unawaited(&self.key, ticket, settle);
        }
    }
}

/// The last handle of a request is gone.
impl<K, L> Drop for Request<K, L>
where
    K: Hash + Clone + Send + 'static,
    L: IntoBackend<Backend: Backend<K>>,
{
    fn drop(&mut self) {
        self.settle(None);
    }
}

impl CostGuard {
    fn end(&self, settle: Option<Settle>) {
        if let Some(meter) = &self.0 {
            meter.end(settle);
        }
    }
}

impl Drop for CostGuard {
    fn drop(&mut self) {
        self.end(None);
    }
}

impl<L: IntoBackend> Limiting for CostAtEnd<L> {
    type Limiter = L::Backend;

    #[inline]
    fn state(&self) -> &Arc<State<L::Backend>> {
        self.0.state()
    }

    fn queues(&self) -> bool {
        self.0.queues()
    }

    #[track_caller]
    fn rename(&mut self, name: Option<&str>, number: &mut usize) {
        self.0.rename(name, number);
    }
}

impl<K, L> Gate<K> for CostAtEnd<L>
where
    K: Hash + Clone + Send + Sync + 'static,
    L: IntoBackend<Backend: Backend<K>> + 'static,
{
    type Entry = CostEntry<RateEntryOf<K, L>>;
    type Settling = Ready<()>;

    const GIVES_COST_HANDLES: bool = true;

    fn look(&self, key: &K, ask: Ask) -> Look {
        self.0.look(key, ask)
    }

    fn poll_enter(
        &self,
        key: &K,
        ask: Ask,
        entry: &mut Self::Entry,
        may_wait: MayWait<'_>,
        cx: Option<&mut Context<'_>>,
    ) -> Poll<Result<Passed, RateLimited>> {
        let ask = Ask { keep: true, ..ask };
        let rate = &mut entry.rate;
        let passed = ready!(self.0.poll_enter(key, ask, rate, may_wait, cx))?;
        entry.guard = Some(self.guard(key, mem::take(rate)));
        Poll::Ready(Ok(passed))
    }

    fn leave(&self, key: &K, entry: &mut Self::Entry) {
        match &entry.guard {
            Some(guard) => guard.end(Some(Settle::Refund)),
            None => self.0.leave(key, &mut entry.rate),
        }
    }

    fn settle(&self, _: &K, entry: &mut Self::Entry, settle: SettlePart<'_>) -> Option<Ready<()>> {
        let guard = entry.guard.as_ref()?;
        match settle(None) {
            Settle::Keep => {}
            settle => guard.end(Some(settle)),
        }
        None
    }

    fn cost_handle(&self, _: &K, entry: &mut Self::Entry) -> Option<CostHandle> {
        entry.guard.as_ref()?.0.clone().map(CostHandle::new)
    }

    fn policies<'a>(
        &'a self,
        key: &'a K,
        decision: &mut Decision,
    ) -> (PolicyList<'a>, OwnRules<'a>) {
        self.0.policies(key, decision)
    }
}

impl<K, B, L> Exit<K, Response<B>> for CostAtEnd<L>
where
    K: Hash + Clone + Send + Sync + 'static,
    B: Body,
    L: IntoBackend<Backend: Backend<K>> + 'static,
{
    type Response = Response<CostBody<B>>;

    fn exit<E>(entry: Self::Entry, result: Result<Response<B>, E>) -> Result<Self::Response, E> {
        let mut guard = entry.guard;
        result.map(|response| {
            response.map(|body| {
                if let (true, Some(CostGuard(meter))) = (body.is_end_stream(), &mut guard) {
                    // What follows an upgrade is not in the body. The handles settle the cost.
                    *meter = None;
                }
                HeldBody::new(body, guard)
            })
        })
    }
}

/// Manual impl: derive would require `L: Clone`.
impl<L: IntoBackend> Clone for CostAtEnd<L> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// Manual impl: derive would require `L: Debug`.
impl<L: IntoBackend> fmt::Debug for CostAtEnd<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CostAtEnd").field(&self.0).finish()
    }
}

/// Manual impl: the key of the request is not shown.
impl fmt::Debug for CostGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CostGuard").finish_non_exhaustive()
    }
}
