//! One limit of a file at work.

use std::{collections::HashMap, fmt};

use http::{HeaderMap, Method, Request};

use super::backend::PolicyBackend;
use super::key::PolicyKey;
use super::keys::PolicyKeys;
use super::nested;
use crate::concurrency::InFlight;
use crate::decision::Decision;
use crate::error::Rejection;
use crate::key::{Predicate, Priority, Within};
use crate::layer::{
    Gate, Has, LayerState, Limiting, Part, PartAsk, PartOf, PolicyList, Rate, Slot,
};
use crate::policy::file::{HeaderValues, Limit, Requests, StoreSource};
use crate::respond::OwnRules;

/// A limit of a file, with what it has counted.
pub(super) struct Active {
    /// As the file says.
    pub(super) limit: Limit,
    /// Usage belongs to the next version of the limit if this is equal.
    pub(super) identity: Identity,
    /// The store of the file, with its password.
    pub(super) source: Option<StoreSource>,
    pub(super) keys: PolicyKeys,
    pub(super) except: Option<Within>,
    pub(super) gate: ActiveGate,
    /// Whether it replaces a limit before it.
    pub(super) is_override: bool,
    /// The limits that follow it replace it for some requests.
    pub(super) overrides: Overrides,
}

/// Which of the limits behind a limit replaces it, for which requests.
#[derive(Default)]
pub(super) struct Overrides {
    keys: HashMap<Box<[u8]>, usize>,
    /// The longest first.
    prefixes: Vec<(Box<[u8]>, usize)>,
    headers: Vec<(HeaderValues, usize)>,
}

#[derive(Clone, Debug)]
pub(super) enum ActiveGate {
    Rate(Rate<PolicyBackend>),
    InFlight(InFlight),
}

/// What a request has of a limit.
#[derive(Debug)]
#[expect(unnameable_types, reason = "only layers use it")]
pub enum LimitSlot {
    Rate(SlotOf<Rate<PolicyBackend>>),
    InFlight(SlotOf<InFlight>),
}

type SlotOf<G> = Slot<<G as Gate<PolicyKey>>::Wait, <G as Gate<PolicyKey>>::Ticket>;

/// A limit, with a request.
pub(super) enum LimitPart<'a> {
    Rate(PartOf<'a, PolicyKey, Rate<PolicyBackend>>),
    InFlight(PartOf<'a, PolicyKey, InFlight>),
}

/// What usage belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) key: String,
    pub(super) algorithm: String,
    /// The name, and the URL without its password if the file has it.
    pub(super) store: (Option<String>, Option<String>),
    pub(super) capacity: Option<u64>,
}

/// Clients that are denied.
pub(super) struct ActiveDeny {
    pub(super) requests: Option<Requests>,
    pub(super) list: Within,
}

/// Manual impl: keys must not be logged.
impl fmt::Debug for Overrides {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Overrides").finish_non_exhaustive()
    }
}

impl Overrides {
    pub(super) fn of(limit: &Limit) -> Self {
        let mut all = Self::default();
        for (behind, one) in (1..).zip(&limit.overrides) {
            let bytes = |text: &String| text.as_bytes().into();
            all.keys
                .extend(one.key.as_ref().map(|key| (bytes(key), behind)));
            all.prefixes
                .extend(one.prefix.as_ref().map(|text| (bytes(text), behind)));
            all.headers
                .extend(one.headers.clone().map(|headers| (headers, behind)));
        }
        all.prefixes
            .sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        all
    }

    /// How many limits behind the limit is the one for a request; 0 is the limit itself. The whole key decides, else
    /// its longest prefix, else the headers in the order of the file.
    pub(super) fn find(&self, key: &PolicyKey, headers: &HeaderMap) -> usize {
        let by_key = || {
            let text = key.text()?;
            let mut prefixes = self.prefixes.iter();
            let whole = self.keys.get(text).copied();
            whole.or_else(|| Some(prefixes.find(|(prefix, _)| text.starts_with(prefix))?.1))
        };
        let by_headers = || {
            let mut all = self.headers.iter();
            Some(all.find(|(values, _)| values.are_in(headers))?.1)
        };
        by_key().or_else(by_headers).unwrap_or(0)
    }
}

impl Active {
    /// Whether the limit is about this request.
    pub(super) fn applies<B>(&self, request: &Request<B>) -> bool {
        let Self { limit, except, .. } = self;
        Requests::contain(limit.requests.as_ref(), request)
            && !except
                .as_ref()
                .is_some_and(|clients| clients.matches(request) == Ok(true))
    }

    pub(super) fn state(&self) -> &LayerState {
        match &self.gate {
            ActiveGate::Rate(gate) => gate.state(),
            ActiveGate::InFlight(gate) => gate.state(),
        }
    }

    /// An empty slot.
    pub(super) const fn slot(&self) -> LimitSlot {
        match &self.gate {
            ActiveGate::Rate(_) => LimitSlot::Rate(None),
            ActiveGate::InFlight(_) => LimitSlot::InFlight(None),
        }
    }

    /// The limit with a request of `key`. `number` says which of how many limits it is.
    pub(super) fn part<'a>(
        &'a self,
        key: &'a PolicyKey,
        number: (usize, usize),
        slot: &'a mut LimitSlot,
    ) -> Option<LimitPart<'a>> {
        Some(match (&self.gate, slot) {
            (ActiveGate::Rate(gate), LimitSlot::Rate(slot)) => {
                LimitPart::Rate(self.part_of(gate, key, number, slot))
            }
            (ActiveGate::InFlight(gate), LimitSlot::InFlight(slot)) => {
                LimitPart::InFlight(self.part_of(gate, key, number, slot))
            }
            _ => return None,
        })
    }

    fn part_of<'a, G: Gate<PolicyKey>>(
        &'a self,
        gate: &'a G,
        key: &'a PolicyKey,
        number: (usize, usize),
        slot: &'a mut Slot<G::Wait, G::Ticket>,
    ) -> PartOf<'a, PolicyKey, G> {
        let Limit {
            shadow, headers, ..
        } = self.limit;
        let ask = PartAsk {
            cost: 1,
            priority: Priority::HIGH,
            shadow,
            silent: shadow,
            stated: headers.headers().is_some(),
        };
        PartOf {
            gate,
            key,
            ask,
            number,
            rules: Some(&self.limit),
            slot,
            denied: false,
        }
    }

    /// The limit as clients are told it.
    pub(super) fn policies<'a>(
        &'a self,
        key: &'a PolicyKey,
        decision: &mut Decision,
    ) -> (PolicyList<'a>, OwnRules<'a>) {
        let (policies, _) = match &self.gate {
            ActiveGate::Rate(gate) => gate.policies(key, decision),
            ActiveGate::InFlight(gate) => gate.policies(key, decision),
        };
        (policies, Some(&self.limit))
    }
}

impl LimitSlot {
    /// The ticket of a request in flight that has passed.
    pub(super) fn into_ticket(self) -> Option<<InFlight as Gate<PolicyKey>>::Ticket> {
        match self {
            Self::InFlight(Some(Has::Passed(passed))) => passed.ticket,
            _ => None,
        }
    }
}

impl LimitPart<'_> {
    pub(super) fn as_part(&mut self) -> &mut dyn Part {
        match self {
            Self::Rate(part) => part,
            Self::InFlight(part) => part,
        }
    }
}

impl ActiveDeny {
    /// Whether one of them denies a request. An address that is missing is so for every list.
    pub(super) fn any<B>(denies: &[Self], request: &Request<B>) -> Result<bool, Rejection> {
        let asked = denies
            .iter()
            .filter(|deny| Requests::contain(deny.requests.as_ref(), request));
        let mut answers = asked.map(|deny| deny.list.matches(request));
        let decisive = answers.find(|answer| *answer != Ok(false));
        decisive.unwrap_or(Ok(false))
    }
}

impl Requests {
    /// All of them if they are not given. `GET` contains `HEAD`, as a route of axum does: a server answers both.
    fn contain<B>(this: Option<&Self>, request: &Request<B>) -> bool {
        let Some(Self {
            paths,
            methods,
            headers,
        }) = this
        else {
            return true;
        };
        let listed = |method: &Method| methods.iter().any(|known| known == method.as_str());
        let method = request.method();
        let is_get = || *method == Method::HEAD && listed(&Method::GET);
        let has = |path: &str| paths.iter().any(|pattern| pattern.matches(path));
        (methods.is_empty() || listed(method) || is_get())
            && headers
                .as_ref()
                .is_none_or(|values| values.are_in(request.headers()))
            && (paths.is_empty()
                || has(request.uri().path())
                || nested(request.extensions()).is_some_and(has))
    }
}
