//! Port: what decides about the requests of a layer.
//!
//! | a request | has of its gate | when it ends there |
//! |---|---|---|
//! | was admitted | a ticket, or nothing | the ticket is [settled](Gate::settle) or dropped, or [goes on](Exit::exit) in the body |
//! | waits, for a decision or its turn | a wait | it becomes a ticket or a denial, or is [given back](Gate::leave) |
//! | was denied | nothing | |
#![expect(unnameable_types, reason = "only layers use them")]

use std::{
    fmt,
    future::Future,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use super::policy_cache::PolicyList;
use super::state::State;
use crate::decision::{CompactDecision, Decision};
use crate::error::RateLimited;
use crate::key::Priority;
use crate::queue::RequestSeat;
use crate::respond::Settle;

/// What a request asks for.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    pub(crate) cost: u64,
    pub(crate) priority: Priority,
    /// The layer is in shadow mode: the request passes at once, whatever is decided.
    pub(crate) shadow: bool,
    /// The decision is read by the service or written to headers.
    pub(crate) figures: bool,
    /// The ticket is needed when the response is there.
    pub(crate) keep: bool,
}

/// What a request needs if it has to wait.
pub struct MayWait<'a> {
    /// Released when the request goes on or is denied.
    pub(crate) seat: RequestSeat,
    /// How long its client will wait.
    pub(crate) timeout: &'a dyn Fn() -> Option<Duration>,
}

/// A request that goes on to the service.
#[derive(Debug)]
pub struct Passed<T> {
    /// If the request [keeps](Ask::keep) it or the gate needs it.
    pub(crate) ticket: Option<T>,
    /// If its [figures](Ask::figures) are read, and there are any.
    pub(crate) decision: Option<CompactDecision>,
}

/// What a gate says to a request. All of it is counted.
#[derive(Debug)]
pub enum Entry<T, W> {
    Pass(Passed<T>),
    Wait(W),
    Deny(RateLimited),
}

/// What a gate is made of, whatever its keys. Sealed.
pub trait Limiting: Clone {
    /// What decides.
    type Limiter: Send + Sync + 'static;

    fn state(&self) -> &Arc<State<Self::Limiter>>;

    fn state_mut(&mut self) -> &mut Arc<State<Self::Limiter>>;
}

/// Decides about requests of the key `K`. Clones share what they count. Sealed.
pub trait Gate<K>: Limiting {
    /// What an admitted request has taken.
    type Ticket: Send + 'static;
    /// What a request has while it waits.
    type Wait: Send + 'static;
    /// Settles a cost. If it fails, the cost stays as it was taken.
    type Settling: Future + Send + Unpin + 'static;
    /// What [`begin`](Self::begin) has learned of a request that it did not admit.
    type Begun;

    /// The common case: admits the request if that is quick, needs no figures and keeps nothing. The
    /// caller counts it.
    fn begin(&self, key: &K, ask: Ask) -> Result<Option<Self::Ticket>, Self::Begun>;

    /// All other cases.
    fn enter(
        &self,
        key: &K,
        ask: Ask,
        begun: Self::Begun,
        may_wait: MayWait<'_>,
    ) -> Entry<Self::Ticket, Self::Wait>;

    /// Ready once, when the wait is over. The wait is dropped then.
    fn poll(
        &self,
        key: &K,
        wait: &mut Self::Wait,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Passed<Self::Ticket>, RateLimited>>;

    /// Gives back what a request has taken that waits no longer.
    fn leave(&self, key: &K, wait: Self::Wait);

    /// Settles the cost of a request whose response is known.
    fn settle(&self, key: &K, ticket: &mut Self::Ticket, settle: Settle) -> Option<Self::Settling>;

    /// The limits as clients are told them, one of which `decision` is about.
    fn policies(&self, decision: &Decision) -> PolicyList<'_>;
}

/// What becomes of a response. Sealed.
pub trait Exit<K, Res>: Gate<K> {
    /// The response as the layer returns it.
    type Response;

    /// Moves the ticket into the response, or drops it.
    fn exit<E>(ticket: Option<Self::Ticket>, result: Result<Res, E>) -> Result<Self::Response, E>;
}

/// Manual impl: closures are not `Debug`.
impl fmt::Debug for MayWait<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MayWait")
            .field("seat", &self.seat)
            .finish_non_exhaustive()
    }
}
