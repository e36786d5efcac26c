//! What there is to do at the end of a request, and what it has of its gate until then.

use std::mem;

use super::gate::Gate;
use super::options::LayerOptions;
use crate::decision::Decision;
use crate::respond::ResponseHooks;

/// What a request has of its gate. Dropped while the request waits, it leaves.
pub(super) struct Held<K, G: Gate<K>> {
    pub(super) gate: G,
    pub(super) key: K,
    pub(super) entry: G::Entry,
    pub(super) waits: bool,
    pub(super) options: LayerOptions,
}

impl<K, G: Gate<K>> Drop for Held<K, G> {
    #[inline]
    fn drop(&mut self) {
        if self.waits {
            self.gate.leave(&self.key, &mut self.entry);
        }
    }
}

/// What there is to do once there is a response.
pub(super) enum After<K, G: Gate<K>, R> {
    Nothing,
    /// What is held is released.
    Release(G::Entry),
    /// The response states the limit, or the cost is settled.
    Finish(Finish<K, G, R>),
}

/// What is needed once there is a response.
pub(super) struct Finish<K, G: Gate<K>, R> {
    pub(super) held: Held<K, G>,
    /// If it is stated.
    pub(super) decision: Option<Decision>,
    pub(super) respond: R,
}

pub(super) const POLLED_AFTER_READY: &str = "the future was polled again after it had been ready";

impl<K, G: Gate<K>, R> After<K, G, R> {
    pub(super) fn take(&mut self) -> G::Entry {
        match self {
            Self::Nothing => G::Entry::default(),
            Self::Release(entry) => mem::take(entry),
            Self::Finish(finish) => mem::take(&mut finish.held.entry),
        }
    }

    pub(super) fn put(&mut self, own: G::Entry) {
        match self {
            Self::Nothing => {}
            Self::Release(entry) => *entry = own,
            Self::Finish(finish) => finish.held.entry = own,
        }
    }
}

impl<K, G: Gate<K>, R> Finish<K, G, R> {
    /// Writes the headers about the limit and settles the cost. The future, if any, completes when
    /// the gate has settled it.
    pub(super) fn finish<Req, Res, Err>(
        &self,
        entry: &mut G::Entry,
        result: &mut Result<Res, Err>,
    ) -> Option<G::Settling>
    where
        R: ResponseHooks<Req, K, Res, Err>,
    {
        let Held { gate, key, .. } = &self.held;
        if let (true, Some(mut decision), Ok(response)) =
            (R::WRITES_HEADERS, self.decision, &mut *result)
        {
            let (policies, rules) = gate.policies(key, &mut decision);
            self.respond.tell(rules, response, &policies, &decision);
        }
        gate.settle(key, entry, &|rules| {
            self.respond.settle(rules, result.as_ref())
        })
    }
}
