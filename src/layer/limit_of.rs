//! The limit of one key, as the line of the key asks it.

use std::{borrow::Borrow, marker::PhantomData, sync::Arc, time::Duration};

use crate::backend::Backend;
use crate::clock::Tick;
use crate::decision::{Decision, Verdict};
use crate::queue::Limit;

/// A limit and a key, which is `Q` or a reference to one.
pub(super) struct LimitOf<Q, K, L> {
    key: Q,
    backend: Arc<L>,
    of: PhantomData<fn(K)>,
}

impl<Q, K, L> LimitOf<Q, K, L> {
    pub(super) fn new(key: Q, backend: &Arc<L>) -> Self {
        Self {
            key,
            backend: Arc::clone(backend),
            of: PhantomData,
        }
    }
}

impl<Q, K, L> Limit for LimitOf<Q, K, L>
where
    Q: Borrow<K>,
    K: Clone + Send + 'static,
    L: Backend<K>,
{
    fn take(&self, cost: u64, at: Tick) -> Decision {
        let taken = self.backend.take_turn(self.key.borrow(), cost, at);
        // Only what decides at once is asked.
        taken.unwrap_or_else(|| Decision::new(Verdict::Deny, 0, 0, None, 0))
    }

    fn wait(&self, ahead: u64, cost: u64, at: Tick) -> Option<Duration> {
        let backend = &self.backend;
        backend.expected_wait(self.key.borrow(), ahead, cost, at)
    }

    fn keep(&self) -> Box<dyn Limit + Send> {
        Box::new(LimitOf::<K, K, L>::new(
            self.key.borrow().clone(),
            &self.backend,
        ))
    }
}
