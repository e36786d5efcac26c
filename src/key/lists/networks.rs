//! A list of networks.

use std::collections::HashMap;
use std::net::IpAddr;
use std::{fmt, str::FromStr};

use crate::error::{ConfigError, expect_valid};
use crate::key::{BEFORE_V4, Client, client_ip::canonical};

/// A list of networks, for [`ClientIp::within`](crate::ClientIp::within).
///
/// A network may be excepted from a larger one. The longest prefix of an address decides: it is looked up with
/// each length that a network of the list has, however many networks those are.
///
/// ```
/// use tower_throttle::key::Networks;
///
/// let offices: Networks = "
///     192.0.2.0/24
///     !192.0.2.128/25    # but not the guests
///     2001:db8::/32
/// ".parse()?;
/// assert!(offices.contains("192.0.2.1".parse().unwrap()));
/// assert!(!offices.contains("192.0.2.200".parse().unwrap()));
/// assert!(offices.contains("::ffff:192.0.2.1".parse().unwrap()));
/// # Ok::<(), tower_throttle::ConfigError>(())
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Networks {
    /// True if the network is listed, and false if it is an exception.
    networks: HashMap<Client, bool>,
    /// The lengths of their prefixes, the longest first.
    lengths: Vec<u8>,
}

const FIELD: &str = "networks";

impl Networks {
    /// A list of `10.0.0.0/8`, `fd00::/8`, or single addresses. [Parse](Self::from_str) a text from outside of the
    /// program.
    ///
    /// # Panics
    /// If one of them is not a network, has host bits (`10.0.0.1/8`), or contains all addresses
    /// (`0.0.0.0/0`).
    #[track_caller]
    pub fn new(networks: impl IntoIterator<Item: AsRef<str>>) -> Self {
        let mut all = Self::default();
        for network in networks {
            let network = network.as_ref();
            let network = Self::parse(network, network);
            expect_valid(network.and_then(|network| all.add(network, true)));
        }
        all
    }

    /// A network that can be in a list. An error shows `shown` in its place.
    pub(crate) fn parse(network: &str, shown: impl fmt::Display) -> Result<Client, ConfigError> {
        let some =
            "networks of some clients: this one contains all of them; for all, leave the list out";
        Client::parse(FIELD, network, shown, some)
    }

    fn add(&mut self, network: Client, is_listed: bool) -> Result<(), ConfigError> {
        if self.networks.insert(network, is_listed) == Some(!is_listed) {
            let once = "a network once: this one is listed and an exception";
            return Err(ConfigError::out_of_range(FIELD, network, once));
        }
        let longer = |length: &u8| *length > network.prefix();
        let at = self.lengths.partition_point(longer);
        if self.lengths.get(at) != Some(&network.prefix()) {
            self.lengths.insert(at, network.prefix());
        }
        Ok(())
    }

    /// Whether `address` is listed. IPv4 addresses written as IPv6 are the IPv4 addresses.
    pub fn contains(&self, address: IpAddr) -> bool {
        let (address, least) = match canonical(address) {
            IpAddr::V4(address) => (address.to_ipv6_mapped(), BEFORE_V4 + 1),
            IpAddr::V6(address) => (address, 1),
        };
        let lengths = self.lengths.iter().take_while(|length| **length >= least);
        let mut around = lengths.map(|length| Client::sharing(address.to_bits(), *length));
        around.find_map(|network| self.networks.get(&network)) == Some(&true)
    }

    /// Whether no network is listed.
    #[cfg(any(feature = "policies", test))]
    pub(crate) fn is_empty(&self) -> bool {
        !self.networks.values().any(|is_listed| *is_listed)
    }
}

/// One network per line. `!` begins an exception, and `#` a comment. A byte order mark is ignored. The
/// error names the line and not its text: the file may be another one than was meant.
impl FromStr for Networks {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let mut all = Self::default();
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        for (index, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            let (network, is_listed) = match line.strip_prefix('!') {
                Some(exception) => (exception.trim_start(), false),
                None => (line, true),
            };
            if line.is_empty() {
                continue;
            }
            let network = Self::parse(network, format_args!("line {}", index + 1))?;
            all.add(network, is_listed)?;
        }
        Ok(all)
    }
}

/// Manual impl: a list may be long.
impl fmt::Debug for Networks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Networks")
            .field("networks", &self.networks.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contains(networks: &Networks, address: &str) -> bool {
        networks.contains(address.parse().unwrap())
    }

    /// Shows promise 193.
    #[test]
    fn the_first_and_last_addresses_of_both_families_are_found() {
        let all = ["0.0.0.0/1", "255.255.255.255", "::/2", "ffff::/16"];
        let networks = Networks::new(all);
        for address in [
            "0.0.0.0",
            "127.255.255.255",
            "255.255.255.255",
            "3fff::1",
            "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        ] {
            assert!(contains(&networks, address), "{address}");
        }
        for address in ["128.0.0.0", "255.255.255.254", "4000::", "fffe::1"] {
            assert!(!contains(&networks, address), "{address}");
        }
    }

    /// The longest network around an address decides, in whatever order they are listed. Networks of 2^120 addresses
    /// and of less are drawn from a small space, so that many are nested.
    ///
    /// Shows promise 193.
    #[test]
    fn an_address_is_listed_as_by_a_search_of_all_networks() {
        let mut random = 1_u64;
        let mut below = |bound: u64| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 33) % bound
        };
        for round in 0..400 {
            let mut all = Vec::<(Client, bool)>::new();
            for _ in 0..=below(8) {
                let bits = u128::from(below(64));
                // Of IPv6, and of IPv4 mapped into it.
                let (first, prefix) = match below(2) {
                    0 => (bits << 122, 1 + below(7)),
                    _ => (0xffff << 32 | bits << 26, 97 + below(7)),
                };
                let network = Client::sharing(first, u8::try_from(prefix).unwrap());
                if all.iter().all(|(other, _)| *other != network) {
                    all.push((network, below(2) == 0));
                }
            }
            for _ in 0..all.len() {
                all.rotate_left(1);
                let mut networks = Networks::default();
                for (network, is_listed) in &all {
                    networks.add(*network, *is_listed).unwrap();
                }
                let lists_any = all.iter().any(|(_, is_listed)| *is_listed);
                assert_eq!(networks.is_empty(), !lists_any, "{round}: {all:?}");
                for bits in 0..64_u32 {
                    let v6 = IpAddr::from((u128::from(bits) << 122 | 1).to_be_bytes());
                    for address in [v6, (bits << 26 | 1).to_be_bytes().into()] {
                        let around = all.iter().filter(|(one, _)| one.contains(address));
                        let longest = around.max_by_key(|(one, _)| one.prefix());
                        let is_listed = longest.is_some_and(|(_, listed)| *listed);
                        assert_eq!(
                            networks.contains(address),
                            is_listed,
                            "{address} in {all:?}"
                        );
                    }
                }
            }
        }
    }

    /// Shows promise 193.
    #[test]
    fn an_invalid_list_is_refused_with_its_line() {
        for (text, reason) in [
            (
                "10.0.0.0/8\n10.0.0.1/8",
                "networks: line 2 is not allowed; give 10.0.0.0/8 for the network",
            ),
            ("::/0", "this one contains all of them"),
            ("!0.0.0.0/0", "line 1 is not allowed"),
            (
                "# none\n\nlocalhost",
                "line 3 is not allowed; give a network such as 10.0.0.0/8",
            ),
            ("!", "line 1 is"),
            (
                "10.0.0.0/8\n!10.0.0.0/8",
                "networks: 10.0.0.0/8 is not allowed; give a network once",
            ),
        ] {
            let error = text.parse::<Networks>().unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
        assert!("10.0.0.0/8\n10.0.0.0/8 # again".parse::<Networks>().is_ok());
        let marked = "\u{feff}10.0.0.0/8".parse::<Networks>();
        assert_eq!(marked, "10.0.0.0/8".parse());
    }
}
