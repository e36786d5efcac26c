//! The address of the client, which only the client's own network can choose.

mod client;
mod forwarded;
mod peer;
mod proxied;

pub(crate) use self::client::BEFORE_V4;
pub use self::{client::Client, peer::PeerAddr};

use std::{
    net::{IpAddr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use http::{Extensions, HeaderMap, Request, header::FORWARDED};

use self::peer::{connect_info, peer};
use self::proxied::{HeaderKind, Proxied, TrustedProxies, X_FORWARDED_FOR};
use super::header::header_name;
use super::missing::{Absent, Missing, assert_unset, resolve};
use super::or::{FindKey, Or};
use crate::error::expect_valid;
use crate::key::{Extracted, KeyExtractor};

/// Counts by the address of the client.
///
/// # Source of the address
/// [`peer`](Self::peer) is the other end of the connection; clients cannot fake it. Behind a proxy,
/// the other end is the proxy for all clients, and the client's address is in a header that the
/// proxy writes. Only you know the header and the proxies, so you declare both. No other header is
/// ever read.
///
/// ```
/// use tower_throttle::ClientIp;
///
/// // Without a proxy:
/// ClientIp::peer();
/// // Behind proxies with addresses in these networks:
/// ClientIp::x_forwarded_for().trusting(["10.0.0.0/8", "fd00::/8"]);
/// // Behind exactly two proxies with any address:
/// ClientIp::x_forwarded_for().hops(2);
/// // Behind a CDN with a header of its own:
/// ClientIp::header("CF-Connecting-IP").trusting(["173.245.48.0/20", "103.21.244.0/22"]);
/// ```
///
/// # Behind a proxy
/// If requests arrive with `X-Forwarded-For` or `Forwarded` while the source is
/// [`peer`](Self::peer), the application is probably behind a proxy, and all clients share the
/// limit of the proxy. Declare the proxy:
///
/// | the request comes through | write |
/// |---|---|
/// | nginx, `HAProxy`, Caddy, Envoy or Traefik in your network | `x_forwarded_for().trusting(["10.0.0.0/8"])`, with its network |
/// | an ingress controller of Kubernetes | the same, with the network of the pods |
/// | a load balancer of AWS, or the router of Heroku | `x_forwarded_for().hops(1)` |
/// | an Application Load Balancer of Google Cloud, which appends its own address too | `x_forwarded_for().hops(2)` |
/// | Cloudflare | `header("CF-Connecting-IP").trusting([..])`, with its published networks |
/// | Fly.io | `header("Fly-Client-IP").hops(1)` |
/// | a CDN, then your own proxy | `x_forwarded_for().trusting([..])`, with the networks of both |
///
/// `trusting` is the safer choice if you know the networks: a request that bypasses the proxies is
/// then counted by its own address.
///
/// # Lists of addresses
/// A list is read from the right, over all lines of the header: the proxy nearest to you wrote the
/// last element. With [`trusting`](Forwarded::trusting), the client is the first address that is
/// not a trusted proxy. With [`hops`](Forwarded::hops), it is the n-th address. Everything to the
/// left of it was sent by the client and is not read. An invalid element ends the list, so the
/// request counts against the proxy that forwarded the invalid element.
///
/// # One client
/// One client is an IPv4 address, or the /64 network of an IPv6 address. That is the smallest
/// network that a customer gets, and one machine can take a new address from it for each request.
/// [`v6_prefix`](Self::v6_prefix) sets another prefix. IPv4 addresses written as IPv6
/// (`::ffff:192.0.2.1`, and the translated `64:ff9b::192.0.2.1`) are the IPv4 addresses.
///
/// # Requests without an address
/// A request without an address is rejected with status 500 and a text that names the remedy. In
/// axum, enable the feature `axum` of this crate and serve
/// `app.into_make_service_with_connect_info::<SocketAddr>()`; in tonic, enable the feature `tonic`.
/// Connections over a Unix socket have no address. [`if_missing`](Self::if_missing) sets something
/// else, such as one limit for all requests without an address.
#[derive(Clone, Debug)]
pub struct ClientIp {
    source: AddressSource,
    v6: u8,
    missing: Option<Missing>,
}

#[derive(Clone, Debug)]
enum AddressSource {
    Peer,
    /// A trait object: a program that never asks for a header has no code to read it.
    Header(Arc<Proxied>),
}

/// A header with the client's address; not a key extractor until the trusted proxies are declared.
#[derive(Clone, Debug)]
#[must_use = "say which proxies are trusted: `.trusting([..])` or `.hops(n)`"]
pub struct Forwarded(HeaderKind);

impl ClientIp {
    /// The other end of the connection.
    pub const fn peer() -> Self {
        Self::from_source(AddressSource::Peer)
    }

    /// The address in `X-Forwarded-For`, as written by trusted proxies.
    pub const fn x_forwarded_for() -> Forwarded {
        Forwarded(HeaderKind::XForwardedFor)
    }

    /// The address in `Forwarded` (RFC 7239), as written by trusted proxies.
    pub const fn forwarded() -> Forwarded {
        Forwarded(HeaderKind::Forwarded)
    }

    /// The address in a header with one address, such as `X-Real-IP`, `CF-Connecting-IP`,
    /// `True-Client-IP` or `Fly-Client-IP`.
    ///
    /// A request with two such headers, or with an invalid address, counts against the proxy.
    ///
    /// # Panics
    /// If `name` is not the name of a header, or is that of a header with a list.
    #[track_caller]
    pub fn header(name: &str) -> Forwarded {
        let name = header_name("ClientIp::header", name);
        assert!(
            name != X_FORWARDED_FOR && name != FORWARDED,
            "ClientIp::header: \"{name}\" is not allowed; it holds a list: give \
             ClientIp::x_forwarded_for() or ClientIp::forwarded()"
        );
        Forwarded(HeaderKind::Single(name))
    }

    fn proxied(header: HeaderKind, proxies: TrustedProxies) -> Self {
        let source = Arc::new(Proxied { header, proxies });
        Self::from_source(AddressSource::Header(source))
    }

    const fn from_source(source: AddressSource) -> Self {
        Self {
            source,
            v6: 64,
            missing: None,
        }
    }

    /// The number of leading bits of an IPv6 address that make one client; 64 by default.
    ///
    /// Providers give customers a /64, a /56 or a /48.
    ///
    /// # Panics
    /// If `bits` is 0 or above 128.
    #[must_use]
    #[track_caller]
    pub fn v6_prefix(mut self, bits: u8) -> Self {
        assert!(
            (1..=128).contains(&bits),
            "v6_prefix: {bits} is not allowed; give a number from 1 to 128"
        );
        self.v6 = bits;
        self
    }

    /// What happens to requests without an address; by default they are rejected with status 500.
    ///
    /// ```
    /// use tower_throttle::{ClientIp, key::Missing};
    ///
    /// // Connections over a Unix socket share one limit:
    /// let clients = ClientIp::x_forwarded_for().hops(1).if_missing(Missing::Shared);
    /// ```
    #[must_use]
    pub const fn if_missing(mut self, missing: Missing) -> Self {
        self.missing = Some(missing);
        self
    }

    /// Counts a request without an address by `other`; see
    /// [`HeaderKey::or`](crate::HeaderKey::or).
    ///
    /// # Panics
    /// If [`if_missing`](Self::if_missing) is set.
    #[track_caller]
    pub fn or<B>(self, other: B) -> Or<Self, B> {
        assert_unset(self.missing);
        Or::new(self, other)
    }

    /// The key of the client at `address`, for a [`Handle`](crate::Handle).
    ///
    /// It depends on [`v6_prefix`](Self::v6_prefix).
    ///
    /// ```
    /// use tower_throttle::ClientIp;
    ///
    /// let clients = ClientIp::peer();
    /// let first = clients.key("2001:db8::1".parse().unwrap());
    /// let second = clients.key("2001:db8::ffff".parse().unwrap());
    /// assert_eq!(first, second);
    /// assert_eq!(first.to_string(), "2001:db8::/64");
    /// ```
    pub fn key(&self, address: IpAddr) -> Client {
        match address {
            IpAddr::V4(address) => Client::from_v4(address, 32),
            IpAddr::V6(address) => self.key_of_v6(address),
        }
    }

    fn key_of_v6(&self, address: Ipv6Addr) -> Client {
        Client::containing(canonical(address.into()), 32, self.v6)
    }

    /// The client's address, given the address of the peer and the headers.
    ///
    /// ```
    /// use http::HeaderMap;
    /// use tower_throttle::ClientIp;
    ///
    /// let clients = ClientIp::x_forwarded_for().trusting(["10.0.0.0/8"]);
    /// let mut headers = HeaderMap::new();
    /// headers.insert("x-forwarded-for", "6.6.6.6, 192.0.2.1, 10.0.0.2".parse().unwrap());
    ///
    /// let proxy = "10.0.0.1".parse().ok();
    /// assert_eq!(clients.address(proxy, &headers), "192.0.2.1".parse().ok());
    /// let untrusted = "203.0.113.9".parse().ok();
    /// assert_eq!(clients.address(untrusted, &headers), untrusted);
    /// ```
    pub fn address(&self, peer: Option<IpAddr>, headers: &HeaderMap) -> Option<IpAddr> {
        let peer = peer.map(canonical);
        match &self.source {
            AddressSource::Peer => peer,
            AddressSource::Header(header) => header.address(peer, headers),
        }
    }
}

impl Forwarded {
    /// Trusts proxies in these networks: `10.0.0.0/8`, `fd00::/8`, or a single address. A text from outside of the
    /// program can be parsed as [`Networks`](crate::key::Networks) first, whose errors are the same.
    ///
    /// # Panics
    /// If one of them is not a network, has host bits (`10.0.0.1/8`), contains all addresses
    /// (`0.0.0.0/0`), or is a mapped network (`::ffff:10.0.0.0/8`) with far more addresses than its
    /// text suggests.
    ///
    /// ```should_panic
    /// # use tower_throttle::ClientIp;
    /// ClientIp::forwarded().trusting(["10.0.0.1/8"]); // 10.0.0.0/8 for the network, 10.0.0.1 for the address
    /// ```
    #[track_caller]
    pub fn trusting(self, networks: impl IntoIterator<Item: AsRef<str>>) -> ClientIp {
        let parse = |text: &str| Client::parse("trusting", text, text, SOME_PROXIES);
        let networks = networks.into_iter().map(|network| parse(network.as_ref()));
        let proxies = TrustedProxies::Networks(expect_valid(networks.collect()));
        ClientIp::proxied(self.0, proxies)
    }

    /// Trusts the `hops` nearest proxies, whatever their addresses.
    ///
    /// It is safe only if no request can reach the server without passing these proxies: such a
    /// request would choose its own address. A header with one address has one hop.
    ///
    /// # Panics
    /// If `hops` is 0, or above 1 for a header with one address.
    #[track_caller]
    pub fn hops(self, hops: usize) -> ClientIp {
        let single = matches!(self.0, HeaderKind::Single(_));
        assert!(
            hops == 1 || (hops > 1 && !single),
            "hops: {hops} is not allowed; give the number of proxies, or 1 for a header with one address"
        );
        ClientIp::proxied(self.0, TrustedProxies::Hops(hops))
    }
}

/// The IPv4 address of one that is mapped or translated into IPv6.
pub(super) fn canonical(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) if v6.segments()[..6] == [0x64, 0xff9b, 0, 0, 0, 0] => {
            let [.., a, b, c, d] = v6.octets();
            IpAddr::from([a, b, c, d])
        }
        address => address,
    }
}

const SOME_PROXIES: &str = "the networks of your proxies, such as 10.0.0.0/8: this one contains every \
                            client, so that clients choose their own address; if no client can reach \
                            the server directly, give .hops(n)";

impl<B> KeyExtractor<Request<B>> for ClientIp {
    type Key = Client;

    #[expect(
        clippy::inline_always,
        reason = "without it the key is written as three words and read as larger ones, which waits for the stores: an admitted request of a layer takes 35 ns, not 26"
    )]
    #[inline(always)]
    fn extract(&self, request: &Request<B>) -> Extracted<Client> {
        // The path of most requests, kept short.
        if let (AddressSource::Peer, Some(peer)) =
            (&self.source, connect_info(request.extensions()))
        {
            return match peer {
                SocketAddr::V4(peer) => Extracted::Key(Client::from_v4(*peer.ip(), 32)),
                SocketAddr::V6(peer) => Extracted::Key(self.key_of_v6(*peer.ip())),
            };
        }
        // If this result were returned as it comes, both would be returned through memory.
        let slow = self.extract_slow(request.extensions(), request.headers());
        slow.map(|client| client)
    }

    fn unread_proxy_header(&self, request: &Request<B>) -> bool {
        let headers = request.headers();
        matches!(self.source, AddressSource::Peer)
            && (headers.contains_key(X_FORWARDED_FOR) || headers.contains_key(FORWARDED))
    }
}

impl<B> FindKey<Request<B>> for ClientIp {
    fn find(&self, request: &Request<B>) -> Option<Client> {
        let address = self.address_of(request.extensions(), request.headers())?;
        Some(self.key(address))
    }
}

/// The text for a server that does not pass on peer addresses. It names the remedy, because the
/// first request to such a server is usually sent by the developer.
const NO_PEER_ADDRESS: &str = "tower-throttle: the server does not pass on the address of the client. \
     axum: enable the feature `axum` of tower-throttle and serve \
     `app.into_make_service_with_connect_info::<SocketAddr>()`. \
     tonic: enable the feature `tonic`. \
     Other servers: insert a `tower_throttle::key::PeerAddr` into the extensions of each request. \
     To let all such requests share one limit, add `.if_missing(Missing::Shared)`. \
     See https://docs.rs/tower-throttle/latest/tower_throttle/guide/proxies/index.html#no-address";

impl ClientIp {
    fn extract_slow(&self, extensions: &Extensions, headers: &HeaderMap) -> Extracted<Client> {
        let address = self.address_of(extensions, headers);
        let found = address.map(|address| self.key(address));
        let text = "the address of the client is not known";
        let absent = Absent::ByOperator(&text, &NO_PEER_ADDRESS);
        resolve(found, self.missing, Client::UNKNOWN, &absent)
    }

    /// The client's address in a request.
    pub(super) fn address_of(
        &self,
        extensions: &Extensions,
        headers: &HeaderMap,
    ) -> Option<IpAddr> {
        self.address(peer(extensions), headers)
    }
}

/// Never implemented: it makes [`Forwarded`] a key extractor that lacks the trusted proxies.
///
/// Without the implementation below, the compiler says that a closure is expected, because closures
/// are the only other candidate. With it, the compiler prints the message of [`KeyExtractor`].
pub(crate) trait ProxiesAreTrusted<B> {}

impl<B> KeyExtractor<Request<B>> for Forwarded
where
    Self: ProxiesAreTrusted<B>,
{
    type Key = Client;

    fn extract(&self, _: &Request<B>) -> Extracted<Client> {
        Extracted::Skip
    }
}
