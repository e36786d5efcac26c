//! A list of networks.

use std::{fmt, net::IpAddr, str::FromStr};

use super::ranges::{Edges, Range};
use crate::error::{ConfigError, expect_valid};
use crate::key::{Client, client_ip::canonical};

/// A list of networks, for [`ClientIp::within`](crate::ClientIp::within).
///
/// It finds an address among 100,000 networks by at most 18 comparisons. It takes at most 8 bytes per
/// IPv4 network and 32 per IPv6 network.
///
/// A network may be excepted from a larger one. The longest prefix of an address decides.
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
    v4: Edges<u32>,
    v6: Edges<u128>,
}

const FIELD: &str = "networks";
const ALL_ADDRESSES: &str =
    "networks of some clients: this one contains all of them; for all, leave the list out";

impl Networks {
    /// A list of `10.0.0.0/8`, `fd00::/8`, or single addresses.
    ///
    /// # Panics
    /// If [`try_new`](Self::try_new) returns an error.
    #[track_caller]
    pub fn new(networks: impl IntoIterator<Item: AsRef<str>>) -> Self {
        expect_valid(Self::try_new(networks))
    }

    /// As [`new`](Self::new), for networks from a configuration.
    ///
    /// # Errors
    /// If one of them is not a network, has host bits (`10.0.0.1/8`), or contains all addresses
    /// (`0.0.0.0/0`).
    ///
    /// ```
    /// use tower_throttle::key::Networks;
    ///
    /// let error = Networks::try_new(["10.0.0.1/8"]).unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "networks: 10.0.0.1/8 is not allowed; \
    ///      give 10.0.0.0/8 for the network, or 10.0.0.1 for the address"
    /// );
    /// ```
    pub fn try_new(networks: impl IntoIterator<Item: AsRef<str>>) -> Result<Self, ConfigError> {
        Self::try_with_exceptions(networks, std::iter::empty::<&str>())
    }

    /// A list without the networks in `exceptions`. An exception outside of the listed networks has no
    /// effect.
    ///
    /// # Errors
    /// Those of [`try_new`](Self::try_new). Also if a network is both listed and an exception.
    ///
    /// ```
    /// use tower_throttle::key::Networks;
    ///
    /// let inside = Networks::try_with_exceptions(["10.0.0.0/8"], ["10.6.0.0/16"])?;
    /// assert!(!inside.contains("10.6.0.1".parse().unwrap()));
    /// # Ok::<(), tower_throttle::ConfigError>(())
    /// ```
    pub fn try_with_exceptions(
        networks: impl IntoIterator<Item: AsRef<str>>,
        exceptions: impl IntoIterator<Item: AsRef<str>>,
    ) -> Result<Self, ConfigError> {
        let parse = |text: &str| Client::parse(FIELD, text, ALL_ADDRESSES);
        let mut all = Vec::new();
        for network in networks {
            all.push((parse(network.as_ref())?, true));
        }
        for network in exceptions {
            all.push((parse(network.as_ref())?, false));
        }
        Self::build(all)
    }

    fn build(mut all: Vec<(Client, bool)>) -> Result<Self, ConfigError> {
        all.sort_unstable_by_key(|(network, is_listed)| {
            (network.is_v4(), network.bounds(), *is_listed)
        });
        all.dedup();
        let twice = all.windows(2).find(|pair| pair[0].0 == pair[1].0);
        if let Some([(network, _), _]) = twice {
            return Err(ConfigError::out_of_range(
                FIELD,
                network,
                "a network once: this one is listed and an exception",
            ));
        }
        let ranges = |is_v4: bool| -> Vec<Range> {
            let own = all.iter().filter(|(network, _)| network.is_v4() == is_v4);
            own.map(|(network, is_listed)| {
                let (first, last) = network.bounds();
                let is_listed = *is_listed;
                Range {
                    first,
                    last,
                    is_listed,
                }
            })
            .collect()
        };
        Ok(Self {
            v4: Edges::new(ranges(true)),
            v6: Edges::new(ranges(false)),
        })
    }

    /// Whether `address` is listed. IPv4 addresses written as IPv6 are the IPv4 addresses.
    #[inline]
    pub fn contains(&self, address: IpAddr) -> bool {
        match canonical(address) {
            IpAddr::V4(address) => self.v4.contains(address.to_bits()),
            IpAddr::V6(address) => self.v6.contains(address.to_bits()),
        }
    }

    /// Whether no address is listed.
    pub fn is_empty(&self) -> bool {
        self.v4.len() + self.v6.len() == 0
    }
}

/// One network per line. `!` begins an exception, and `#` a comment. A byte order mark is ignored. The
/// error names the line and not its text: the file may be another one than was meant.
impl FromStr for Networks {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let mut all = Vec::new();
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
            let network = Client::parse(FIELD, network, ALL_ADDRESSES);
            let network = network.map_err(|error| match error {
                ConfigError::OutOfRange { field, allowed, .. } => {
                    ConfigError::out_of_range(field, format_args!("line {}", index + 1), allowed)
                }
                error => error,
            })?;
            all.push((network, is_listed));
        }
        Self::build(all)
    }
}

/// Manual impl: a list may be long.
impl fmt::Debug for Networks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Networks")
            .field("v4_edges", &self.v4.len())
            .field("v6_edges", &self.v6.len())
            .finish()
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

    #[test]
    fn an_exception_is_not_listed_however_it_is_given() {
        let (listed, excepted) = (["10.0.0.0/8"], ["10.6.0.0/16"]);
        let networks = Networks::try_with_exceptions(listed, excepted).unwrap();
        let parsed = "10.0.0.0/8\n! 10.6.0.0/16".parse::<Networks>().unwrap();
        assert_eq!(networks, parsed);
        for (address, is_listed) in [("10.5.0.1", true), ("10.6.0.1", false)] {
            assert_eq!(contains(&networks, address), is_listed, "{address}");
        }
    }

    /// Shows promise 193.
    #[test]
    fn mapped_and_translated_addresses_are_ipv4_addresses() {
        let networks = Networks::new(["203.0.113.0/24"]);
        assert!(contains(&networks, "::ffff:203.0.113.9"));
        assert!(contains(&networks, "64:ff9b::203.0.113.9"));
        assert!(!contains(&networks, "::203.0.113.9"));
        assert!(contains(
            &Networks::new(["::ffff:10.0.0.0/104"]),
            "10.9.9.9"
        ));
        let translated = Networks::new(["64:ff9b::10.0.0.0/104"]);
        assert!(contains(&translated, "64:ff9b::10.9.9.9"));
        assert!(Networks::default().is_empty());
        for one in ["203.0.113.0/24", "2001:db8::/32"] {
            assert!(!Networks::new([one]).is_empty(), "{one}");
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
