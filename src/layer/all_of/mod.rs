//! The gate of several limits that admit a request together.

mod at_all;
mod keys;
mod pair;
mod part;

pub use self::{
    at_all::AllEntry,
    keys::{AndKeys, KeyPair},
};
pub(crate) use self::{
    at_all::Parts,
    part::{GatePart, PartAsk},
};
use std::{fmt, sync::Arc};

use self::at_all::AtAll;
use super::gate::{AtGate, Enter, Gate};
use super::state::State;

/// Several limits, each with a key of its own: a request passes if all of them admit it, and none
/// counts it if one of them denies it. Made by [`LimitLayer::and`](super::LimitLayer::and) and by
/// policy files.
///
/// # Order
/// 1. A limit in this process that would deny the request is asked first. It denies the request, and no
///    other one has counted it.
/// 2. The others follow: limits in whose queue the request waits, those that admit it at once, limits on a server,
///    and limits on concurrency. So while it waits in the queue of a rate limit, it has taken nothing from limits
///    without a queue. Of two alike the first goes first, so put the one on a server that denies more often first.
/// 3. If one denies the request, or it is dropped while it waits, what the others have taken is given
///    back: all of it that time has not returned yet.
///
/// So a limit on a server may count a request that another limit denies, until the refund has arrived.
/// If the refund fails, because the server is down or the process ends, the cost stays taken until time
/// has refilled it. No limit ever admits more than it should.
///
/// A limit whose server is down passes or denies as it is set, and the others decide as usual.
pub struct AllOf<P> {
    state: Arc<State<P>>,
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

impl<K, P: Parts<K>> Enter<K> for AllOf<P>
where
    Self: Gate<K, Entry = AllEntry<P::Entries>>,
{
    fn at<'a>(&'a self, key: &'a K, entry: &'a mut Self::Entry) -> impl AtGate + 'a {
        let state = &*self.state;
        AtAll { state, key, entry }
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
