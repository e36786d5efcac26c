//! The key of a request under a limit of a file.

use std::fmt;

use crate::key::{Client, HeaderKey, Key, Secret};
#[cfg(feature = "_remote")]
use crate::store::remote::{KeyName, RemoteKey};

/// The key of a request under a limit of a policy file: one part per entry of `key`.
///
/// A part is made from `()` for `global`, and for a request without an extension or a route; from the key of a
/// [`ClientIp`](crate::ClientIp::key), a [`HeaderKey`](crate::HeaderKey::key) or a
/// [`BearerToken`](crate::key::BearerToken::key); or from a text, for a header, a token, an extension and a
/// route. Several parts are collected.
///
/// ```
/// use tower_throttle::{ClientIp, policy::PolicyKey};
///
/// let client = PolicyKey::from(ClientIp::peer().key([192, 0, 2, 7].into()));
/// let tenant_and_account: PolicyKey =
///     [PolicyKey::from("acme"), PolicyKey::from("alice")].into_iter().collect();
/// # drop((client, tenant_and_account));
/// ```
#[derive(Clone, Hash)]
pub struct PolicyKey(pub(super) Vec<Part>);

#[derive(Clone, Hash)]
pub(super) enum Part {
    /// That of all requests, and of those without an extension or a route.
    Shared,
    Client(Client),
    Text(Secret),
}

impl Key for PolicyKey {}

impl Part {
    pub(super) fn text(text: impl AsRef<[u8]>) -> Self {
        Self::Text(HeaderKey::key(text))
    }
}

impl PolicyKey {
    /// The text of a key of one part; `None` of a request without one, and if it is no text.
    pub(super) fn text(&self) -> Option<&[u8]> {
        match &*self.0 {
            [Part::Text(text)] => text.value(),
            _ => None,
        }
    }
}

impl From<()> for PolicyKey {
    fn from((): ()) -> Self {
        Self(vec![Part::Shared])
    }
}

impl From<Client> for PolicyKey {
    fn from(client: Client) -> Self {
        Self(vec![Part::Client(client)])
    }
}

impl From<Secret> for PolicyKey {
    fn from(secret: Secret) -> Self {
        Self(vec![Part::Text(secret)])
    }
}

impl From<&str> for PolicyKey {
    fn from(text: &str) -> Self {
        Self(vec![Part::text(text)])
    }
}

impl FromIterator<Self> for PolicyKey {
    fn from_iter<I: IntoIterator<Item = Self>>(keys: I) -> Self {
        Self(keys.into_iter().flat_map(|Self(parts)| parts).collect())
    }
}

#[cfg(feature = "_remote")]
impl RemoteKey for PolicyKey {
    fn write(&self, name: &mut KeyName) {
        match &*self.0 {
            [part] => part.write(name),
            parts => RemoteKey::write_slice(parts, name),
        }
    }
}

#[cfg(feature = "_remote")]
impl RemoteKey for Part {
    fn write(&self, name: &mut KeyName) {
        match self {
            Self::Shared => ().write(name),
            Self::Client(client) => client.write(name),
            Self::Text(text) => text.write(name),
        }
    }
}

/// Manual impl: keys must not be logged.
impl fmt::Debug for PolicyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PolicyKey(..)")
    }
}

#[cfg(all(test, feature = "_remote"))]
mod tests {
    use super::*;
    use crate::store::remote::key_name;

    #[test]
    fn no_text_has_the_name_of_a_missing_one() {
        let missing = key_name("{p:q:", &Part::Shared);
        for text in ["", "-", "()"] {
            assert_ne!(key_name("{p:q:", &Part::text(text)), missing);
        }
    }
}
