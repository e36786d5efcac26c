//! The address of the client, which nobody but the client's own network can choose.

mod forwarded;
mod network;
mod peer;

pub use self::{network::Client, peer::PeerAddr};

use std::{
    net::{IpAddr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use http::{Extensions, HeaderMap, HeaderName, Request, header::FORWARDED};

use self::forwarded::{ReverseElements, Separator, address, parse_forwarded_for};
use self::network::Network;
use self::peer::{known, peer};
use super::missing::Missing;
use crate::error::ConfigError;
use crate::key::{Extracted, KeyExtractor};

/// Counts by the address of the client.
///
/// # Where the address comes from
/// [`peer`](Self::peer) takes the other end of the connection; nobody can fake it. Behind a proxy
/// that is the proxy, for all clients, and the client's address is in a header that the proxy
/// writes. Which header that is, and which proxies are believed, only you can know: both are
/// declared, and no other header is ever read.
///
/// ```
/// use tower_throttle::ClientIp;
///
/// // Not behind a proxy:
/// ClientIp::peer();
/// // Behind proxies with addresses in these networks:
/// ClientIp::x_forwarded_for().trusting(["10.0.0.0/8", "fd00::/8"]);
/// // Behind exactly two proxies, wherever they are:
/// ClientIp::x_forwarded_for().hops(2);
/// // Behind a CDN that sets a header of its own:
/// ClientIp::header("cf-connecting-ip").trusting(["173.245.48.0/20", "103.21.244.0/22"]);
/// ```
///
/// # How a list is read
/// From the right, over all lines of the header: the last element was written by the proxy nearest
/// to you. With [`trusting`](Forwarded::trusting) the first address that is no trusted proxy is
/// the client; with [`hops`](Forwarded::hops) it is the n-th. What stands to the left of it was
/// sent by the client and is not looked at. An element that is no address ends the reading at the
/// address before it, so garbage is counted against the proxy that let it through.
///
/// # What counts as one client
/// An IPv4 address, and for IPv6 the /64 around the address: the smallest network that a customer
/// gets, out of which a single machine may take a new address for each request. Another prefix is
/// set with [`v6_prefix`](Self::v6_prefix). IPv4 addresses written as IPv6 (`::ffff:192.0.2.1`,
/// and `64:ff9b::192.0.2.1` of translators) are the IPv4 addresses they stand for.
///
/// # Where there is no address
/// As over a Unix socket, or in a server that does not tell: axum needs
/// `into_make_service_with_connect_info::<SocketAddr>()`, and this crate its feature `axum`. Such
/// requests are counted together, unless [`if_missing`](Self::if_missing) says otherwise.
#[derive(Clone, Debug)]
pub struct ClientIp {
    source: AddressSource,
    v4: u8,
    v6: u8,
    missing: Missing,
}

#[derive(Clone, Debug)]
enum AddressSource {
    Peer,
    HeaderKind(HeaderKind, TrustedProxies),
}

/// A header that proxies write the client's address into, of no use until some are trusted.
#[derive(Clone, Debug)]
#[must_use = "say which proxies are believed: `trusting` or `hops`"]
pub struct Forwarded(HeaderKind);

#[derive(Clone, Debug)]
enum HeaderKind {
    /// A list, to which each proxy adds the address that it was asked by.
    XForwardedFor,
    /// The same in the form of RFC 7239.
    Forwarded,
    /// One address.
    Single(HeaderName),
}

#[derive(Clone, Debug)]
enum TrustedProxies {
    Networks(Arc<[Network]>),
    /// At least 1.
    Hops(usize),
}

impl ClientIp {
    /// The other end of the connection.
    pub const fn peer() -> Self {
        Self::from(AddressSource::Peer)
    }

    /// What trusted proxies wrote into `X-Forwarded-For`.
    pub const fn x_forwarded_for() -> Forwarded {
        Forwarded(HeaderKind::XForwardedFor)
    }

    /// What trusted proxies wrote into `Forwarded` (RFC 7239).
    pub const fn forwarded() -> Forwarded {
        Forwarded(HeaderKind::Forwarded)
    }

    /// What a trusted proxy wrote into a header that holds one address, such as `x-real-ip`,
    /// `cf-connecting-ip`, `true-client-ip` or `fly-client-ip`. A request in which it stands twice,
    /// or is no address, is counted against the proxy.
    ///
    /// # Panics
    /// If `name` is not the name of a header in lower case, or that of a list.
    #[track_caller]
    pub fn header(name: &'static str) -> Forwarded {
        assert!(
            name != "x-forwarded-for" && name != "forwarded",
            "header: {name:?} holds a list; give ClientIp::x_forwarded_for() or ::forwarded()"
        );
        Forwarded(HeaderKind::Single(HeaderName::from_static(name)))
    }

    const fn from(source: AddressSource) -> Self {
        Self {
            source,
            v4: 32,
            v6: 64,
            missing: Missing::Shared,
        }
    }

    /// How many leading bits of an IPv6 address make a client; 64 until it is set. Providers give
    /// homes a /56 or a /64, businesses a /48.
    ///
    /// # Panics
    /// If it is 0 or above 128.
    #[must_use]
    #[track_caller]
    pub const fn v6_prefix(mut self, bits: u8) -> Self {
        assert!(
            bits != 0 && bits <= 128,
            "v6_prefix: out of range; give 1 to 128"
        );
        self.v6 = bits;
        self
    }

    /// How many leading bits of an IPv4 address make a client; 32 until it is set.
    ///
    /// # Panics
    /// If it is 0 or above 32.
    #[must_use]
    #[track_caller]
    pub const fn v4_prefix(mut self, bits: u8) -> Self {
        assert!(
            bits != 0 && bits <= 32,
            "v4_prefix: out of range; give 1 to 32"
        );
        self.v4 = bits;
        self
    }

    /// What becomes of requests whose client is not known.
    #[must_use]
    pub const fn if_missing(mut self, missing: Missing) -> Self {
        self.missing = missing;
        self
    }

    /// The key of the client at `address`, to look at or reset it through a handle.
    ///
    /// ```
    /// use tower_throttle::ClientIp;
    ///
    /// let clients = ClientIp::peer();
    /// let here = clients.client("2001:db8::1".parse().unwrap());
    /// let there = clients.client("2001:db8::ffff".parse().unwrap());
    /// assert_eq!(here, there);
    /// assert_eq!(here.to_string(), "2001:db8::/64");
    /// ```
    pub fn client(&self, address: IpAddr) -> Client {
        match address {
            IpAddr::V4(address) => Client::v4(address, self.v4),
            IpAddr::V6(address) => self.client_v6(address),
        }
    }

    fn client_v6(&self, address: Ipv6Addr) -> Client {
        let address = match address.to_canonical() {
            IpAddr::V6(v6) if v6.segments()[..6] == [0x64, 0xff9b, 0, 0, 0, 0] => {
                let [.., a, b, c, d] = v6.octets();
                IpAddr::from([a, b, c, d])
            }
            address => address,
        };
        Client::around(address, self.v4, self.v6)
    }

    /// The client's address, given the other end of the connection and the headers.
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
    /// let stranger = "203.0.113.9".parse().ok();
    /// assert_eq!(clients.address(stranger, &headers), stranger, "is not believed");
    /// ```
    pub fn address(&self, peer: Option<IpAddr>, headers: &HeaderMap) -> Option<IpAddr> {
        let peer = peer.map(|address| address.to_canonical());
        match &self.source {
            AddressSource::Peer => peer,
            AddressSource::HeaderKind(header, TrustedProxies::Networks(networks)) => {
                let trusted = |at: IpAddr| networks.iter().any(|network| network.contains(at));
                let mut client = peer?;
                let mut told = header.addresses(headers);
                while trusted(client) {
                    match told.next() {
                        Some(Some(address)) => client = address,
                        _ => break,
                    }
                }
                Some(client)
            }
            AddressSource::HeaderKind(header, TrustedProxies::Hops(hops)) => {
                let nth = header.addresses(headers).nth(hops - 1);
                nth.flatten().or(peer)
            }
        }
    }
}

impl Forwarded {
    /// Believes proxies in these networks: `10.0.0.0/8`, `fd00::/8`, or an address alone.
    ///
    /// # Panics
    /// If one of them is no network; [`try_trusting`](Self::try_trusting) answers with an error
    /// instead.
    #[track_caller]
    pub fn trusting(self, networks: impl IntoIterator<Item: AsRef<str>>) -> ClientIp {
        self.try_trusting(networks)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// As [`trusting`](Self::trusting), for networks that come from elsewhere.
    ///
    /// # Errors
    /// If one of them is no network, or a mapped one (`::ffff:10.0.0.0/8`) that would hold far
    /// more than it seems to.
    ///
    /// ```
    /// use tower_throttle::ClientIp;
    ///
    /// let error = ClientIp::forwarded().try_trusting(["::ffff:10.0.0.0/8"]).unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "trusting: ::ffff:10.0.0.0/8 is not allowed; \
    ///      give a prefix of 96 or more for IPv4 addresses mapped into IPv6"
    /// );
    /// ```
    pub fn try_trusting(
        self,
        networks: impl IntoIterator<Item: AsRef<str>>,
    ) -> Result<ClientIp, ConfigError> {
        let networks = networks.into_iter();
        let networks = networks.map(|network| Network::parse(network.as_ref()));
        let networks = networks.collect::<Result<_, _>>()?;
        Ok(ClientIp::from(AddressSource::HeaderKind(
            self.0,
            TrustedProxies::Networks(networks),
        )))
    }

    /// Believes the `hops` nearest proxies, wherever they are. Only safe where no request can come
    /// in past them: one that did would choose its address itself.
    ///
    /// A header that holds one address is believed as it is; for it only 1 makes sense.
    ///
    /// # Panics
    /// If `hops` is 0, or not 1 for a header that holds one address.
    #[track_caller]
    pub fn hops(self, hops: usize) -> ClientIp {
        let single = matches!(self.0, HeaderKind::Single(_));
        assert!(
            hops == 1 || (hops > 1 && !single),
            "hops: {hops} is not allowed; give the number of proxies, 1 for a header of one address"
        );
        ClientIp::from(AddressSource::HeaderKind(
            self.0,
            TrustedProxies::Hops(hops),
        ))
    }
}

impl HeaderKind {
    /// The addresses in it from the right; `None` for an element that is none.
    fn addresses(&self, headers: &HeaderMap) -> impl Iterator<Item = Option<IpAddr>> {
        let (name, split, read): (_, _, fn(&[u8]) -> _) = match self {
            Self::XForwardedFor => (&X_FORWARDED_FOR, Separator::Comma, address),
            Self::Forwarded => (&FORWARDED, Separator::UnquotedComma, parse_forwarded_for),
            Self::Single(name) => (name, Separator::Absent, address),
        };
        let lines = headers.get_all(name);
        // Where one address is expected, two are none.
        let unread = matches!(self, Self::Single(_)) && lines.iter().count() != 1;
        lines
            .iter()
            .rev()
            .take(if unread { 0 } else { usize::MAX })
            .flat_map(move |line| ReverseElements::new(line.as_bytes(), split))
            .map(read)
    }
}

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

impl<B> KeyExtractor<Request<B>> for ClientIp {
    type Key = Client;

    #[expect(
        clippy::inline_always,
        reason = "a key that is returned through memory takes longer than making it"
    )]
    #[inline(always)]
    fn extract(&self, request: &Request<B>) -> Extracted<Client> {
        // The way of most requests, and short.
        if let (AddressSource::Peer, Some(peer)) = (&self.source, known(request.extensions())) {
            return Extracted::Key(match peer {
                SocketAddr::V4(peer) => Client::v4(*peer.ip(), self.v4),
                SocketAddr::V6(peer) => self.client_v6(*peer.ip()),
            });
        }
        self.look(request.extensions(), request.headers())
    }

    fn unread_proxy_header(&self, request: &Request<B>) -> bool {
        let headers = request.headers();
        matches!(self.source, AddressSource::Peer)
            && (headers.contains_key(X_FORWARDED_FOR) || headers.contains_key(FORWARDED))
    }
}

impl ClientIp {
    #[inline(never)]
    fn look(&self, extensions: &Extensions, headers: &HeaderMap) -> Extracted<Client> {
        let found = self.address(peer(extensions), headers);
        let found = found.map(|address| self.client(address));
        self.missing.or(
            found,
            Client::UNKNOWN,
            "the address of the client is not known",
        )
    }
}
