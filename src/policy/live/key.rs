//! The key of a request under a limit of a file.

use std::fmt;

use crate::key::{Client, Key, Secret};
#[cfg(feature = "_remote")]
use crate::store::remote::{KeyName, RemoteKey};

/// The key of a request under a limit of a policy file: one part per entry of `key`.
///
/// A part is made from `()` for `global`, from the key of a
/// [`ClientIp`](crate::ClientIp::key), a [`HeaderKey`](crate::HeaderKey::key) or a
/// [`BearerToken`](crate::key::BearerToken::key), or from the text of an extension. Several parts are
/// collected.
///
/// ```
/// use tower_throttle::{ClientIp, HeaderKey, policy::PolicyKey};
///
/// let client = PolicyKey::from(ClientIp::peer().key([192, 0, 2, 7].into()));
/// let tenant_and_account: PolicyKey =
///     [PolicyKey::from(HeaderKey::key("acme")), PolicyKey::from("alice")].into_iter().collect();
/// # drop((client, tenant_and_account));
/// ```
#[derive(Clone, Debug, Hash)]
pub struct PolicyKey(pub(super) Parts);

/// Most limits have one part, which is not allocated.
#[derive(Clone, Hash)]
pub(super) enum Parts {
    One(Part),
    Many(Box<[Part]>),
}

#[derive(Clone, Hash)]
pub(super) enum Part {
    Global,
    Client(Client),
    Secret(Secret),
    #[cfg(feature = "axum")]
    Route(crate::key::Route),
    /// `None` is the part of requests without the extension.
    Text(Option<Box<str>>),
}

impl Key for PolicyKey {}

impl PolicyKey {
    /// The text of a key of one part; `None` of a request without one, and if it is no text.
    pub(super) fn text(&self) -> Option<&[u8]> {
        match &self.0 {
            Parts::One(Part::Secret(secret)) => secret.value(),
            #[cfg(feature = "axum")]
            Parts::One(Part::Route(route)) => route.path().map(str::as_bytes),
            Parts::One(Part::Text(text)) => text.as_deref().map(str::as_bytes),
            Parts::One(Part::Global | Part::Client(_)) | Parts::Many(_) => None,
        }
    }
}

impl From<Part> for PolicyKey {
    fn from(part: Part) -> Self {
        Self(Parts::One(part))
    }
}

impl From<()> for PolicyKey {
    fn from((): ()) -> Self {
        Part::Global.into()
    }
}

impl From<Client> for PolicyKey {
    fn from(client: Client) -> Self {
        Part::Client(client).into()
    }
}

impl From<Secret> for PolicyKey {
    fn from(secret: Secret) -> Self {
        Part::Secret(secret).into()
    }
}

#[cfg(feature = "axum")]
impl From<crate::key::Route> for PolicyKey {
    fn from(route: crate::key::Route) -> Self {
        Part::Route(route).into()
    }
}

impl From<&str> for PolicyKey {
    fn from(text: &str) -> Self {
        Part::Text(Some(text.into())).into()
    }
}

impl FromIterator<Self> for PolicyKey {
    fn from_iter<I: IntoIterator<Item = Self>>(keys: I) -> Self {
        let parts = keys.into_iter().flat_map(|Self(parts)| match parts {
            Parts::One(part) => vec![part],
            Parts::Many(parts) => parts.into_vec(),
        });
        let mut parts: Vec<Part> = parts.collect();
        match (parts.pop(), parts.is_empty()) {
            (Some(only), true) => only.into(),
            (last, _) => Self(Parts::Many(parts.into_iter().chain(last).collect())),
        }
    }
}

#[cfg(feature = "_remote")]
impl RemoteKey for PolicyKey {
    fn write(&self, name: &mut KeyName) {
        match &self.0 {
            Parts::One(part) => part.write(name),
            Parts::Many(parts) => RemoteKey::write_slice(parts, name),
        }
    }
}

#[cfg(feature = "_remote")]
impl RemoteKey for Part {
    fn write(&self, name: &mut KeyName) {
        match self {
            Self::Global => ().write(name),
            Self::Client(client) => client.write(name),
            Self::Secret(secret) => secret.write(name),
            #[cfg(feature = "axum")]
            Self::Route(route) => route.write(name),
            // With the prefix of `Some`: "-" is not the key of requests without the extension.
            Self::Text(text) => text.as_deref().map(str::to_owned).write(name),
        }
    }
}

/// Manual impl: keys must not be logged.
impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
    }
}

#[cfg(all(test, feature = "_remote"))]
mod tests {
    use super::*;
    use crate::store::remote::key_name;

    #[test]
    fn no_text_has_the_name_of_a_missing_one() {
        let written = |text: Option<&str>| key_name("{p:q:", &Part::Text(text.map(Into::into)));
        assert_ne!(written(Some("-")), written(None));
    }
}
