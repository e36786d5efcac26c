//! Finds the key of a request under a limit of a file.

use std::{fmt, sync::Arc};

use http::Request;

use super::environment::{Environment, FindExtension};
use super::key::{Part, Parts, PolicyKey};
use crate::key::{
    Absent, BearerToken, ClientIp, Extracted, HeaderKey, KeyExtractor, Missing, resolve,
};
use crate::policy::{
    file::{KeySource, Limit},
    parse::did_you_mean,
};

/// Finds the [`PolicyKey`] of a request.
#[derive(Clone)]
pub(super) struct PolicyKeys {
    sources: Arc<[Source]>,
}

/// How one part is found.
enum Source {
    Global,
    Client(ClientIp),
    Header(HeaderKey),
    Bearer(BearerToken),
    #[cfg(feature = "axum")]
    Route(crate::key::MatchedPath),
    Extension {
        name: String,
        find: FindExtension,
        missing: Option<Missing>,
    },
}

impl PolicyKeys {
    /// The keys of a limit; the error is about its field `key`.
    pub(super) fn of(limit: &Limit, environment: &Environment) -> Result<Self, String> {
        let sources = limit.keys.iter();
        let sources =
            sources.map(|source| Source::of(source, limit.missing.map(Missing::from), environment));
        Ok(Self {
            sources: sources.collect::<Result<_, _>>()?,
        })
    }

    pub(super) fn is_global(&self) -> bool {
        matches!(&*self.sources, [Source::Global])
    }
}

impl Source {
    fn of(
        source: &KeySource,
        missing: Option<Missing>,
        environment: &Environment,
    ) -> Result<Self, String> {
        Ok(match source {
            KeySource::Global => Self::Global,
            KeySource::ClientIp(bits) => {
                let mut clients = environment.clients.clone();
                if let Some(bits) = bits {
                    clients = clients.v6_prefix(*bits);
                }
                if let Some(missing) = missing {
                    clients = clients.if_missing(missing);
                }
                Self::Client(clients)
            }
            KeySource::Header(name) => {
                let keys = HeaderKey::new(name.as_str());
                Self::Header(keys.if_missing(missing.unwrap_or(Missing::Shared)))
            }
            KeySource::Bearer => {
                let keys = BearerToken::new();
                Self::Bearer(keys.if_missing(missing.unwrap_or(Missing::Shared)))
            }
            KeySource::MatchedPath => matched_path(missing)?,
            KeySource::Extension(name) => {
                let Some(find) = environment.extensions.get(name) else {
                    let names = || environment.extensions.keys().map(String::as_str);
                    let near = did_you_mean(name, names());
                    let known = names().collect::<Vec<_>>().join(", ");
                    return Err(format!(
                        "the program has no extension {name:?}{near}; it has: {known}"
                    ));
                };
                Self::Extension {
                    name: name.clone(),
                    find: Arc::clone(find),
                    missing,
                }
            }
        })
    }

    fn extract<B>(&self, request: &Request<B>) -> Extracted<Part> {
        match self {
            Self::Global => Extracted::Key(Part::Global),
            Self::Client(clients) => clients.extract(request).map(Part::Client),
            Self::Header(keys) => keys.extract(request).map(Part::Secret),
            Self::Bearer(keys) => keys.extract(request).map(Part::Secret),
            #[cfg(feature = "axum")]
            Self::Route(routes) => routes.extract(request).map(Part::Route),
            Self::Extension {
                name,
                find,
                missing,
            } => {
                let text = find(request.extensions());
                resolve(
                    text.map(|text| Part::Text(Some(text.into()))),
                    *missing,
                    Part::Text(None),
                    &Absent::ByOperator(
                        &format_args!("the {name} of the request is not known"),
                        &format_args!(
                            "tower-throttle: no layer around this limit has put the extension {name} into \
                             the request. If some requests have none, add `missing` to the limit"
                        ),
                    ),
                )
            }
        }
    }
}

#[cfg(feature = "axum")]
#[expect(
    clippy::unnecessary_wraps,
    reason = "it fails without the feature `axum`"
)]
fn matched_path(missing: Option<Missing>) -> Result<Source, String> {
    let routes = crate::key::MatchedPath::new();
    let missing = missing.unwrap_or(Missing::Shared);
    Ok(Source::Route(routes.if_missing(missing)))
}

#[cfg(not(feature = "axum"))]
fn matched_path(_: Option<Missing>) -> Result<Source, String> {
    Err("matched_path needs the feature `axum` of tower-throttle".to_owned())
}

impl<B> KeyExtractor<Request<B>> for PolicyKeys {
    type Key = PolicyKey;

    fn extract(&self, request: &Request<B>) -> Extracted<PolicyKey> {
        if let [source] = &*self.sources {
            return source
                .extract(request)
                .map(|part| PolicyKey(Parts::One(part)));
        }
        let mut parts = Vec::with_capacity(self.sources.len());
        for source in &*self.sources {
            match source.extract(request) {
                Extracted::Key(part) => parts.push(part),
                Extracted::Skip => return Extracted::Skip,
                Extracted::Reject(rejection) => return Extracted::Reject(rejection),
            }
        }
        Extracted::Key(PolicyKey(Parts::Many(parts.into())))
    }

    fn unread_proxy_header(&self, request: &Request<B>) -> bool {
        let is_unread = |source: &Source| match source {
            Source::Client(clients) => clients.unread_proxy_header(request),
            _ => false,
        };
        self.sources.iter().any(is_unread)
    }
}

/// Manual impl: closures are not `Debug`.
impl fmt::Debug for PolicyKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicyKeys")
            .field("parts", &self.sources.len())
            .finish_non_exhaustive()
    }
}
