//! Networks: of trusted proxies, and of one client.

use std::{
    borrow::Cow,
    fmt,
    hash::{Hash, Hasher},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use super::canonical;
use crate::error::ConfigError;
use crate::key::Key;

/// The addresses that share their first `prefix` bits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::key) struct Network {
    /// All bits after the prefix are zero. Never an IPv4 address mapped into IPv6.
    address: IpAddr,
    prefix: u8,
}

impl Network {
    /// The network that contains `address`, with one prefix per family.
    #[inline]
    pub(super) fn containing(address: IpAddr, v4: u8, v6: u8) -> Self {
        match address {
            IpAddr::V4(address) => {
                let kept = u32::MAX.checked_shl(32 - u32::from(v4)).unwrap_or_default();
                Self {
                    address: Ipv4Addr::from_bits(address.to_bits() & kept).into(),
                    prefix: v4,
                }
            }
            IpAddr::V6(address) => {
                let kept = u128::MAX
                    .checked_shl(128 - u32::from(v6))
                    .unwrap_or_default();
                Self {
                    address: Ipv6Addr::from_bits(address.to_bits() & kept).into(),
                    prefix: v6,
                }
            }
        }
    }

    pub(super) fn contains(&self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4()
            && Self::containing(address, self.prefix, self.prefix) == *self
    }

    /// The family, and the first and the last address as numbers.
    pub(in crate::key) fn bounds(&self) -> (bool, u128, u128) {
        let (first, free) = match self.address {
            IpAddr::V4(address) => (u128::from(address.to_bits()), 32 - u32::from(self.prefix)),
            IpAddr::V6(address) => (address.to_bits(), 128 - u32::from(self.prefix)),
        };
        let size = 1_u128.checked_shl(free).unwrap_or_default();
        (
            self.is_v4(),
            first,
            first.wrapping_add(size).wrapping_sub(1),
        )
    }

    pub(in crate::key) const fn is_v4(&self) -> bool {
        self.address.is_ipv4()
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
        few: &'static str,
    ) -> Result<Self, ConfigError> {
        let refuse =
            |allowed: Cow<'static, str>| Err(ConfigError::out_of_range(field, text, allowed));
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let Ok(address) = address.parse::<IpAddr>() else {
            return refuse("a network such as 10.0.0.0/8 or fd00::/8".into());
        };
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix: u8 = match prefix {
            None => bits,
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                match digits.parse() {
                    Ok(prefix) if prefix <= bits => prefix,
                    _ => {
                        return refuse("a prefix of at most 32 bits for IPv4, 128 for IPv6".into());
                    }
                }
            }
            Some(_) => return refuse("a prefix in decimal digits".into()),
        };
        if prefix == 0 {
            return refuse(few.into());
        }
        let canonical = canonical(address);
        let prefix = if canonical.is_ipv4() && address.is_ipv6() {
            match prefix.checked_sub(96) {
                Some(1..) => prefix - 96,
                _ => {
                    return refuse(
                        "a prefix of 97 or more for IPv4 addresses mapped or translated into IPv6"
                            .into(),
                    );
                }
            }
        } else {
            prefix
        };
        let network = Self::containing(canonical, prefix, prefix);
        if network.address != canonical {
            return refuse(
                format!("{network} for the network, or {canonical} for the address").into(),
            );
        }
        Ok(network)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = if self.address.is_ipv4() { 32 } else { 128 };
        if self.prefix == bits {
            self.address.fmt(f)
        } else {
            write!(f, "{}/{}", self.address, self.prefix)
        }
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One client: an IPv4 address, or the network of an IPv6 address.
///
/// The key that [`ClientIp`](crate::ClientIp) finds. [`ClientIp::key`](crate::ClientIp::key) makes
/// it from an address.
///
/// It is whole words instead of an [`IpAddr`], because it is made and hashed for every request: a
/// load of a word that was written in parts has to wait for the stores of the parts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Client {
    /// The family, the prefix, and an IPv4 address.
    tag: u64,
    /// The halves of an IPv6 address; the bits after the prefix are zero.
    high: u64,
    low: u64,
}

const V4: u64 = 4;
const V6: u64 = 6;

const fn tag_of(family: u64, prefix: u8) -> u64 {
    family << 40 | (prefix as u64) << 32
}

impl Client {
    /// All clients without an address.
    pub const UNKNOWN: Self = Self {
        tag: 0,
        high: 0,
        low: 0,
    };

    /// The client at `address`, which is not mapped into IPv6.
    #[inline]
    pub(super) fn containing(address: IpAddr, v4: u8, v6: u8) -> Self {
        match address {
            IpAddr::V4(address) => Self::from_v4(address, v4),
            IpAddr::V6(address) => {
                let bits = address.to_bits()
                    & u128::MAX
                        .checked_shl(128 - u32::from(v6))
                        .unwrap_or_default();
                let [high, low] = split_u128(bits);
                let tag = tag_of(V6, v6);
                Self { tag, high, low }
            }
        }
    }

    #[inline]
    pub(super) fn from_v4(address: Ipv4Addr, prefix: u8) -> Self {
        let kept = u32::MAX
            .checked_shl(32 - u32::from(prefix))
            .unwrap_or_default();
        Self {
            tag: tag_of(V4, prefix) | u64::from(address.to_bits() & kept),
            high: 0,
            low: 0,
        }
    }

    const fn family(&self) -> u64 {
        self.tag >> 40
    }

    fn network(&self) -> Option<Network> {
        let [.., prefix, a, b, c, d] = self.tag.to_be_bytes();
        let address = match self.family() {
            V4 => IpAddr::from([a, b, c, d]),
            V6 => {
                let bits = u128::from(self.high) << 64 | u128::from(self.low);
                Ipv6Addr::from_bits(bits).into()
            }
            _ => return None,
        };
        Some(Network { address, prefix })
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the halves of the number")]
#[inline]
const fn split_u128(bits: u128) -> [u64; 2] {
    [(bits >> 64) as u64, bits as u64]
}

/// Manual impl: derive would hash three words for an IPv4 address, which needs one.
impl Hash for Client {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        // The family comes first, so that different clients are hashed differently.
        state.write_u64(self.tag);
        if self.family() == V6 {
            state.write_u64(self.high);
            state.write_u64(self.low);
        }
    }
}

impl Key for Client {}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.network() {
            Some(network) => network.fmt(f),
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

    fn contains(network: &str, address: &str) -> bool {
        let network = Network::parse("trusting", network, "fewer").unwrap();
        network.contains(canonical(address.parse().unwrap()))
    }

    #[test]
    fn a_network_contains_the_addresses_with_its_prefix() {
        assert!(contains("10.0.0.0/8", "10.255.255.255"));
        assert!(!contains("10.0.0.0/8", "11.0.0.0"));
        assert!(contains("10.1.2.3", "10.1.2.3"));
        assert!(!contains("10.1.2.3", "10.1.2.2"));
        assert!(contains("128.0.0.0/1", "203.0.113.9"));
        assert!(contains("fd00::/8", "fdff::1"));
        assert!(!contains("fd00::/8", "fe00::1"));
        assert!(contains("2001:db8::1/128", "2001:db8::1"));
    }

    #[test]
    fn a_network_contains_only_its_own_family() {
        assert!(!contains("::/1", "10.0.0.1"));
        assert!(!contains("0.0.0.0/1", "::1"));
    }

    #[test]
    fn a_mapped_network_is_the_ipv4_network() {
        assert!(contains("::ffff:10.0.0.0/104", "10.9.9.9"));
        assert!(!contains("::ffff:10.0.0.0/104", "11.9.9.9"));
        assert!(contains("10.0.0.0/8", "::ffff:10.9.9.9"));
        assert!(contains("64:ff9b::10.0.0.0/104", "10.9.9.9"));
        assert!(contains("64:ff9b::10.0.0.0/104", "64:ff9b::10.9.9.9"));
        assert!(!contains("64:ff9b::10.0.0.0/104", "11.9.9.9"));
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
            let error = Network::parse("trusting", text, "fewer")
                .unwrap_err()
                .to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
