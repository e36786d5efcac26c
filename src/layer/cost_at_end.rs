//! What a request has taken of a rate limit that learns at its end what it has cost.
//!
//! | a request ends | the cost |
//! |---|---|
//! | by `commit`, or with its last handle | is what was said, or stays |
//! | by a response that `settle` does not keep | is what `settle` says |
//! | before the service has it | is given back |
//!
//! A [`Ticket`] is in exactly one place: in its [`Unsettled`], or taken out of it and settled.

use std::{hash::Hash, sync::Arc};

use super::state::State;
use super::ticket::Ticket;
use crate::backend::Backend;
use crate::respond::{CostHandle, CostMeter, Settle};
use crate::sync::{Mutex, lock};

/// A request that has not been settled yet.
pub(super) struct Unsettled<K: Hash, L: Backend<K>> {
    state: Arc<State<L>>,
    taken: Mutex<Taken<K>>,
}

struct Taken<K> {
    key: K,
    /// `None` once it is settled, and if the limit has taken nothing.
    ticket: Option<Ticket>,
    /// `None` until something was said.
    said: Option<u64>,
}

impl<K: Hash + Send + 'static, L: Backend<K>> Unsettled<K, L> {
    /// The handle of a request that has taken `ticket`.
    pub(super) fn share(state: &Arc<State<L>>, key: K, ticket: Option<Ticket>) -> CostHandle {
        let said = None;
        CostHandle::new(Arc::new(Self {
            state: Arc::clone(state),
            taken: Mutex::new(Taken { key, ticket, said }),
        }))
    }
}

impl<K: Hash, L: Backend<K>> Unsettled<K, L> {
    fn settle(&self, settle: Option<Settle>) {
        let taken = &mut *lock(&self.taken);
        let settle = settle.or_else(|| taken.said.map(Settle::Charge));
        if let (Some(ticket), Some(settle)) = (taken.ticket.take(), settle) {
            self.state.settle(&taken.key, ticket, settle);
        }
    }
}

impl<K: Hash + Send, L: Backend<K>> CostMeter for Unsettled<K, L> {
    fn name(&self) -> &str {
        self.state.name()
    }

    fn say(&self, change: &dyn Fn(u64) -> u64) {
        let said = &mut lock(&self.taken).said;
        *said = Some(change(said.unwrap_or(0)));
    }

    fn end(&self, settle: Option<Settle>) {
        self.settle(settle);
    }
}

/// The last handle of a request is gone.
impl<K: Hash, L: Backend<K>> Drop for Unsettled<K, L> {
    fn drop(&mut self) {
        self.settle(None);
    }
}
