//! The route that a request matched in axum.

use std::{
    hash::{Hash, Hasher},
    sync::{Arc, atomic::AtomicBool},
};

use axum::extract;
use http::Request;

use super::missing::{Absent, Missing, assert_unset, resolve};
use super::or::{FindKey, Or};
use crate::key::{Extracted, Key, KeyExtractor, KeyType};

/// Counts by the route that the request matched in axum, as it was declared: `/users/{id}`.
///
/// Prefer it to the path itself: clients can invent any number of paths. With an address it limits
/// each client on each route: `(ClientIp::peer(), MatchedPath::new())`. Requests that matched no
/// route share one limit unless [`if_missing`](Self::if_missing) or [`or`](Self::or) is set.
///
/// ```
/// use axum::{Router, routing::get};
/// use tower_throttle::{ClientIp, Quota, RateLimitLayer, TokenBucket, key::MatchedPath};
///
/// let per_client_and_route = (ClientIp::peer(), MatchedPath::new());
/// let app: Router = Router::new()
///     .route("/users/{id}", get(|| async {}))
///     .layer(RateLimitLayer::new(per_client_and_route, TokenBucket::new(Quota::per_second(10))));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct MatchedPath {
    missing: Option<Missing>,
}

impl MatchedPath {
    /// Counts by the route.
    pub const fn new() -> Self {
        Self { missing: None }
    }

    /// What happens to requests that matched no route.
    #[must_use]
    pub const fn if_missing(mut self, missing: Missing) -> Self {
        self.missing = Some(missing);
        self
    }

    /// Counts a request that matched no route by `other`; see
    /// [`HeaderKey::or`](crate::HeaderKey::or).
    ///
    /// # Panics
    /// If [`if_missing`](Self::if_missing) is set.
    #[track_caller]
    pub const fn or<B>(self, other: B) -> Or<Self, B> {
        assert_unset(self.missing);
        Or::new(self, other)
    }

    /// The key of requests that matched this route, for a [`Handle`](crate::Handle).
    ///
    /// ```
    /// use tower_throttle::key::MatchedPath;
    ///
    /// assert_eq!(MatchedPath::key("/users/{id}").path(), Some("/users/{id}"));
    /// ```
    pub fn key(path: &str) -> Route {
        Route(RoutePath::Given(path.into()))
    }
}

/// The key that [`MatchedPath`] finds.
#[derive(Clone, Debug)]
pub struct Route(RoutePath);

#[derive(Clone, Debug)]
enum RoutePath {
    /// The request matched no route.
    Missing,
    Matched(extract::MatchedPath),
    /// A route that the user gave.
    Given(Arc<str>),
}

impl Route {
    /// The route as it was declared, or `None` for requests that matched no route.
    pub fn path(&self) -> Option<&str> {
        match &self.0 {
            RoutePath::Missing => None,
            RoutePath::Matched(path) => Some(path.as_str()),
            RoutePath::Given(path) => Some(path),
        }
    }
}

impl Hash for Route {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.path().hash(state);
    }
}

impl Key for Route {}

impl<B> FindKey<Request<B>> for MatchedPath {
    fn find(&self, request: &Request<B>) -> Option<Route> {
        let path = request.extensions().get::<extract::MatchedPath>()?;
        Some(Route(RoutePath::Matched(path.clone())))
    }
}

impl<B> KeyExtractor<Request<B>> for MatchedPath {
    type Key = Route;

    fn extract(&self, request: &Request<B>) -> Extracted<Route> {
        static LOGGED: AtomicBool = AtomicBool::new(false);

        let absent = Absent::ByClient(&"the request matched no route", &LOGGED);
        let shared = Route(RoutePath::Missing);
        resolve(self.find(request), self.missing, shared, &absent)
    }
}

impl KeyType<()> for MatchedPath {
    type Key = Route;
}
