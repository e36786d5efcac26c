//! One limit of a file at work.

use std::{
    any::Any,
    cmp::Reverse,
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
};

use http::{HeaderMap, Method, Request};

use super::key::{PolicyKey, PolicyLimiter};
use super::keys::PolicyKeys;
use super::nested;
use crate::algorithm::AnyAlgorithm;
use crate::concurrency::InFlight;
use crate::error::Rejection;
use crate::key::{Key, Networks, Predicate, Weight, Within};
use crate::layer::{AtGate, Counts, Enter, GatePart, Handle, Limiting, PartAsk, Rate};
use crate::policy::file::{Deny, FileLimit, Override, Problem, Requests, StoreSource};
use crate::quota::Plan;
use crate::respond::{Event, OwnRules};
use crate::store::local::Local;

/// The limits of one version of a file.
#[derive(Default)]
pub(super) struct Generation {
    /// In the order in which they are asked.
    pub(super) limits: Vec<Active>,
    /// Clients that are denied.
    pub(super) denies: Vec<(Deny, Listed)>,
    pub(super) warnings: Vec<Problem>,
}

/// A limit of a file, with what it has counted.
pub(super) struct Active {
    /// As the file says. The limits that follow it are its overrides.
    pub(super) limit: FileLimit,
    /// What its usage belongs to, beside its name: key, algorithm, store and capacity.
    pub(super) identity: String,
    /// The store of the file, with its password.
    pub(super) source: Option<StoreSource>,
    pub(super) keys: PolicyKeys,
    pub(super) except: Option<Listed>,
    pub(super) gate: LimitGate,
    /// Whether it replaces a limit before it.
    pub(super) is_override: bool,
}

/// The networks of a list, and whether a client is in them.
pub(super) type Listed = (Arc<Networks>, Within);

/// What decides about the requests of a limit.
#[derive(Clone)]
pub(super) enum LimitGate {
    /// With the table if it is in memory.
    Rate(Rate<PolicyLimiter>, Option<Local<AnyAlgorithm>>),
    InFlight(InFlight),
}

/// Runs an expression on the gate of a limit, of either type.
macro_rules! with_gate {
    ($active:ident, $gate:ident => $run:expr) => {
        match &$active.gate {
            LimitGate::Rate($gate, _) => $run,
            LimitGate::InFlight($gate) => $run,
        }
    };
}

/// What a request has of a limit. Those of a rate limit and of one on concurrency are of different types.
pub(super) type AnyEntry = Box<dyn Any + Send>;

/// The entry of a limit, which is a new one at first.
fn own<E: Default + Send + 'static>(entry: &mut AnyEntry) -> &mut E {
    if !entry.is::<E>() {
        *entry = Box::<E>::default();
    }
    entry.downcast_mut().expect("it is of this type")
}

/// The limits of a policy file that apply to a request, and its key for each.
///
/// A reload does not change them: the request finishes under the limits under which it began.
#[derive(Clone)]
pub struct MatchedLimits {
    pub(super) generation: Arc<Generation>,
    /// The indexes of the limits. There is at least one.
    pub(super) limits: Vec<(usize, PolicyKey)>,
}

impl MatchedLimits {
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = (&Active, &PolicyKey)> {
        let limits = &self.generation.limits;
        self.limits.iter().map(|(at, key)| (&limits[*at], key))
    }
}

impl Key for MatchedLimits {}

impl Hash for MatchedLimits {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.limits.hash(state);
    }
}

/// Manual impl: keys must not be logged.
impl fmt::Debug for MatchedLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.iter().map(|(active, _)| &active.limit.name);
        f.debug_list().entries(names).finish()
    }
}

impl Generation {
    /// Whether the client of a request is denied. An address that is missing is so for every list.
    pub(super) fn denies<B>(&self, request: &Request<B>) -> Result<bool, Rejection> {
        let denies = self.denies.iter();
        let asked = denies.filter(|(deny, _)| contain(deny.requests.as_ref(), request));
        let mut answers = asked.map(|(_, (_, clients))| clients.matches(request));
        answers
            .find(|answer| *answer != Ok(false))
            .unwrap_or(Ok(false))
    }

    /// The limit whose usage belongs to one of this name and identity.
    pub(super) fn same(&self, name: &str, identity: &str) -> Option<&Active> {
        let mut limits = self.limits.iter();
        limits.find(|old| old.limit.name == name && old.identity == identity)
    }
}

/// See [`Active::identity`].
pub(super) fn identity(limit: &FileLimit, source: Option<&StoreSource>) -> String {
    let keys: Vec<_> = limit.keys.iter().cloned().map(String::from).collect();
    let algorithm = match limit.plan() {
        Plan::Default => limit.spec.kind(),
        plan => format!("{plan:?}"),
    };
    let store = (&limit.store, source.map(StoreSource::address));
    let capacity = limit.capacity.map(|keys| keys.0);
    format!("{keys:?} {algorithm} {store:?} {capacity:?}")
}

impl Active {
    /// Whether all that the file says about it is as in `other`.
    pub(super) fn is_as(&self, other: &Self) -> bool {
        let networks = |of: &Self| of.except.as_ref().map(|(networks, _)| Arc::clone(networks));
        self.limit == other.limit
            && self.source == other.source
            && networks(self) == networks(other)
    }

    /// Takes over the numbers of the limit, in place of those that its gate has, which `before` had.
    pub(super) fn set_numbers(&self, before: &FileLimit) {
        let (spec, before) = (&self.limit.spec, &before.spec);
        // Nothing fails: the numbers are checked.
        let _ = match (&self.gate, spec.algorithm(), spec.concurrency()) {
            (LimitGate::Rate(gate, Some(local)), Ok(algorithm), _) if spec != before => {
                let changed = local.set_algorithm(algorithm);
                gate.state().changed();
                changed
            }
            (LimitGate::InFlight(gate), _, Some(most)) => {
                Handle::<PolicyKey, _>::new(gate.state()).set_limit(most)
            }
            _ => Ok(()),
        };
    }

    /// How many limits behind the limit is the one for a request; 0 is the limit itself. The whole key decides, else
    /// its longest prefix, else the headers in the order of the file.
    pub(super) fn behind(&self, key: &PolicyKey, headers: &HeaderMap) -> usize {
        let text = key.text();
        let rank = |one: &Override| match (&one.key, &one.prefix, &one.headers) {
            (Some(whole), ..) => (text == Some(whole.as_bytes())).then_some(usize::MAX),
            (_, Some(prefix), _) => text?.starts_with(prefix.as_bytes()).then_some(prefix.len()),
            (.., Some(values)) => values.are_in(headers).then_some(0),
            _ => None,
        };
        let overrides = (1..).zip(&self.limit.overrides);
        let ranked = overrides.filter_map(|(behind, one)| Some((rank(one)?, Reverse(behind))));
        ranked.max().map_or(0, |(_, Reverse(behind))| behind)
    }

    /// Whether the limit is about this request.
    pub(super) fn applies<B>(&self, request: &Request<B>) -> bool {
        let is_excepted = |(_, clients): &Listed| clients.matches(request) == Ok(true);
        contain(self.limit.requests.as_ref(), request)
            && !self.except.as_ref().is_some_and(is_excepted)
    }

    pub(super) fn record(&self, event: Event<'_>, shadow: bool) {
        with_gate!(self, gate => gate.state().record(event, shadow));
    }

    pub(super) fn counts(&self) -> Counts {
        with_gate!(self, gate => gate.state().counts.read())
    }

    /// The request of this key.
    pub(super) fn at<'a>(
        &'a self,
        key: &'a PolicyKey,
        entry: &'a mut AnyEntry,
    ) -> Box<dyn AtGate + 'a> {
        with_gate!(self, gate => Box::new(gate.at(key, own(entry))))
    }

    /// What `at`, a request of this limit, asks of it.
    pub(super) fn part<'a>(&'a self, at: &'a mut dyn AtGate) -> GatePart<'a> {
        let shadow = self.limit.shadow;
        let ask = PartAsk {
            weight: Weight::default(),
            shadow,
            silent: shadow,
            stated: self.limit.headers.headers().is_some(),
        };
        let rules: OwnRules<'a> = Some(&self.limit);
        GatePart { at, ask, rules }
    }
}

/// Whether a request is one of these; without any, all are. `GET` contains `HEAD`, as a route of axum does: a
/// server answers both.
fn contain<B>(requests: Option<&Requests>, request: &Request<B>) -> bool {
    let Some(requests) = requests else {
        return true;
    };
    let (method, headers) = (request.method(), requests.headers.as_ref());
    let listed = |method: &Method| {
        requests
            .methods
            .iter()
            .any(|known| known == method.as_str())
    };
    let is_get = || *method == Method::HEAD && listed(&Method::GET);
    let has = |path: &str| requests.paths.iter().any(|pattern| pattern.matches(path));
    (requests.methods.is_empty() || listed(method) || is_get())
        && headers.is_none_or(|values| values.are_in(request.headers()))
        && (requests.paths.is_empty()
            || has(request.uri().path())
            || nested(request.extensions()).is_some_and(has))
}
