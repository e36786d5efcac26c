//! The texts in a policy file.

use std::fmt;

use http::{HeaderName, Method};

use super::tree::shown;
use crate::key::Networks;
use crate::policy::{
    nearest::{did_you_mean, distance},
    pattern::PathPattern,
};

/// What requests are counted by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::policy) enum KeySource {
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

impl KeySource {
    pub(in crate::policy) fn parse(text: &str) -> Result<Self, String> {
        match text {
            "global" => return Ok(Self::Global),
            "client_ip" => return Ok(Self::ClientIp(None)),
            "bearer" => return Ok(Self::Bearer),
            "matched_path" => return Ok(Self::MatchedPath),
            _ => {}
        }
        if let Some(bits) = text.strip_prefix("client_ip/") {
            return match bits.parse() {
                Ok(number @ 1..=128) if !bits.starts_with('+') => Ok(Self::ClientIp(Some(number))),
                _ => Err(format!(
                    "client_ip/{bits} is not allowed; give client_ip/BITS with 1 to 128 bits of an \
                     IPv6 address that make one client"
                )),
            };
        }
        if let Some(name) = text.strip_prefix("header:") {
            return name.parse().map(Self::Header).map_err(|_| {
                format!("{text:?} is not allowed; {name:?} is not the name of a header")
            });
        }
        if let Some(name) = text.strip_prefix("extension:") {
            check_name(name)?;
            return Ok(Self::Extension(name.to_owned()));
        }
        let near = did_you_mean(text, KEYS);
        let keys = KEYS.join(", ");
        Err(format!("expected {keys}, found {text:?}{near}"))
    }
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Global => f.write_str("global"),
            Self::ClientIp(None) => f.write_str("client_ip"),
            Self::ClientIp(Some(bits)) => write!(f, "client_ip/{bits}"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Bearer => f.write_str("bearer"),
            Self::MatchedPath => f.write_str("matched_path"),
            Self::Extension(name) => write!(f, "extension:{name}"),
        }
    }
}

/// Stores use the name in the names of their keys.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if (1..=64).contains(&name.len()) && name.bytes().all(plain) {
        return Ok(());
    }
    Err(format!(
        "{} is not allowed; give 1 to 64 letters, digits and any of . _ -",
        shown(name)
    ))
}

pub(super) fn check_key(text: &str) -> Result<(), String> {
    KeySource::parse(text).map(drop)
}

/// `!` begins an exception.
pub(super) fn check_network(text: &str) -> Result<(), String> {
    let network = text.strip_prefix('!').unwrap_or(text);
    Networks::try_new([network])
        .map(drop)
        .map_err(|error| error.to_string())
}

/// A text that a header can have and that is not empty. It may be secret, so the message does not show it.
pub(super) fn check_value(text: &str) -> Result<(), String> {
    if text.is_empty() || http::HeaderValue::from_str(text).is_err() || text.trim() != text {
        return Err("expected a text that a header can have, without spaces around it".to_owned());
    }
    Ok(())
}

pub(super) fn check_path(text: &str) -> Result<(), String> {
    PathPattern::parse(text).map(drop)
}

const METHODS: [&str; 9] = [
    "GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT",
];

pub(super) fn check_method(text: &str) -> Result<(), String> {
    if text.bytes().any(|byte| byte.is_ascii_lowercase()) {
        let upper = text.to_uppercase();
        return Err(format!("{text:?} is not allowed; did you mean {upper}?"));
    }
    Method::from_bytes(text.as_bytes())
        .map_err(|_| format!("{text:?} is not allowed; give a method, such as GET"))?;
    // Another method may be one of the program. One that differs in a letter is a mistake.
    let mut known = METHODS.into_iter();
    match known.find(|known| text.len() <= 8 && distance(text, known) == 1) {
        Some(near) => Err(format!("{text:?} is not allowed; did you mean {near}?")),
        None => Ok(()),
    }
}
