//! The limit of one key, as the line of the key asks it.

use std::{borrow::Borrow, marker::PhantomData, sync::Arc, time::Duration};

use crate::backend::Backend;
use crate::clock::Tick;
use crate::decision::{Decision, Verdict};
use crate::queue::Limit;

/// A limit and a key, each its own or a reference.
pub(super) struct LimitOf<Q, B, K, L> {
    key: Q,
    backend: B,
    of: PhantomData<fn(K, L)>,
}

impl<Q, B, K, L> LimitOf<Q, B, K, L> {
    pub(super) const fn new(key: Q, backend: B) -> Self {
        let of = PhantomData;
        Self { key, backend, of }
    }
}

impl<Q, B, K, L> Limit for LimitOf<Q, B, K, L>
where
    Q: Borrow<K>,
    B: Borrow<Arc<L>>,
    K: Clone + Send + 'static,
    L: Backend<K>,
{
    fn take(&self, cost: u64, at: Tick) -> Decision {
        let taken = self.backend.borrow().take_turn(self.key.borrow(), cost, at);
        // Only what decides at once is asked.
        taken.unwrap_or_else(|| Decision::new(Verdict::Deny, 0, 0, None, 0))
    }

    fn wait(&self, ahead: u64, cost: u64, at: Tick) -> Option<Duration> {
        let backend = self.backend.borrow();
        backend.expected_wait(self.key.borrow(), ahead, cost, at)
    }

    fn keep(&self) -> Box<dyn Limit + Send> {
        let (key, backend) = (self.key.borrow().clone(), Arc::clone(self.backend.borrow()));
        Box::new(LimitOf::<K, Arc<L>, K, L>::new(key, backend))
    }
}
