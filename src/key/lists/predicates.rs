//! Conditions for `RateLimitLayer::skip` and `RateLimitLayer::block`.

use http::Request;

use super::networks::Networks;
use super::watched::Watched;
use crate::error::Rejection;
use crate::key::{ClientIp, Extracted, KeyExtractor, Predicate};

/// Requests whose client is in one of the networks; made by [`ClientIp::within`].
#[derive(Clone, Debug)]
pub struct Within {
    clients: ClientIp,
    networks: Watched<Networks>,
}

impl ClientIp {
    /// The requests of clients in `networks`, for [`skip`](crate::RateLimitLayer::skip) and
    /// [`block`](crate::RateLimitLayer::block).
    ///
    /// A request without an address is rejected as by the extractor itself, and is in no network if
    /// [`if_missing`](Self::if_missing) lets it pass. Prefixes that make a [client](Self::v6_prefix) do not
    /// matter here.
    ///
    /// ```
    /// use tower_throttle::key::{Networks, Watched};
    /// use tower_throttle::{ClientIp, Quota, RateLimitLayer, TokenBucket};
    ///
    /// let clients = ClientIp::x_forwarded_for().trusting(["10.0.0.0/8"]);
    /// let offices = Networks::new(["192.0.2.0/24"]);
    /// let blocked = Watched::new(Networks::new(["203.0.113.0/24", "2001:db8:bad::/48"]));
    /// let layer = RateLimitLayer::new(clients.clone(), TokenBucket::new(Quota::per_second(10)))
    ///     .skip(clients.within(offices))
    ///     .block(clients.within(&blocked));
    /// # let app: axum::Router = axum::Router::new()
    /// #     .route("/", axum::routing::get(|| async {})).layer(layer);
    ///
    /// // Later, while requests are served:
    /// blocked.set("203.0.113.0/24\n198.51.100.0/24".parse()?);
    /// # Ok::<(), tower_throttle::ConfigError>(())
    /// ```
    pub fn within(&self, networks: impl Into<Watched<Networks>>) -> Within {
        Within {
            clients: self.clone(),
            networks: networks.into(),
        }
    }
}

impl<B> Predicate<Request<B>> for Within {
    fn matches(&self, request: &Request<B>) -> Result<bool, Rejection> {
        let clients = &self.clients;
        match clients.address_of(request.extensions(), request.headers()) {
            Some(address) => Ok(self.networks.read(|networks| networks.contains(address))),
            None => match clients.extract(request) {
                Extracted::Reject(rejection) => Err(rejection),
                Extracted::Key(_) | Extracted::Skip => Ok(false),
            },
        }
    }
}
