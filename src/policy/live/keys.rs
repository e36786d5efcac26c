//! Finds the key of a request under a limit of a file.

use std::sync::Arc;

use http::Request;

use super::environment::{Environment, FindExtension};
use super::key::{Part, PolicyKey};
use crate::key::{
    Absent, BearerToken, ClientIp, Extracted, HeaderKey, KeyExtractor, Missing, resolve,
};
use crate::policy::{
    file::{KeySource, Limit},
    parse::did_you_mean,
};

/// Finds the [`PolicyKey`] of a request: one part per source.
pub(super) struct PolicyKeys(Vec<Source>);

/// How one part is found.
enum Source {
    Global,
    Client(ClientIp),
    Header(HeaderKey),
    Bearer(BearerToken),
    #[cfg(feature = "axum")]
    Route(crate::key::MatchedPath),
    Extension(String, FindExtension, Option<Missing>),
}

impl PolicyKeys {
    /// The keys of a limit; the error is about its field `key`.
    pub(super) fn of(limit: &Limit, environment: &Environment) -> Result<Self, String> {
        let missing = limit.missing.map(Missing::from);
        let sources = limit.keys.iter();
        let sources = sources.map(|source| Source::of(source, missing, environment));
        Ok(Self(sources.collect::<Result<_, _>>()?))
    }
}

impl Source {
    fn of(
        source: &KeySource,
        missing: Option<Missing>,
        environment: &Environment,
    ) -> Result<Self, String> {
        let or_shared = missing.unwrap_or(Missing::Shared);
        Ok(match source {
            KeySource::Global => Self::Global,
            KeySource::ClientIp(bits) => {
                let clients = environment.clients.clone();
                let clients = match bits {
                    Some(bits) => clients.v6_prefix(*bits),
                    None => clients,
                };
                Self::Client(match missing {
                    Some(missing) => clients.if_missing(missing),
                    None => clients,
                })
            }
            KeySource::Header(name) => {
                Self::Header(HeaderKey::new(name.as_str()).if_missing(or_shared))
            }
            KeySource::Bearer => Self::Bearer(BearerToken::new().if_missing(or_shared)),
            #[cfg(feature = "axum")]
            KeySource::MatchedPath => {
                Self::Route(crate::key::MatchedPath::new().if_missing(or_shared))
            }
            #[cfg(not(feature = "axum"))]
            KeySource::MatchedPath => {
                return Err("matched_path needs the feature `axum` of tower-throttle".to_owned());
            }
            KeySource::Extension(name) => {
                let Some(find) = environment.extensions.get(name) else {
                    let names = environment.extensions.keys().map(String::as_str);
                    let names: Vec<_> = names.collect();
                    let near = did_you_mean(name, names.iter().copied());
                    let known = names.join(", ");
                    return Err(format!(
                        "the program has no extension {name:?}{near}; it has: {known}"
                    ));
                };
                Self::Extension(name.clone(), Arc::clone(find), missing)
            }
        })
    }

    fn extract<B>(&self, request: &Request<B>) -> Extracted<Part> {
        match self {
            Self::Global => Extracted::Key(Part::Shared),
            Self::Client(clients) => clients.extract(request).map(Part::Client),
            Self::Header(keys) => keys.extract(request).map(Part::Text),
            Self::Bearer(keys) => keys.extract(request).map(Part::Text),
            #[cfg(feature = "axum")]
            Self::Route(routes) => routes
                .extract(request)
                .map(|route| route.path().map_or(Part::Shared, Part::text)),
            Self::Extension(name, find, missing) => resolve(
                find(request.extensions()).map(Part::text),
                *missing,
                Part::Shared,
                &Absent::ByOperator(
                    &format_args!("the {name} of the request is not known"),
                    &format_args!(
                        "tower-throttle: no layer around this limit has put the extension {name} into the \
                         request. If some requests have none, add `missing` to the limit"
                    ),
                ),
            ),
        }
    }
}

impl<B> KeyExtractor<Request<B>> for PolicyKeys {
    type Key = PolicyKey;

    fn extract(&self, request: &Request<B>) -> Extracted<PolicyKey> {
        let mut parts = Vec::with_capacity(self.0.len());
        for source in &self.0 {
            match source.extract(request) {
                Extracted::Key(part) => parts.push(part),
                Extracted::Skip => return Extracted::Skip,
                Extracted::Reject(rejection) => return Extracted::Reject(rejection),
            }
        }
        Extracted::Key(PolicyKey(parts))
    }

    fn unread_proxy_header(&self, request: &Request<B>) -> bool {
        let is_unread = |source: &Source| matches!(source, Source::Client(clients) if clients.unread_proxy_header(request));
        self.0.iter().any(is_unread)
    }
}
