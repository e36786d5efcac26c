//! The key of a request under a limit of a file.

use std::fmt;

use crate::key::{Client, Either, HeaderKey, Key, Secret};
use crate::store::AnyLimit;
#[cfg(feature = "cas")]
use crate::store::remote::{KeyName, RemoteKey};

/// The key of a request under a limit of a policy file: one part per entry of `key`.
///
/// A part is made from the key of a [`ClientIp`](crate::ClientIp::key); from a text, for a header, a token, an
/// extension and a route; or from `()`, for `global` and for a request without such a text. Several parts are
/// collected.
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
pub struct PolicyKey(pub(super) Vec<KeyPart>);

/// The secret that is missing is the part of all requests, and of those without an extension or a route.
pub(super) type KeyPart = Either<Client, Secret>;

impl Key for PolicyKey {}

/// Decides about the requests of a rate limit in a policy file, in the memory of this process or in a store.
/// A [`Handle`](crate::Handle) reads and changes its keys.
pub(super) type PolicyLimiter = AnyLimit<PolicyKey>;

impl PolicyKey {
    /// The text of a key of one part; `None` of a request without one, and if it is no text.
    pub(super) fn text(&self) -> Option<&[u8]> {
        match &*self.0 {
            [Either::Right(text)] => text.value(),
            _ => None,
        }
    }
}

impl From<()> for PolicyKey {
    fn from((): ()) -> Self {
        Self(vec![Either::Right(Secret::MISSING)])
    }
}

impl From<Client> for PolicyKey {
    fn from(client: Client) -> Self {
        Self(vec![Either::Left(client)])
    }
}

impl From<&str> for PolicyKey {
    fn from(text: &str) -> Self {
        Self(vec![Either::Right(HeaderKey::key(text))])
    }
}

impl FromIterator<Self> for PolicyKey {
    fn from_iter<I: IntoIterator<Item = Self>>(keys: I) -> Self {
        Self(keys.into_iter().flat_map(|Self(parts)| parts).collect())
    }
}

#[cfg(feature = "cas")]
impl RemoteKey for PolicyKey {
    fn write(&self, name: &mut KeyName) {
        match &*self.0 {
            [part] => part.write(name),
            parts => RemoteKey::write_slice(parts, name),
        }
    }
}

/// Manual impl: keys must not be logged.
impl fmt::Debug for PolicyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PolicyKey(..)")
    }
}
