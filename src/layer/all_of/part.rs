//! A limit among several, as a gate of the keys and entries of all of them.

use std::task::{Context, Poll};

use crate::decision::Decision;
use crate::error::RateLimited;
use crate::key::{Priority, joint_cost};
use crate::layer::gate::{
    Ask, Gate, Look, MayWait, Passed, Previewing, Progress, SettlePart, Settling, Told,
};
use crate::respond::{CostHandle, OwnRules};

/// What a request asks of one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PartAsk {
    pub(crate) cost: u64,
    pub(crate) priority: Priority,
    pub(crate) shadow: bool,
    /// The decision of the limit does not count among those of all limits.
    pub(crate) silent: bool,
    /// Responses state the limit.
    pub(crate) stated: bool,
}

/// One of several limits, with the key that a request has for it.
pub(crate) struct PartOf<'a, G: Gate<Q>, Q, E> {
    pub(crate) gate: &'a G,
    pub(crate) key: &'a Q,
    pub(crate) ask: PartAsk,
    /// What the limit says about its responses.
    pub(crate) rules: OwnRules<'a>,
    /// Which one it is.
    pub(crate) at: usize,
    /// Finds its entry among those of all.
    pub(crate) entry: fn(&mut E, usize) -> &mut G::Entry,
}

impl<G: Gate<Q>, Q, E> PartOf<'_, G, Q, E> {
    fn own<'e>(&self, all: &'e mut E) -> &'e mut G::Entry {
        (self.entry)(all, self.at)
    }

    fn ask(&self, ask: Ask) -> Ask {
        // Whether its decision is one of those that are stated or shared.
        let is_read = !self.ask.silent && (self.ask.stated || ask.shares);
        Ask {
            cost: joint_cost(self.ask.cost, ask.cost),
            priority: self.ask.priority.min(ask.priority),
            shadow: self.ask.shadow || ask.shadow,
            figures: ask.shadow || (ask.figures && is_read),
            ..ask
        }
    }
}

impl<K, G: Gate<Q>, Q, E: Default + Send + 'static> Gate<K> for PartOf<'_, G, Q, E> {
    type Entry = E;

    fn look(&self, _: &K, ask: Ask) -> Look {
        self.gate.look(self.key, self.ask(ask))
    }

    fn preview(&self, _: &K, ask: Ask) -> Vec<Previewing> {
        self.gate.preview(self.key, self.ask(ask))
    }

    fn progress(&self, _: &K, entry: &mut E) -> Progress {
        self.gate.progress(self.key, self.own(entry))
    }

    fn poll_enter(
        &self,
        _: &K,
        ask: Ask,
        entry: &mut E,
        may_wait: MayWait<'_>,
        cx: Option<&mut Context<'_>>,
    ) -> Poll<Result<Passed, RateLimited>> {
        let (ask, own) = (self.ask(ask), self.own(entry));
        self.gate.poll_enter(self.key, ask, own, may_wait, cx)
    }

    fn leave(&self, _: &K, entry: &mut E) {
        self.gate.leave(self.key, self.own(entry));
    }

    fn settle(&self, _: &K, entry: &mut E, settle: SettlePart<'_>) -> Option<Settling> {
        let by_own_rules = |own: OwnRules<'_>| settle(own.or(self.rules));
        self.gate.settle(self.key, self.own(entry), &by_own_rules)
    }

    fn cost_handle(&self, _: &K, entry: &mut E) -> Option<CostHandle> {
        self.gate.cost_handle(self.key, self.own(entry))
    }

    fn limits(&self, _: &K) -> usize {
        self.gate.limits(self.key)
    }

    fn policies(&self, _: &K, decision: Decision, told: Told<'_>) {
        self.gate
            .policies(self.key, decision, &mut |own, policies, decision| {
                told(own.or(self.rules), policies, decision);
            });
    }
}
