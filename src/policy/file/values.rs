//! The values in a policy file.

use std::{collections::BTreeMap, fmt, marker::PhantomData, ops::Deref};

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error, IntoDeserializer, SeqAccess, Visitor, value::SeqAccessDeserializer},
};

use crate::key::Missing;
use crate::layer::OnStoreError;
use crate::policy::parse::did_you_mean;
use crate::respond::Headers;

/// One value, or a list of at least one. Without the field, none.
#[derive(Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(crate) struct Several<T>(pub(crate) Vec<T>);

impl<T> Several<T> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T> Default for Several<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Deref for Several<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Several<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SeveralVisitor(PhantomData))
    }
}

struct SeveralVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for SeveralVisitor<T> {
    type Value = Several<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("one value or a list")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Several<T>, E> {
        T::deserialize(text.into_deserializer()).map(|one| Several(vec![one]))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Several<T>, E> {
        T::deserialize(number.into_deserializer()).map(|one| Several(vec![one]))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Several<T>, E> {
        T::deserialize(number.into_deserializer()).map(|one| Several(vec![one]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Several<T>, A::Error> {
        let values = Vec::deserialize(SeqAccessDeserializer::new(list))?;
        if values.is_empty() {
            let message = "an empty list has no effect: leave the field out";
            return Err(A::Error::custom(message));
        }
        Ok(Several(values))
    }
}

/// A whole number in a range.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "i64")]
pub(crate) struct Number<const FROM: u64, const TO: u64>(pub(crate) u64);

impl<const FROM: u64, const TO: u64> TryFrom<i64> for Number<FROM, TO> {
    type Error = String;

    fn try_from(number: i64) -> Result<Self, String> {
        let known = u64::try_from(number).ok().map(Self);
        let known = known.filter(|Self(number)| (FROM..=TO).contains(number));
        known.ok_or_else(|| format!("{number} is not allowed; give a number from {FROM} to {TO}"))
    }
}

/// The version of the format.
pub(super) fn version<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    match u64::deserialize(deserializer)? {
        1 => Ok(1),
        other => Err(D::Error::custom(format!(
            "{other} is not allowed; this version of the library reads 1 only"
        ))),
    }
}

/// Headers in lower case, each with the values of which a request has to have one.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<String, Several<String>>")]
pub(crate) struct HeaderValues(BTreeMap<String, Several<String>>);

impl TryFrom<BTreeMap<String, Several<String>>> for HeaderValues {
    type Error = String;

    fn try_from(given: BTreeMap<String, Several<String>>) -> Result<Self, String> {
        if given.is_empty() {
            return Err("it has no effect without a header: leave it out".to_owned());
        }
        let mut headers = BTreeMap::new();
        for (name, values) in given {
            let Ok(known) = name.parse::<HeaderName>() else {
                return Err(format!("{name:?} is not the name of a header"));
            };
            for value in values.iter() {
                check_value(value).map_err(|message| format!("{known}: {message}"))?;
            }
            if headers.insert(known.as_str().to_owned(), values).is_some() {
                return Err(format!("the header {known} is there twice"));
            }
        }
        Ok(Self(headers))
    }
}

impl HeaderValues {
    /// Whether each header has one of its values. A client that repeats a header does not get past a limit.
    pub(crate) fn are_in(&self, headers: &HeaderMap) -> bool {
        self.0.iter().all(|(name, values)| {
            let mut sent = headers.get_all(name).iter();
            sent.any(|sent| values.iter().any(|value| value.as_bytes() == sent))
        })
    }
}

/// What happens to requests without the key.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "expected shared, skip or a number from 400 to 499"
)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) enum WithoutKey {
    Word(SharedOrSkip),
    Status(Number<400, 499>),
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) enum SharedOrSkip {
    Shared,
    Skip,
}

impl From<WithoutKey> for Missing {
    fn from(without: WithoutKey) -> Self {
        match without {
            WithoutKey::Word(SharedOrSkip::Shared) => Self::Shared,
            WithoutKey::Word(SharedOrSkip::Skip) => Self::Skip,
            WithoutKey::Status(Number(status)) => {
                let status = u16::try_from(status).unwrap_or_default();
                Self::Reject(StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST))
            }
        }
    }
}

/// An [`OnStoreError`] as a file says it.
#[derive(Serialize, Deserialize)]
#[serde(remote = "OnStoreError", rename_all = "lowercase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) enum AllowOrDeny {
    Allow,
    Deny,
}

/// A form of headers.
#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) enum HeaderForm {
    #[default]
    #[serde(rename = "none")]
    None,
    #[serde(rename = "draft-11")]
    Draft11,
    #[serde(rename = "draft-6")]
    Draft6,
    #[serde(rename = "x-ratelimit")]
    Delta,
    #[serde(rename = "x-ratelimit-epoch")]
    Epoch,
}

impl HeaderForm {
    pub(crate) const fn headers(self) -> Option<Headers> {
        match self {
            Self::None => None,
            Self::Draft11 => Some(Headers::Draft11),
            Self::Draft6 => Some(Headers::Draft6),
            Self::Delta => Some(Headers::XRateLimitDelta),
            Self::Epoch => Some(Headers::XRateLimitEpoch),
        }
    }
}

/// What requests are counted by.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) enum KeySource {
    Global,
    /// With the bits of an IPv6 address that make a client, if that was set.
    ClientIp(Option<u8>),
    Header(HeaderName),
    Bearer,
    MatchedPath,
    Extension(String),
}

const KEYS: [&str; 6] = [
    "global",
    "client_ip",
    "header:NAME",
    "bearer",
    "matched_path",
    "extension:NAME",
];

impl TryFrom<String> for KeySource {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (kind, name) = text.split_once([':', '/']).unwrap_or((&text, ""));
        match (&*text, kind) {
            ("global", _) => Ok(Self::Global),
            ("client_ip", _) => Ok(Self::ClientIp(None)),
            ("bearer", _) => Ok(Self::Bearer),
            ("matched_path", _) => Ok(Self::MatchedPath),
            (_, "client_ip") if text.contains('/') => match name.parse() {
                Ok(bits @ 1..=128) if !name.starts_with('+') => Ok(Self::ClientIp(Some(bits))),
                _ => Err(format!(
                    "{text} is not allowed; give client_ip/BITS with 1 to 128 bits of an IPv6 address that make \
                     one client"
                )),
            },
            (_, "header") if text.contains(':') => name.parse().map(Self::Header).map_err(|_| {
                format!("{text:?} is not allowed; {name:?} is not the name of a header")
            }),
            (_, "extension") if text.contains(':') => Ok(Self::Extension(name.to_owned())),
            _ => {
                let (near, keys) = (did_you_mean(&text, KEYS), KEYS.join(", "));
                Err(format!("expected {keys}, found {text:?}{near}"))
            }
        }
    }
}

impl From<KeySource> for String {
    fn from(source: KeySource) -> Self {
        match source {
            KeySource::Global => "global".to_owned(),
            KeySource::ClientIp(None) => "client_ip".to_owned(),
            KeySource::ClientIp(Some(bits)) => format!("client_ip/{bits}"),
            KeySource::Header(name) => format!("header:{name}"),
            KeySource::Bearer => "bearer".to_owned(),
            KeySource::MatchedPath => "matched_path".to_owned(),
            KeySource::Extension(name) => format!("extension:{name}"),
        }
    }
}

/// Stores use the name in the names of their keys.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if (1..=64).contains(&name.len()) && name.bytes().all(plain) {
        return Ok(());
    }
    // A URL may hold a password.
    let shown = Some(name).filter(|name| !name.contains("://"));
    let shown = shown.map_or_else(|| "a URL".to_owned(), |name| format!("{name:?}"));
    Err(format!(
        "{shown} is not allowed; give 1 to 64 letters, digits and any of . _ -"
    ))
}

/// A text that a header can have and that is not empty. It may be secret, so the message does not show it.
pub(super) fn check_value(text: &str) -> Result<(), String> {
    if text.is_empty() || HeaderValue::from_str(text).is_err() || text.trim() != text {
        return Err("expected a text that a header can have, without spaces around it".to_owned());
    }
    Ok(())
}
