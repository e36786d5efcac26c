//! Finds the key of a request under a limit of a file.

use std::sync::Arc;

use http::Request;

use super::environment::{Environment, FindExtension};
use super::key::{KeyPart, PolicyKey};
use crate::key::{
    Absent, ClientIp, Either, Extracted, HeaderKey, KeyExtractor, Missing, Secret, resolve,
};
use crate::policy::file::{FileLimit, KeySource, not_defined};

/// Finds the [`PolicyKey`] of a request: one part per source.
pub(super) struct PolicyKeys(Vec<KeyFinder>);

/// How one part is found.
enum KeyFinder {
    Global,
    Client(ClientIp),
    Header(HeaderKey),
    #[cfg(feature = "axum")]
    Route(crate::key::MatchedPath),
    Extension(String, FindExtension, Option<Missing>),
}

impl PolicyKeys {
    /// The keys of a limit; the error is about its field `key`.
    pub(super) fn of(limit: &FileLimit, environment: &Environment) -> Result<Self, String> {
        let missing = limit.missing.map(Missing::from);
        let or_shared = missing.unwrap_or(Missing::Shared);
        let sources = limit.keys.iter().map(|source| match source {
            KeySource::Global => Ok(KeyFinder::Global),
            KeySource::ClientIp(bits) => {
                let clients = environment.clients.clone();
                let clients = bits.map_or(clients.clone(), |bits| clients.v6_prefix(bits));
                Ok(KeyFinder::Client(match missing {
                    Some(missing) => clients.if_missing(missing),
                    None => clients,
                }))
            }
            KeySource::Header(name) => {
                let keys = HeaderKey::new(name.as_str());
                Ok(KeyFinder::Header(keys.if_missing(or_shared)))
            }
            KeySource::Bearer => Ok(KeyFinder::Header(HeaderKey::bearer().if_missing(or_shared))),
            #[cfg(feature = "axum")]
            KeySource::MatchedPath => {
                let routes = crate::key::MatchedPath::new();
                Ok(KeyFinder::Route(routes.if_missing(or_shared)))
            }
            #[cfg(not(feature = "axum"))]
            KeySource::MatchedPath => {
                Err("matched_path needs the feature `axum` of tower-throttle".to_owned())
            }
            KeySource::Extension(name) => {
                let found = environment.extensions.get(name);
                let found =
                    found.map(|find| KeyFinder::Extension(name.clone(), Arc::clone(find), missing));
                let known = environment.extensions.keys();
                found.ok_or_else(|| format!("the extension {}", not_defined(name, known)))
            }
        });
        sources.collect::<Result<_, _>>().map(Self)
    }
}

impl KeyFinder {
    fn extract<B>(&self, request: &Request<B>) -> Extracted<KeyPart> {
        let text = |text: Option<&str>| text.map_or(Secret::MISSING, HeaderKey::key);
        match self {
            Self::Global => Extracted::Key(Either::Right(Secret::MISSING)),
            Self::Client(clients) => clients.extract(request).map(Either::Left),
            Self::Header(keys) => keys.extract(request).map(Either::Right),
            #[cfg(feature = "axum")]
            Self::Route(routes) => {
                let route = routes.extract(request);
                route.map(|route| Either::Right(text(route.path())))
            }
            Self::Extension(name, find, missing) => {
                let found = find(request.extensions());
                resolve(
                    found.map(|found| Either::Right(text(Some(&found)))),
                    *missing,
                    Either::Right(Secret::MISSING),
                    &Absent::ByOperator(
                        &format_args!("the {name} of the request is not known"),
                        &format_args!(
                            "tower-throttle: no layer around this limit has put the extension {name} into the \
                             request. If some requests have none, add `missing` to the limit"
                        ),
                    ),
                )
            }
        }
    }
}

impl PolicyKeys {
    pub(super) fn extract<B>(&self, request: &Request<B>) -> Extracted<PolicyKey> {
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

    pub(super) fn unread_proxy_header<B>(&self, request: &Request<B>) -> bool {
        self.0.iter().any(|source| match source {
            KeyFinder::Client(clients) => clients.unread_proxy_header(request),
            _ => false,
        })
    }
}
