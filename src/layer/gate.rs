//! Port: what decides about the requests of a layer.
//!
//! A request enters, waits if it has to, goes on to the service, and its cost is settled when it ends there; or it
//! leaves.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use super::state::{State, UNNAMED};
use crate::clock::Tick;
use crate::decision::Decision;
use crate::error::RateLimited;
use crate::key::Weight;
use crate::queue::RequestSeat;
use crate::respond::{CostHandle, OwnRules, Policies, Settle};

/// What a request asks for.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a question of its own"
)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) weight: Weight,
    /// The layer is in shadow mode: the request passes at once, whatever is decided.
    pub(crate) shadow: bool,
    /// The decision is read by the service or written to headers.
    pub(crate) figures: bool,
    /// The decision is read by the service.
    pub(crate) shares: bool,
    /// What it has taken is needed when the response is there, or while it is served.
    pub(crate) keep: bool,
}

/// What a request asks for as it enters, and what a gate may take or write of it.
#[derive(Debug)]
pub(crate) struct Entering<'a> {
    pub(crate) ask: Ask,
    /// Taken by a gate where the request waits, and kept until all of its wait is over.
    pub(crate) seat: &'a mut RequestSeat,
    /// Until when its client will wait; `MAX` if it has not said.
    pub(crate) until: Tick,
    /// Where the figures go of a request that goes on, if they [are read](Ask::figures) and there are any.
    pub(crate) figures: &'a mut Option<Decision>,
    /// A list of gates asks those that would say up to this, and then it is the turn of others.
    pub(crate) up_to: Look,
}

impl Entering<'_> {
    /// The same request, asking for something else.
    pub(crate) fn with(&mut self, ask: Ask) -> Entering<'_> {
        Entering {
            ask,
            seat: self.seat,
            until: self.until,
            figures: self.figures,
            up_to: self.up_to,
        }
    }
}

/// What a gate would say, as far as that is known without I/O. Several gates are asked in this order, so that
/// nothing is taken from a gate while the request waits for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Look {
    /// The request would be denied.
    Denies,
    /// It would wait.
    Waits,
    /// It would go on at once.
    Passes,
    /// A server has to be asked.
    Unknown,
    /// The request is in flight there from then on.
    Holds,
}

/// How far a request is with a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Progress {
    /// In a line, or until a server has decided.
    Waits,
    /// It has not asked.
    New,
    /// It has passed, was denied or has left.
    Passed,
}

/// How the cost that a limit has taken is to be settled, given what the limit says about it, and whether it learns the
/// cost at the end.
pub(crate) type SettlePart<'a> = &'a dyn Fn(OwnRules<'_>, bool) -> Settle;

/// Receives the rules of the limit that made a decision, its policies, and the decision. The index
/// [`Decision::policy`] counts only these policies.
pub(crate) type Told<'a> = &'a mut dyn FnMut(OwnRules<'_>, &Policies, &Decision);

/// What a gate is made of, whatever its keys. Sealed.
pub trait Limiting: Clone {
    /// What its layer is called.
    const LAYER: &'static str = "LimitLayer";

    /// What decides.
    type Limiter: Send + Sync + 'static;

    /// What its services and handles share.
    fn state(&self) -> &Arc<State<Self::Limiter>>;

    /// Whether a request may have to wait. Several limits are not asked.
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

/// Decides about requests of the key `K`: a rate limit, a limit on concurrency, or a list of gates. Sealed.
pub trait Gate<K>: Limiting {
    /// The state of a request at the gate: new, waiting, or what it has taken. The request leaves, or it ends.
    type Entry: Default + Send + 'static;

    /// The request leaves: gives back what it has taken, or its place.
    fn leave(&self, key: &K, entry: &mut Self::Entry);
}

/// What only this crate asks of a gate.
pub(crate) trait Enter<K>: Gate<K> {
    /// Whether a request has something until its end, also if no response is read.
    const HOLDS: bool = true;

    /// The request with this key and state.
    fn at<'a>(&'a self, key: &'a K, entry: &'a mut Self::Entry) -> impl AtGate + 'a;
}

/// A request at a gate.
pub(crate) trait AtGate {
    /// What the gate would decide, as far as that is known without I/O.
    fn look(&mut self, ask: Ask) -> Look;

    /// How far the request is.
    fn progress(&mut self) -> Progress;

    /// Ready once the request may go on or is denied, all of which is counted. Without a context it only begins to
    /// wait.
    fn poll_enter(
        &mut self,
        entering: Entering<'_>,
        cx: Option<&mut Context<'_>>,
    ) -> Poll<Result<(), RateLimited>>;

    /// Gives back what a request has taken that does not go on, or its place.
    fn leave(&mut self);

    /// Settles the cost of a request whose response is known, without awaiting it.
    fn settle(&mut self, settle: SettlePart<'_>) {
        let _ = settle;
    }

    /// The handle with which the service sets the cost of a request that it serves.
    fn cost_handle(&mut self) -> Option<CostHandle> {
        None
    }

    /// Of how many limits it consists, which [`Decision::policy`] counts. Of a key that has a plan of its own, it may
    /// have less.
    fn limits(&mut self) -> usize;

    /// Passes the rules, the policies and the figures of the limit that made `decision` to `told`.
    fn policies(&mut self, decision: Decision, told: Told<'_>);
}

/// What becomes of a response. Sealed.
pub trait Exit<K, Res>: Gate<K> {
    /// The response as the layer returns it.
    type Response;

    /// Moves what the request holds into the response, or drops it.
    ///
    /// # Errors
    /// That of the service.
    fn exit<E>(entry: Self::Entry, result: Result<Res, E>) -> Result<Self::Response, E>;
}
