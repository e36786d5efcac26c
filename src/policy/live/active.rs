//! One limit of a file at work.

use http::{Method, Request};

use super::backend::PolicyBackend;
use super::key::PolicyKey;
use super::keys::PolicyKeys;
use super::nested;
use super::respond::{PolicyDeny, PolicyHeaders, PolicyResponder};
use crate::concurrency::ConcurrencyLimitLayer;
use crate::error::Rejection;
use crate::key::{ClientIp, Extracted, KeyExtractor, Predicate, Within};
use crate::layer::RateLimitLayer;
use crate::policy::file::{Limit, Requests, StoreSource};
use crate::respond::Responder;

pub(super) type RateLayer = RateLimitLayer<PolicyKeys, PolicyBackend, PolicyResponder>;
pub(super) type InFlightLayer =
    ConcurrencyLimitLayer<PolicyKeys, Responder<PolicyDeny, PolicyHeaders>>;

/// A limit of a file, with what it has counted.
#[derive(Debug)]
pub(super) struct Active {
    /// As the file says.
    pub(super) limit: Limit,
    /// Usage belongs to the next version of the limit if this is equal.
    pub(super) identity: Identity,
    /// The store of the file, with its password.
    pub(super) source: Option<StoreSource>,
    pub(super) keys: PolicyKeys,
    pub(super) except: Option<Within>,
    pub(super) layer: ActiveLayer,
}

#[derive(Debug)]
pub(super) enum ActiveLayer {
    Rate(RateLayer),
    InFlight(InFlightLayer),
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
#[derive(Debug)]
pub(super) struct ActiveDeny {
    pub(super) requests: Requests,
    pub(super) clients: ClientIp,
    pub(super) list: Within,
}

/// What the `[[deny]]` tables of a file say about a request.
#[derive(Debug)]
pub(super) enum Verdict {
    Passes,
    Denied,
    /// It is not known whether the client is in a list.
    Unknown(Rejection),
}

impl Active {
    /// Whether the limit is about this request.
    pub(super) fn applies<B>(&self, request: &Request<B>) -> bool {
        let Self { limit, except, .. } = self;
        limit.requests.contain(request)
            && !except
                .as_ref()
                .is_some_and(|clients| clients.matches(request))
    }

    /// Whether the request would be denied, as far as that is known without I/O.
    pub(super) fn would_deny<B>(&self, request: &Request<B>) -> bool {
        if self.limit.is_shadow {
            return false;
        }
        match self.keys.extract(request) {
            Extracted::Key(key) => self.is_full(&key),
            Extracted::Skip => false,
            Extracted::Reject(_) => true,
        }
    }

    fn is_full(&self, key: &PolicyKey) -> bool {
        match &self.layer {
            ActiveLayer::Rate(layer) => {
                let decision = layer.limiter().look(key);
                decision.is_some_and(|decision| decision.is_denied())
            }
            ActiveLayer::InFlight(layer) => {
                let handle = layer.handle_for::<Request<()>>();
                let queues = self
                    .limit
                    .spec
                    .concurrency()
                    .is_some_and(|one| one.queue > 0);
                !queues && handle.in_flight(key) >= handle.limit()
            }
        }
    }

    /// The place among limits that apply to one request. A limit that others deny should not have
    /// counted the request: first those that answer at once and queue nothing, last those in flight.
    pub(super) fn rank(&self) -> u8 {
        match &self.layer {
            ActiveLayer::InFlight(_) => 3,
            ActiveLayer::Rate(_) if self.limit.store.is_some() => 2,
            ActiveLayer::Rate(_) if self.limit.spec.has_queue() => 1,
            ActiveLayer::Rate(_) => 0,
        }
    }
}

impl ActiveDeny {
    /// A client in any list is denied, and only then is a missing address a reason to refuse.
    pub(super) fn verdict<B>(denies: &[Self], request: &Request<B>) -> Verdict {
        let about = |deny: &&Self| deny.requests.contain(request);
        let mut unknown = None;
        for deny in denies.iter().filter(about) {
            if deny.list.matches(request) {
                return Verdict::Denied;
            }
            if let Extracted::Reject(rejection) = deny.clients.extract(request) {
                unknown = Some(rejection);
            }
        }
        unknown.map_or(Verdict::Passes, Verdict::Unknown)
    }
}

impl Requests {
    /// `GET` contains `HEAD`, as a route of axum does: a server answers both.
    fn contain<B>(&self, request: &Request<B>) -> bool {
        let Self { paths, methods } = self;
        let method = request.method();
        let is_get = || *method == Method::HEAD && methods.contains(&Method::GET);
        let has = |path: &str| paths.iter().any(|pattern| pattern.matches(path));
        (methods.is_empty() || methods.contains(method) || is_get())
            && (paths.is_empty()
                || has(request.uri().path())
                || nested(request.extensions()).is_some_and(has))
    }
}
