//! A request at one limit among several.

use crate::key::Weight;
use crate::layer::gate::{Ask, AtGate, Look};
use crate::respond::OwnRules;

/// What a request asks of one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PartAsk {
    pub(crate) weight: Weight,
    pub(crate) shadow: bool,
    /// The decision of the limit does not count among those of all limits.
    pub(crate) silent: bool,
    /// Responses state the limit.
    pub(crate) stated: bool,
}

/// A request at one of several limits.
pub(crate) struct GatePart<'a> {
    pub(crate) at: &'a mut dyn AtGate,
    pub(crate) ask: PartAsk,
    /// What the limit says about its responses.
    pub(crate) rules: OwnRules<'a>,
}

impl<'a> GatePart<'a> {
    pub(super) const fn new(at: &'a mut dyn AtGate, ask: PartAsk) -> Self {
        let rules = None;
        Self { at, ask, rules }
    }

    /// What it asks of the limit, if it asks for `ask` of all.
    pub(super) fn ask(&self, ask: Ask) -> Ask {
        // Whether its decision is one of those that are stated or shared.
        let is_read = !self.ask.silent && (self.ask.stated || ask.shares);
        Ask {
            weight: self.ask.weight.and(ask.weight),
            shadow: self.ask.shadow || ask.shadow,
            figures: ask.shadow || (ask.figures && is_read),
            ..ask
        }
    }

    pub(super) fn look(&mut self, ask: Ask) -> Look {
        self.at.look(self.ask(ask))
    }
}
