//! Networks: those whose proxies are trusted, and those that count as one client.

use std::{
    fmt,
    hash::{Hash, Hasher},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use crate::error::ConfigError;
use crate::key::Key;

/// The addresses that share their first `prefix` bits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Network {
    /// The other bits are zero. Never an IPv4 address mapped into IPv6.
    address: IpAddr,
    prefix: u8,
}

impl Network {
    /// The network of `address` with a prefix for each family.
    #[inline]
    pub(super) fn around(address: IpAddr, v4: u8, v6: u8) -> Self {
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
            && Self::around(address, self.prefix, self.prefix) == *self
    }

    /// Reads `ADDRESS/PREFIX`, or an address alone.
    ///
    /// IPv4 networks written as IPv6 become what they mean: `::ffff:10.0.0.0/104` is 10.0.0.0/8.
    /// With a prefix below 96 they would hold every IPv4 address and more, which nobody means.
    pub(super) fn parse(text: &str) -> Result<Self, ConfigError> {
        let refuse = |allowed| Err(ConfigError::out_of_range("trusting", text, allowed));
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let Ok(address) = address.parse::<IpAddr>() else {
            return refuse("a network such as 10.0.0.0/8 or fd00::/8");
        };
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix: u8 = match prefix {
            None => bits,
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                match digits.parse() {
                    Ok(prefix) if prefix <= bits => prefix,
                    _ => return refuse("a prefix of at most 32 bits for IPv4, 128 for IPv6"),
                }
            }
            Some(_) => return refuse("a prefix in decimal digits"),
        };
        let canonical = address.to_canonical();
        let prefix = if canonical.is_ipv4() && address.is_ipv6() {
            let Some(prefix) = prefix.checked_sub(96) else {
                return refuse("a prefix of 96 or more for IPv4 addresses mapped into IPv6");
            };
            prefix
        } else {
            prefix
        };
        let network = Self::around(canonical, prefix, prefix);
        if network.address != canonical {
            return refuse("a network whose bits after the prefix are zero");
        }
        Ok(network)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = if self.address.is_ipv4() { 32 } else { 128 };
        if self.prefix == whole {
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

/// What counts as one client: an IPv4 address, or the network that an IPv6 address is in.
///
/// The key that [`ClientIp`](crate::ClientIp) finds;
/// [`ClientIp::client`](crate::ClientIp::client) makes it from an address, for a handle.
///
/// It is made and hashed for every request, so it is whole words and not an [`IpAddr`]: words
/// written in parts cannot be read again as wholes without waiting for the parts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Client {
    /// The family, how many bits of the address count, and those of an IPv4 address.
    kind: u64,
    /// Those of an IPv6 address; the bits after the prefix are zero.
    high: u64,
    low: u64,
}

const V4: u64 = 4;
const V6: u64 = 6;

const fn kind(family: u64, prefix: u8) -> u64 {
    family << 40 | (prefix as u64) << 32
}

impl Client {
    /// All whose address is not known.
    pub const UNKNOWN: Self = Self {
        kind: 0,
        high: 0,
        low: 0,
    };

    /// The one at `address`, which is not mapped into IPv6.
    #[inline]
    pub(super) fn around(address: IpAddr, v4: u8, v6: u8) -> Self {
        match address {
            IpAddr::V4(address) => Self::v4(address, v4),
            IpAddr::V6(address) => {
                let bits = address.to_bits()
                    & u128::MAX
                        .checked_shl(128 - u32::from(v6))
                        .unwrap_or_default();
                let [high, low] = halves(bits);
                let kind = kind(V6, v6);
                Self { kind, high, low }
            }
        }
    }

    #[inline]
    pub(super) fn v4(address: Ipv4Addr, prefix: u8) -> Self {
        let kept = u32::MAX
            .checked_shl(32 - u32::from(prefix))
            .unwrap_or_default();
        Self {
            kind: kind(V4, prefix) | u64::from(address.to_bits() & kept),
            high: 0,
            low: 0,
        }
    }

    const fn family(&self) -> u64 {
        self.kind >> 40
    }

    fn network(&self) -> Option<Network> {
        let [.., prefix, a, b, c, d] = self.kind.to_be_bytes();
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

#[expect(clippy::cast_possible_truncation, reason = "both halves are wanted")]
#[inline]
const fn halves(bits: u128) -> [u64; 2] {
    [(bits >> 64) as u64, bits as u64]
}

/// By hand: of an IPv4 address one word.
impl Hash for Client {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        // The family is read first, so that no two clients read alike.
        state.write_u64(self.kind);
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

    fn holds(network: &str, address: &str) -> bool {
        let network = Network::parse(network).unwrap();
        network.contains(address.parse::<IpAddr>().unwrap().to_canonical())
    }

    #[test]
    fn a_network_holds_the_addresses_with_its_prefix() {
        assert!(holds("10.0.0.0/8", "10.255.255.255"));
        assert!(!holds("10.0.0.0/8", "11.0.0.0"));
        assert!(holds("10.1.2.3", "10.1.2.3"));
        assert!(!holds("10.1.2.3", "10.1.2.2"));
        assert!(holds("0.0.0.0/0", "203.0.113.9"));
        assert!(holds("fd00::/8", "fdff::1"));
        assert!(!holds("fd00::/8", "fe00::1"));
        assert!(holds("2001:db8::1/128", "2001:db8::1"));
    }

    #[test]
    fn families_are_kept_apart() {
        assert!(!holds("::/0", "10.0.0.1"));
        assert!(!holds("0.0.0.0/0", "::1"));
    }

    #[test]
    fn a_mapped_network_means_the_ipv4_one() {
        assert!(holds("::ffff:10.0.0.0/104", "10.9.9.9"));
        assert!(!holds("::ffff:10.0.0.0/104", "11.9.9.9"));
        assert!(holds("10.0.0.0/8", "::ffff:10.9.9.9"));
    }

    #[test]
    fn what_is_no_network_is_refused_with_a_reason() {
        for (text, reason) in [
            ("::ffff:10.0.0.0/8", "96 or more"),
            ("::ffff:0:0/95", "96 or more"),
            ("10.0.0.0/33", "at most 32"),
            ("::1/129", "at most 32 bits for IPv4, 128"),
            ("10.0.0.1/8", "are zero"),
            ("10.0.0.0/+8", "decimal"),
            ("10.0.0.0/", "at most 32"),
            ("localhost", "such as"),
            ("10.0.0", "such as"),
            ("010.0.0.1", "such as"),
        ] {
            let error = Network::parse(text).unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
