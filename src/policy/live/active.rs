//! One limit of a file at work.

use std::{any::Any, collections::HashMap, sync::Arc};

use http::{HeaderMap, Method, Request};

use super::erased::PolicyLimiter;
use super::key::PolicyKey;
use super::keys::PolicyKeys;
use super::nested;
use crate::algorithm::AnyAlgorithm;
use crate::concurrency::InFlight;
use crate::decision::Decision;
use crate::error::Rejection;
use crate::key::{Networks, Predicate, Priority, Within};
use crate::layer::{
    Gate, Handle, LayerState, Limiting, Part, PartAsk, PartOf, PolicyList, Rate, Slot,
};
use crate::policy::file::{Deny, HeaderValues, Limit, Problem, Requests, StoreSource};
use crate::quota::Plan;
use crate::store::local::Local;

/// The limits of one version of a file.
#[derive(Default)]
pub(super) struct Generation {
    /// In the order in which they are asked.
    pub(super) limits: Vec<Active>,
    pub(super) denies: Vec<ActiveDeny>,
    pub(super) warnings: Vec<Problem>,
}

/// A limit of a file, with what it has counted.
pub(super) struct Active {
    /// As the file says, without its overrides.
    pub(super) limit: Limit,
    /// The store of the file, with its password.
    pub(super) source: Option<StoreSource>,
    pub(super) keys: PolicyKeys,
    pub(super) except: Option<Listed>,
    pub(super) gate: LimitGate,
    /// Whether it replaces a limit before it.
    pub(super) is_override: bool,
    /// The limits that follow it replace it for some requests.
    pub(super) overrides: Overrides,
}

/// Clients that are denied.
pub(super) struct ActiveDeny {
    pub(super) deny: Deny,
    pub(super) clients: Listed,
}

/// The clients of a list.
#[derive(Clone)]
pub(super) struct Listed {
    pub(super) networks: Arc<Networks>,
    pub(super) clients: Within,
}

/// Which of the limits behind a limit replaces it, for which requests.
#[derive(Default, PartialEq, Eq)]
pub(super) struct Overrides {
    keys: HashMap<Box<[u8]>, usize>,
    /// The longest first.
    prefixes: Vec<(Box<[u8]>, usize)>,
    headers: Vec<(HeaderValues, usize)>,
}

/// What decides about the requests of a limit.
#[derive(Clone)]
pub(super) enum LimitGate {
    /// With the table if it is in memory.
    Rate(Rate<PolicyLimiter>, Option<Local<AnyAlgorithm>>),
    InFlight(InFlight),
}

/// What a request has of a gate.
pub(super) type SlotOf<G> = Slot<<G as Gate<PolicyKey>>::Wait, <G as Gate<PolicyKey>>::Ticket>;

impl Generation {
    /// The limit whose usage belongs to this one too.
    pub(super) fn same(&self, of: &Active) -> Option<&Active> {
        self.same_as(&of.limit, of.source.as_ref())
    }

    /// The limit whose usage belongs to one that the file describes so.
    pub(super) fn same_as(&self, limit: &Limit, source: Option<&StoreSource>) -> Option<&Active> {
        let identity = |limit: &Limit, source: Option<&StoreSource>| {
            let kind = Some(limit.limit.0.kind()).filter(|_| limit.plan() == Plan::Default);
            let store = (limit.store.clone(), source.map(StoreSource::address));
            (
                limit.keys.to_vec(),
                limit.plan(),
                kind,
                store,
                limit.capacity,
            )
        };
        let named = self
            .limits
            .iter()
            .find(|old| old.limit.name == limit.name)?;
        let of_old = identity(&named.limit, named.source.as_ref());
        Some(named).filter(|_| of_old == identity(limit, source))
    }
}

impl Overrides {
    pub(super) fn of(limit: &Limit) -> Self {
        let mut all = Self::default();
        for (behind, one) in (1..).zip(&limit.overrides) {
            let bytes = |text: &String| text.as_bytes().into();
            let (key, prefix) = (one.key.as_ref().map(bytes), one.prefix.as_ref().map(bytes));
            all.keys.extend(key.map(|key| (key, behind)));
            all.prefixes.extend(prefix.map(|prefix| (prefix, behind)));
            let headers = one.headers.clone();
            all.headers.extend(headers.map(|headers| (headers, behind)));
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
    /// Whether all that the file says about it is as in `other`.
    pub(super) fn is_as(&self, other: &Self) -> bool {
        let networks = |of: &Self| of.except.as_ref().map(|list| Arc::clone(&list.networks));
        self.limit == other.limit
            && self.source == other.source
            && self.overrides == other.overrides
            && networks(self) == networks(other)
    }

    /// Takes over the numbers of the limit, in place of those that its gate has, which `before` had.
    pub(super) fn set_numbers(&self, before: &Limit) {
        let (spec, before) = (&self.limit.limit.0, &before.limit.0);
        // Nothing fails: the numbers are checked.
        let _ = match (&self.gate, spec.algorithm(), spec.concurrency()) {
            (LimitGate::Rate(gate, Some(local)), Ok(algorithm), _) if spec != before => {
                let handle = Handle::<PolicyKey, _>::new(gate.state());
                let local = handle.of_same::<PolicyKey, _>(Arc::new(local.clone()));
                local.replace_algorithm(algorithm, before.changed_quota(spec))
            }
            (LimitGate::InFlight(gate), _, Some(spec)) => {
                Handle::<PolicyKey, _>::new(gate.state()).set_limit(spec.limit)
            }
            _ => Ok(()),
        };
    }

    /// Whether the limit is about this request.
    pub(super) fn applies<B>(&self, request: &Request<B>) -> bool {
        let is_excepted = |list: &Listed| list.clients.matches(request) == Ok(true);
        contain(self.limit.requests.as_ref(), request)
            && !self.except.as_ref().is_some_and(is_excepted)
    }

    pub(super) fn state(&self) -> &LayerState {
        match &self.gate {
            LimitGate::Rate(gate, _) => gate.state(),
            LimitGate::InFlight(gate) => gate.state(),
        }
    }

    /// An empty slot.
    pub(super) fn slot(&self) -> Box<dyn Any + Send> {
        match &self.gate {
            LimitGate::Rate(..) => Box::new(None as SlotOf<Rate<PolicyLimiter>>),
            LimitGate::InFlight(_) => Box::new(None as SlotOf<InFlight>),
        }
    }

    /// The limit with a request of `key`. `number` says which of how many limits it is.
    pub(super) fn part<'a>(
        &'a self,
        key: &'a PolicyKey,
        number: (usize, usize),
        slot: &'a mut dyn Any,
    ) -> Option<Box<dyn Part + 'a>> {
        match &self.gate {
            LimitGate::Rate(gate, _) => self.part_of(gate, key, number, slot),
            LimitGate::InFlight(gate) => self.part_of(gate, key, number, slot),
        }
    }

    fn part_of<'a, G: Gate<PolicyKey>>(
        &'a self,
        gate: &'a G,
        key: &'a PolicyKey,
        number: (usize, usize),
        slot: &'a mut dyn Any,
    ) -> Option<Box<dyn Part + 'a>> {
        let shadow = self.limit.shadow;
        let ask = PartAsk {
            cost: 1,
            priority: Priority::HIGH,
            shadow,
            silent: shadow,
            stated: self.limit.headers.headers().is_some(),
        };
        Some(Box::new(PartOf {
            gate,
            key,
            ask,
            number,
            rules: Some(&self.limit),
            slot: slot.downcast_mut::<SlotOf<G>>()?,
            denied: false,
        }))
    }

    /// The limit as clients are told it.
    pub(super) fn policies<'a>(
        &'a self,
        key: &'a PolicyKey,
        decision: &mut Decision,
    ) -> PolicyList<'a> {
        match &self.gate {
            LimitGate::Rate(gate, _) => gate.policies(key, decision).0,
            LimitGate::InFlight(gate) => gate.policies(key, decision).0,
        }
    }
}

impl ActiveDeny {
    /// Whether one of them denies a request. An address that is missing is so for every list.
    pub(super) fn any<B>(denies: &[Self], request: &Request<B>) -> Result<bool, Rejection> {
        let asked = |one: &&Self| contain(one.deny.requests.as_ref(), request);
        let asked = denies.iter().filter(asked);
        let mut answers = asked.map(|one| one.clients.clients.matches(request));
        let decisive = answers.find(|answer| *answer != Ok(false));
        decisive.unwrap_or(Ok(false))
    }
}

/// Whether a request is one of these; without any, all are. `GET` contains `HEAD`, as a route of axum does: a
/// server answers both.
fn contain<B>(requests: Option<&Requests>, request: &Request<B>) -> bool {
    let Some(Requests {
        paths,
        methods,
        headers,
    }) = requests
    else {
        return true;
    };
    let method = request.method();
    let listed = |method: &Method| methods.iter().any(|known| known == method.as_str());
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
