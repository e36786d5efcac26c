//! What a reply means: whether the call was carried out, and what to do about it.

use std::{borrow::Cow, sync::Arc};

use redis::{ErrorKind, RedisError, Value};

use crate::error::StoreError;

/// How a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ErrorClass {
    /// The server does not know the script: not carried out, and mended by sending its text.
    NoScript,
    /// Not carried out, and this connection leads to the wrong server.
    WrongServer,
    /// Not carried out, for the slot is on its way to another server.
    SlotMigrating,
    /// Not carried out; passes by itself.
    Unavailable,
    /// Nobody knows whether it was carried out, so it is never sent again; the connection is of no
    /// further use.
    Indeterminate,
    /// Not carried out, and somebody has to mend it.
    Permanent,
}

impl ErrorClass {
    pub(super) fn of(error: &RedisError) -> Self {
        match error.kind() {
            ErrorKind::AuthenticationFailed
            | ErrorKind::InvalidClientConfig
            | ErrorKind::Client
            | ErrorKind::RESP3NotSupported
            | ErrorKind::EmptySentinelList => return Self::Permanent,
            ErrorKind::MasterNameNotFoundBySentinel
            | ErrorKind::NoValidReplicasFoundBySentinel
            | ErrorKind::ClusterConnectionNotFound => return Self::Unavailable,
            _ if error.is_connection_refusal() => return Self::Unavailable,
            _ => {}
        }
        match error.code() {
            Some("ERR") => Self::from_legacy_text(error.detail().unwrap_or_default()),
            Some(code) => Self::from_code(code),
            None => Self::Indeterminate,
        }
    }

    fn from_code(code: &str) -> Self {
        match code {
            "NOSCRIPT" => Self::NoScript,
            "READONLY" | "MOVED" | "ASK" | "MASTERDOWN" | "UNBLOCKED" => Self::WrongServer,
            "TRYAGAIN" | "CLUSTERDOWN" => Self::SlotMigrating,
            "LOADING" | "BUSY" | "OOM" | "NOREPLICAS" | "MISCONF" => Self::Unavailable,
            _ => Self::Permanent,
        }
    }

    /// Before 7.0 a server wrapped what a command in a script replied into text:
    /// `Error running script (call to f_..): @user_script:6: -OOM command not allowed`.
    fn from_legacy_text(text: &str) -> Self {
        const CODES: [&str; 8] = [
            "READONLY",
            "MASTERDOWN",
            "OOM",
            "NOREPLICAS",
            "MISCONF",
            "CLUSTERDOWN",
            "LOADING",
            "BUSY",
        ];
        if text.contains("max number of clients reached") {
            return Self::Unavailable;
        }
        let found = CODES
            .iter()
            .find(|code| text.contains(&format!("-{code} ")));
        found.map_or(Self::Permanent, |code| Self::from_code(code))
    }

    /// Whether the connection is to be replaced.
    pub(super) const fn invalidates_connection(self) -> bool {
        matches!(self, Self::WrongServer | Self::Indeterminate)
    }

    pub(super) fn error(self, error: &RedisError) -> StoreError {
        let advice = match (self, error.code()) {
            (Self::Permanent, Some("NOPERM")) => {
                "; let this user run EVAL, EVALSHA and TIME, and GET, SET, PSETEX, DEL, GETRANGE, \
                 SETRANGE and PEXPIRE on the keys under the prefix"
            }
            (Self::Permanent, Some("NOAUTH" | "WRONGPASS")) => {
                "; mend the user or password in the URL"
            }
            (Self::Permanent, Some("CROSSSLOT")) => "; connect with a cluster client",
            (_, Some("OOM")) => "; give the server memory, its maxmemory is used up",
            (Self::WrongServer, Some("READONLY")) => {
                "; a replica answers in the place of a primary"
            }
            _ if error.kind() == ErrorKind::AuthenticationFailed || unauthenticated(error) => {
                "; mend the user or password in the URL"
            }
            _ => "",
        };
        let transient = self != Self::Permanent;
        StoreError::new(format!("Redis: {error}{advice}"), transient)
    }
}

/// A long command before any password is not answered with NOAUTH but with a protocol error.
fn unauthenticated(error: &RedisError) -> bool {
    let detail = error.detail().unwrap_or_default();
    detail.contains("unauthenticated")
}

/// The numbers that a script answered: the time, then the outcome of each call. They come
/// packed in a text, which is read in a fraction of the time that so many replies take, or in a list
/// of a few.
pub(super) fn numbers(value: &Value, expected: usize) -> Result<Arc<[i64]>, StoreError> {
    let unexpected = || StoreError::new("Redis: a reply that is not the script's", false);
    let text = match value {
        Value::BulkString(text) => Cow::Borrowed(text),
        // Of so many calls that the stack of the script had no room for all numbers at once.
        Value::Array(texts) => {
            let mut whole = Vec::new();
            for text in texts {
                let Value::BulkString(text) = text else {
                    return Err(unexpected());
                };
                whole.extend(text);
            }
            Cow::Owned(whole)
        }
        _ => return Err(unexpected()),
    };
    if text.len() != 8 * expected {
        return Err(unexpected());
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "whole numbers below 2^53; of any other the largest or zero"
    )]
    let whole = |double: &[u8]| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(double);
        f64::from_le_bytes(bytes) as i64
    };
    Ok(text.chunks_exact(8).map(whole).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(reply: &str) -> RedisError {
        let parsed = redis::parse_redis_value(format!("-{reply}\r\n").as_bytes());
        match parsed.expect("a reply") {
            Value::ServerError(error) => error.into(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn error_replies_are_classified() {
        let cases = [
            ("NOSCRIPT No matching script", ErrorClass::NoScript),
            (
                "READONLY You can't write against a read only replica.",
                ErrorClass::WrongServer,
            ),
            (
                "LOADING Redis is loading the dataset in memory",
                ErrorClass::Unavailable,
            ),
            (
                "BUSY Redis is busy running a script",
                ErrorClass::Unavailable,
            ),
            (
                "OOM command not allowed when used memory > 'maxmemory'.",
                ErrorClass::Unavailable,
            ),
            ("ERR max number of clients reached", ErrorClass::Unavailable),
            (
                "NOPERM this user has no permissions to run 'evalsha'",
                ErrorClass::Permanent,
            ),
            ("NOAUTH Authentication required.", ErrorClass::Permanent),
            ("WRONGTYPE Operation against a key", ErrorClass::Permanent),
            ("ERR unknown command", ErrorClass::Permanent),
            (
                "ERR Error running script (call to f_1): @user_script:6: -OOM command not allowed",
                ErrorClass::Unavailable,
            ),
            (
                "ERR Error running script (call to f_1): @user_script:6: -READONLY You can't write",
                ErrorClass::WrongServer,
            ),
        ];
        for (reply, class) in cases {
            assert_eq!(ErrorClass::of(&server(reply)), class, "{reply}");
        }
    }

    #[test]
    fn a_broken_connection_is_indeterminate_and_a_refused_one_is_not_executed() {
        use std::io::{Error, ErrorKind};

        let of = |kind: ErrorKind| ErrorClass::of(&RedisError::from(Error::from(kind)));
        for kind in [
            ErrorKind::TimedOut,
            ErrorKind::ConnectionReset,
            ErrorKind::UnexpectedEof,
            ErrorKind::BrokenPipe,
        ] {
            assert_eq!(of(kind), ErrorClass::Indeterminate, "{kind:?}");
        }
        assert_eq!(of(ErrorKind::ConnectionRefused), ErrorClass::Unavailable);
    }

    #[test]
    fn only_permanent_errors_are_not_transient() {
        let error = server("NOPERM this user has no permissions");
        let error = ErrorClass::of(&error).error(&error);
        assert!(!error.is_transient() && error.to_string().contains("let this user run"));
        let error = server("OOM command not allowed");
        assert!(ErrorClass::of(&error).error(&error).is_transient());
    }
}
