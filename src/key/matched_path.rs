//! The route that a request matched.

use std::hash::{Hash, Hasher};

use axum::extract;
use http::Request;

use super::missing::Missing;
use crate::key::{Extracted, Key, KeyExtractor};

/// Counts by the route that the request matched in axum, as it was written: `/users/{id}`.
///
/// That is better than the path itself, of which there are as many as clients like to make up.
/// With an address it limits each client on each route: `(ClientIp::peer(), MatchedPath::new())`.
///
/// ```
/// use axum::{Router, routing::get};
/// use tower_throttle::{ClientIp, Quota, RateLimitLayer, TokenBucket, key::MatchedPath};
///
/// let each = (ClientIp::peer(), MatchedPath::new());
/// let app: Router = Router::new()
///     .route("/users/{id}", get(|| async {}))
///     .layer(RateLimitLayer::new(each, TokenBucket::new(Quota::per_second(10))));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct MatchedPath {
    missing: Missing,
}

impl MatchedPath {
    /// Counts by the route.
    pub const fn new() -> Self {
        Self {
            missing: Missing::Shared,
        }
    }

    /// What becomes of requests that matched no route.
    #[must_use]
    pub const fn if_missing(mut self, missing: Missing) -> Self {
        self.missing = missing;
        self
    }
}

/// A route, or that there was none.
#[derive(Clone, Debug)]
pub struct Route(Option<extract::MatchedPath>);

impl Hash for Route {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let path = self.0.as_ref();
        path.map(extract::MatchedPath::as_str).hash(state);
    }
}

impl Key for Route {}

impl<B> KeyExtractor<Request<B>> for MatchedPath {
    type Key = Route;

    fn extract(&self, request: &Request<B>) -> Extracted<Route> {
        let found = request.extensions().get().cloned();
        self.missing.or(
            found.map(|path| Route(Some(path))),
            Route(None),
            "the request matched no route",
        )
    }
}
