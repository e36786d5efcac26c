//! A backend together with one key, without the types of either.
//!
//! The cold paths of a layer use it, so that they are compiled once for all layers.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll, Waker},
};

use super::state::{Shared, State};
use crate::backend::{Backend, Losses, Op};
use crate::decision::Decision;
use crate::quota::Quota;

/// Polls once without a waker. A future that is pending has to be polled again by its task.
#[inline]
pub(super) fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// A backend, asked about one key.
pub(super) trait KeyedBackend {
    /// Applies `op`. `None` if the backend fails or does not decide at once.
    fn apply_now(&self, op: Op) -> Option<Decision>;

    /// See [`Backend::decide_after_refund`].
    fn decide_after_refund(&self, freed: u64, cost: u64, peek: bool) -> Option<Decision>;

    /// Applies `op` without awaiting it; see [`Backend::detach`].
    fn apply_unawaited(&self, op: Op);

    /// See [`Backend::current_decision`].
    fn current_decision(&self, cost: u64) -> Option<Decision>;

    /// See [`Backend::losses`].
    fn losses(&self) -> Losses;

    /// See [`Backend::quotas`].
    fn quotas(&self) -> Vec<Quota>;

    /// The state of the layer, for a timer that must not keep it alive.
    fn owner(&self) -> Weak<Shared>;
}

/// The backend of a layer, and one key.
pub(super) struct AtKey<'a, K: ?Sized, L> {
    pub(super) state: &'a Arc<State<L>>,
    pub(super) key: &'a K,
}

impl<K: ?Sized, L: Backend<K>> KeyedBackend for AtKey<'_, K, L> {
    fn apply_now(&self, op: Op) -> Option<Decision> {
        match poll_once(&mut self.state.backend.apply(self.key, op)) {
            Poll::Ready(decided) => decided.ok(),
            Poll::Pending => None,
        }
    }

    fn decide_after_refund(&self, freed: u64, cost: u64, peek: bool) -> Option<Decision> {
        let backend = &self.state.backend;
        backend.decide_after_refund(self.key, freed, cost, peek)
    }

    fn apply_unawaited(&self, op: Op) {
        self.state.backend.detach(self.key, op);
    }

    fn current_decision(&self, cost: u64) -> Option<Decision> {
        self.state.backend.current_decision(self.key, cost)
    }

    fn losses(&self) -> Losses {
        self.state.backend.losses()
    }

    fn quotas(&self) -> Vec<Quota> {
        self.state.backend.quotas()
    }

    fn owner(&self) -> Weak<Shared> {
        Arc::downgrade(self.state.shared())
    }
}

/// The quota of a backend that has a single limit, given all of its quotas.
pub(super) fn single_quota(quotas: &[Quota]) -> Option<Quota> {
    match *quotas {
        [quota] => Some(quota),
        _ => None,
    }
}
