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
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use super::policy_cache::{PolicyList, UNNAMED};
use super::state::State;
use crate::clock::Tick;
use crate::decision::{CompactDecision, Decision};
use crate::error::RateLimited;
use crate::key::Priority;
use crate::queue::RequestSeat;
use crate::respond::{CostHandle, OwnRules, Settle};

/// What a request asks for.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a question of its own"
)]
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    pub(crate) cost: u64,
    pub(crate) priority: Priority,
    /// The layer is in shadow mode: the request passes at once, whatever is decided.
    pub(crate) shadow: bool,
    /// The decision is read by the service or written to headers.
    pub(crate) figures: bool,
    /// The decision is read by the service.
    pub(crate) shares: bool,
    /// The ticket is needed when the response is there.
    pub(crate) keep: bool,
}

/// What a request needs if it has to wait.
pub struct MayWait<'a> {
    /// Taken by a gate where the request waits, and kept until all of its wait is over.
    pub(crate) seat: &'a mut RequestSeat,
    /// Until when its client will wait.
    pub(crate) until: &'a dyn Fn() -> Option<Tick>,
}

/// What a gate would say, as far as that is known without I/O. Several gates are asked in this order,
/// so that none takes anything of a request that another one denies, and those that hold something
/// while the request waits or runs come last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Look {
    Denies,
    Passes,
    Unknown,
    Waits,
    /// The request is in flight there from then on.
    Holds,
}

/// What a request has of a gate.
#[derive(Debug)]
pub enum Has<W, T> {
    Wait(W),
    Passed(Passed<T>),
}

/// How the cost that a limit has taken is to be settled, given what the limit says about it.
pub(crate) type SettlePart<'a> = &'a dyn Fn(OwnRules<'_>) -> Settle;

/// A request that goes on to the service.
#[derive(Debug)]
pub struct Passed<T> {
    /// If the request [keeps](Ask::keep) it or the gate needs it.
    pub(crate) ticket: Option<T>,
    /// If its [figures](Ask::figures) are read, and there are any.
    pub(crate) decision: Option<CompactDecision>,
    /// It had a place in line.
    pub(crate) waited: bool,
    /// False in an outage, in which nothing has decided.
    pub(crate) decided: bool,
}

impl<T> Passed<T> {
    /// Goes on at once, without figures.
    pub(crate) const fn at_once(ticket: Option<T>) -> Self {
        Self {
            ticket,
            decision: None,
            waited: false,
            decided: true,
        }
    }

    /// Goes on although nothing has decided.
    pub(crate) const fn in_outage() -> Self {
        Self {
            ticket: None,
            decision: None,
            waited: false,
            decided: false,
        }
    }
}

#[inline]
pub(crate) fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// What a gate says to a request. All of it is counted.
pub(crate) type Entry<T, W> = Result<Has<W, T>, RateLimited>;

/// What a gate is made of, whatever its keys. Sealed.
pub trait Limiting: Clone {
    /// What decides.
    type Limiter: Send + Sync + 'static;

    fn state(&self) -> &Arc<State<Self::Limiter>>;

    /// Whether a request may wait in a line. Several limits are not asked.
    fn queues(&self) -> bool {
        true
    }

    /// Names the limit. Of several limits, each has a `number` beside the name, and the next number is
    /// left; 0 if there is one. Without a name, those that have none are named.
    #[track_caller]
    fn rename(&mut self, name: Option<&str>, number: &mut usize);
}

/// The state of one limit, whatever decides it, under another name; see [`Limiting::rename`].
#[track_caller]
pub(crate) fn rename<L>(state: &mut Arc<State<L>>, name: Option<&str>, number: &mut usize) {
    let own = *number;
    *number += usize::from(own > 0);
    if name.is_some() || state.name().starts_with(UNNAMED) {
        let name = name.unwrap_or(UNNAMED);
        let name = match own {
            0 => name.to_owned(),
            own => format!("{name}-{own}"),
        };
        *state = Arc::new(state.renamed(&name, Arc::clone(&state.backend)));
    }
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

    /// Whether a request is given a [handle](Self::cost_handle).
    const GIVES_COST_HANDLES: bool = false;

    /// What it would say.
    fn look(&self, key: &K, ask: Ask) -> Look;

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
        seat: &mut RequestSeat,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Passed<Self::Ticket>, RateLimited>>;

    /// Gives back what a request has taken that does not go on.
    fn leave(&self, key: &K, has: Has<Self::Wait, Self::Ticket>);

    /// Settles the cost of a request whose response is known.
    fn settle(
        &self,
        key: &K,
        ticket: &mut Self::Ticket,
        settle: SettlePart<'_>,
    ) -> Option<Self::Settling>;

    /// Says what a request has cost that goes on to the service.
    fn cost_handle(&self, key: &K, ticket: &mut Self::Ticket) -> Option<CostHandle> {
        let _ = (key, ticket);
        None
    }

    /// The limits as clients are told them, one of which `decision` is about, and what the limit that
    /// has made the decision says about it. [`Decision::policy`] then counts the policies of that limit.
    fn policies<'a>(
        &'a self,
        key: &'a K,
        decision: &mut Decision,
    ) -> (PolicyList<'a>, OwnRules<'a>);
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
