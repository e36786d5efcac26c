//! The client's address in a header that trusted proxies write.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, header::FORWARDED};

use super::client::Client;
use super::forwarded::{ReverseElements, Separator, parse_address, parse_forwarded_for};

/// A header, and the proxies that write it.
#[derive(Debug)]
pub(super) struct Proxied {
    pub(super) header: HeaderKind,
    pub(super) proxies: TrustedProxies,
}

#[derive(Clone, Debug)]
pub(super) enum HeaderKind {
    /// A list. Each proxy appends the address of its own peer.
    XForwardedFor,
    /// The same list in the syntax of RFC 7239.
    Forwarded,
    /// One address.
    Single(HeaderName),
}

#[derive(Debug)]
pub(super) enum TrustedProxies {
    Networks(Box<[Client]>),
    /// At least 1.
    Hops(usize),
}

pub(super) const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

impl Proxied {
    pub(super) fn address(&self, peer: Option<IpAddr>, headers: &HeaderMap) -> Option<IpAddr> {
        let mut addresses = self.header.addresses(headers);
        match &self.proxies {
            TrustedProxies::Networks(networks) => {
                let trusted = |at: IpAddr| networks.iter().any(|network| network.contains(at));
                let mut client = peer?;
                while trusted(client) {
                    match addresses.next() {
                        Some(Some(address)) => client = address,
                        _ => break,
                    }
                }
                Some(client)
            }
            TrustedProxies::Hops(hops) => addresses.nth(hops - 1).flatten().or(peer),
        }
    }
}

impl HeaderKind {
    /// The addresses in the header, from the right; `None` for an invalid element.
    fn addresses(&self, headers: &HeaderMap) -> impl Iterator<Item = Option<IpAddr>> {
        let (name, split, read): (_, _, fn(&[u8]) -> _) = match self {
            Self::XForwardedFor => (&X_FORWARDED_FOR, Separator::Comma, parse_address),
            Self::Forwarded => (&FORWARDED, Separator::UnquotedComma, parse_forwarded_for),
            Self::Single(name) => (name, Separator::Absent, parse_address),
        };
        let lines = headers.get_all(name);
        // If one address is expected, two lines are invalid.
        let is_ambiguous = matches!(self, Self::Single(_)) && lines.iter().count() != 1;
        lines
            .iter()
            .rev()
            .take(if is_ambiguous { 0 } else { usize::MAX })
            .flat_map(move |line| ReverseElements::new(line.as_bytes(), split))
            .map(read)
    }
}
