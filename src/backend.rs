//! Port: where the states of many keys live, and how they are asked.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Waker},
};

use crate::decision::Decision;
use crate::error::StoreError;
use crate::quota::Quota;

/// Decides for many keys.
///
/// Kinds differ in where the states live: in this process, in Redis, or behind another limiter. In
/// process the future is ready at once and nothing is allocated.
pub trait Backend<K: ?Sized>: Send + Sync + 'static {
    /// Answers when the limiter has decided.
    ///
    /// It is `Unpin`, so that whoever calls can poll it once on the spot, go on without waiting
    /// where the answer is there, and keep it where it is not. A future with I/O in it is boxed.
    type Future: Future<Output = Result<Decision, StoreError>> + Send + Unpin + 'static;

    /// Carries out `op` on the state of `key`. Answers the decision, or for an operation that
    /// decides nothing an admission with the numbers of the state it left.
    fn apply(&self, key: &K, op: Op) -> Self::Future;

    /// Decides on a request of `cost` and takes the cost unless it is denied.
    fn decide(&self, key: &K, cost: u64) -> Self::Future {
        self.apply(key, Op::Take(cost))
    }

    /// Carries out `op` for nobody who waits for it: what a cancelled request gives back.
    ///
    /// In this process that is done on the spot. A limiter that asks a server has to see to it
    /// that the operation is finished though its future is dropped; else the cost stays taken.
    fn detach(&self, key: &K, op: Op) {
        let mut future = self.apply(key, op);
        let _ = Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop()));
    }

    /// The figures of `key` as they are now, where they are known on the spot: a request that has
    /// waited is told these. `None` where somebody else would have to be asked; it is told those
    /// of when it came.
    fn look(&self, _: &K) -> Option<Decision> {
        None
    }

    /// What it could not keep for want of room, in all so far.
    fn losses(&self) -> Losses {
        Losses::default()
    }

    /// The limits it holds, in the order in which [`Decision::policy`] counts them.
    fn quotas(&self) -> Vec<Quota>;
}

/// How often a limiter had no room for a key; see [`Overflow`](crate::store::local::Overflow) for what it does
/// then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Losses {
    /// How many keys were forgotten before their time.
    pub evicted: u64,
    /// How many of those were being denied.
    pub evicted_denied: u64,
    /// How many requests were denied because their key found no room.
    pub denied: u64,
    /// How many requests were counted together with others that found no room.
    pub shared: u64,
}

/// What can be asked of a key's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Op {
    /// Decide, and take the cost unless it is denied.
    Take(u64),
    /// The decision that `Take` would give, taking nothing.
    Peek(u64),
    /// Give back what was taken; never more than was there.
    Refund(u64),
    /// Count as taken even if that is more than allowed.
    Charge(u64),
    /// Forget the key.
    Reset,
}

/// What a layer takes as its limiter: an algorithm or a tuple of them (which means: in this
/// process), or a limiter of any other kind.
pub trait IntoBackend {
    /// The limiter it becomes.
    type Backend: Send + Sync + 'static;

    /// Makes the limiter; called once, when the layer is built.
    fn into_backend(self) -> Self::Backend;

    /// The same, where all requests share one key, so that it needs room for no more.
    fn into_single_key_backend(self) -> Self::Backend
    where
        Self: Sized,
    {
        self.into_backend()
    }
}
