//! One client: an address, or the network of one.

use std::{
    fmt,
    hash::{Hash, Hasher},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use super::canonical;
use crate::error::ConfigError;
use crate::key::Key;

/// One client: an IPv4 address, or the network of an IPv6 address.
///
/// The key that [`ClientIp`](crate::ClientIp) finds. [`ClientIp::key`](crate::ClientIp::key) makes
/// it from an address.
///
/// It is whole words instead of an [`IpAddr`], because it is made and hashed for every request: a
/// load of a word that was written in parts has to wait for the stores of the parts.
// Networks of proxies and of lists are the same: all addresses that share their first bits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Client {
    /// The halves of the first address, an IPv4 address mapped into IPv6. All bits after the prefix are zero.
    high: u64,
    low: u64,
    /// How many bits all addresses share, of 128. 0 if the address is not known.
    prefix: u64,
}

/// An IPv4 address in IPv6 has as many bits before it, and these are the last of them.
pub(crate) const BEFORE_V4: u8 = 96;
const MAPPED: u64 = 0xffff;

impl Client {
    /// All clients without an address.
    pub(crate) const UNKNOWN: Self = Self {
        high: 0,
        low: 0,
        prefix: 0,
    };

    /// The client at `address`, which is not mapped into IPv6, with one prefix per family.
    #[inline]
    pub(super) fn containing(address: IpAddr, v4: u8, v6: u8) -> Self {
        match address {
            IpAddr::V4(address) => Self::from_v4(address, v4),
            IpAddr::V6(address) => Self::sharing(address.to_bits(), v6),
        }
    }

    #[inline]
    pub(super) fn from_v4(address: Ipv4Addr, prefix: u8) -> Self {
        Self::sharing(address.to_ipv6_mapped().to_bits(), BEFORE_V4 + prefix)
    }

    /// All addresses that share this many bits, at least one, with `address`.
    #[expect(clippy::cast_possible_truncation, reason = "halves of a number")]
    #[inline]
    pub(in crate::key) fn sharing(address: u128, prefix: u8) -> Self {
        let bits = address & u128::MAX << (128 - prefix);
        Self {
            high: (bits >> 64) as u64,
            low: bits as u64,
            prefix: prefix.into(),
        }
    }

    /// How many bits all addresses share, of 128.
    #[expect(clippy::cast_possible_truncation, reason = "at most 128")]
    pub(in crate::key) const fn prefix(&self) -> u8 {
        self.prefix as u8
    }

    /// If it is an IPv4 network. A larger network of IPv6 contains no IPv4 address.
    const fn is_v4(&self) -> bool {
        self.prefix > BEFORE_V4 as u64 && self.high == 0 && self.low >> 32 == MAPPED
    }

    /// The first address and the prefix.
    fn network(&self) -> Option<(IpAddr, u8)> {
        let first = Ipv6Addr::from_bits(u128::from(self.high) << 64 | u128::from(self.low));
        match (first.to_ipv4_mapped(), self.prefix()) {
            (_, 0) => None,
            (Some(first), prefix) if self.is_v4() => Some((first.into(), prefix - BEFORE_V4)),
            (_, prefix) => Some((first.into(), prefix)),
        }
    }

    /// Whether it contains `address`, which is not mapped into IPv6.
    pub(in crate::key) fn contains(&self, address: IpAddr) -> bool {
        self.network().is_some_and(|(first, prefix)| {
            first.is_ipv4() == address.is_ipv4()
                && Self::containing(address, prefix, prefix) == *self
        })
    }

    /// Parses `ADDRESS/PREFIX`, or a single address. `few` says what is allowed instead of all
    /// addresses.
    ///
    /// An IPv4 network written as IPv6 becomes the IPv4 network: `::ffff:10.0.0.0/104` is
    /// 10.0.0.0/8, and so is `64:ff9b::10.0.0.0/104`. With a prefix of 96 or less it would contain all
    /// IPv4 addresses.
    pub(in crate::key) fn parse(
        field: &'static str,
        text: &str,
        shown: impl fmt::Display,
        few: &'static str,
    ) -> Result<Self, ConfigError> {
        let refuse = |allowed: &str| ConfigError::out_of_range(field, &shown, allowed);
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let Ok(address) = address.parse::<IpAddr>() else {
            return Err(refuse("a network such as 10.0.0.0/8 or fd00::/8"));
        };
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix: u8 = match prefix {
            None => bits,
            Some(digits) => {
                let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
                let prefix = digits.parse().ok();
                let prefix = prefix.filter(|prefix| is_number && *prefix <= bits);
                let most = "a prefix in decimal digits, of at most 32 bits for IPv4, 128 for IPv6";
                prefix.ok_or_else(|| refuse(most))?
            }
        };
        if prefix == 0 {
            return Err(refuse(few));
        }
        let canonical = canonical(address);
        let prefix = if canonical.is_ipv4() && address.is_ipv6() {
            let of_v4 = prefix.checked_sub(96).filter(|prefix| *prefix > 0);
            let least = "a prefix of 97 or more for IPv4 addresses mapped or translated into IPv6";
            of_v4.ok_or_else(|| refuse(least))?
        } else {
            prefix
        };
        let network = Self::containing(canonical, prefix, prefix);
        if network.network().map(|(first, _)| first) != Some(canonical) {
            let allowed = format!("{network} for the network, or {canonical} for the address");
            return Err(refuse(&allowed));
        }
        Ok(network)
    }
}

/// Manual impl: derive would hash three words for an IPv4 address, which needs one.
impl Hash for Client {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        // An address of IPv4 is one word. Its first bits are zero, and those of the mark are not.
        if self.is_v4() {
            state.write_u64(self.prefix << 56 | self.low);
        } else {
            state.write_u64(self.prefix);
            state.write_u64(self.high);
            state.write_u64(self.low);
        }
    }
}

impl Key for Client {}

/// The address, with its prefix unless that is the whole address.
impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.network() {
            Some((address @ IpAddr::V4(_), 32) | (address @ IpAddr::V6(_), 128)) => address.fmt(f),
            Some((address, prefix)) => write!(f, "{address}/{prefix}"),
            None => f.write_str("unknown"),
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Networks, an address that each contains, and one that it does not.
    #[test]
    fn a_network_contains_the_addresses_of_its_family_with_its_prefix() {
        for (network, inside, outside) in [
            ("10.0.0.0/8", "::ffff:10.255.255.255", "11.0.0.0"),
            ("10.1.2.3", "10.1.2.3", "10.1.2.2"),
            ("0.0.0.0/1", "127.0.0.1", "::1"),
            ("fd00::/8", "fdff::1", "fe00::1"),
            ("::/1", "::1", "10.0.0.1"),
            ("::/104", "::1", "0.0.0.1"),
            ("2001:db8::1/128", "2001:db8::1", "0.0.0.1"),
            ("::ffff:10.0.0.0/104", "10.9.9.9", "11.9.9.9"),
            ("64:ff9b::10.0.0.0/104", "64:ff9b::10.9.9.9", "::10.9.9.9"),
        ] {
            let known = Client::parse("trusting", network, network, "fewer").unwrap();
            let contains = |address: &str| known.contains(canonical(address.parse().unwrap()));
            assert!(contains(inside) && !contains(outside), "{network}");
        }
    }

    #[test]
    fn an_invalid_network_is_refused_with_a_reason() {
        for (text, reason) in [
            ("::ffff:10.0.0.0/8", "97 or more"),
            ("::ffff:0:0/95", "97 or more"),
            ("::ffff:0:0/96", "97 or more"),
            ("64:ff9b::/96", "97 or more"),
            ("64:ff9b::10.1.0.0/104", "give 10.0.0.0/8 for the network"),
            ("0.0.0.0/0", "fewer"),
            ("10.0.0.0/0", "fewer"),
            ("::/0", "fewer"),
            ("10.0.0.0/33", "at most 32"),
            ("::1/129", "at most 32 bits for IPv4, 128"),
            (
                "10.0.0.1/8",
                "give 10.0.0.0/8 for the network, or 10.0.0.1 for",
            ),
            ("fd00::5/8", "give fd00::/8 for the network, or fd00::5 for"),
            ("::ffff:10.1.0.0/104", "give 10.0.0.0/8 for the network"),
            ("10.0.0.0/+8", "decimal"),
            ("10.0.0.0/", "at most 32"),
            ("localhost", "such as"),
            ("10.0.0", "such as"),
            ("010.0.0.1", "such as"),
        ] {
            let error = Client::parse("trusting", text, text, "fewer")
                .unwrap_err()
                .to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
