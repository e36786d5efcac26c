//! What a reply means: whether the call was carried out, and what to do about it.

use std::{borrow::Cow, sync::Arc};

use redis::{ErrorKind, RedisError, Value};

use crate::error::StoreError;

/// How a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// The server does not know the script: not carried out, and mended by sending its text.
    NoScript,
    /// Not carried out, and this connection leads to the wrong server.
    WrongServer,
    /// Not carried out, for the slot is on its way to another server.
    Moving,
    /// Not carried out; passes by itself.
    NotNow,
    /// Nobody knows whether it was carried out, so it is never sent again; the connection is of no
    /// further use.
    Unknown,
    /// Not carried out, and somebody has to mend it.
    Wrong,
}

impl Class {
    pub(super) fn of(error: &RedisError) -> Self {
        match error.kind() {
            ErrorKind::AuthenticationFailed
            | ErrorKind::InvalidClientConfig
            | ErrorKind::Client
            | ErrorKind::RESP3NotSupported
            | ErrorKind::EmptySentinelList => return Self::Wrong,
            ErrorKind::MasterNameNotFoundBySentinel
            | ErrorKind::NoValidReplicasFoundBySentinel
            | ErrorKind::ClusterConnectionNotFound => return Self::NotNow,
            _ if error.is_connection_refusal() => return Self::NotNow,
            _ => {}
        }
        match error.code() {
            Some("ERR") => Self::of_older(error.detail().unwrap_or_default()),
            Some(code) => Self::of_code(code),
            None => Self::Unknown,
        }
    }

    fn of_code(code: &str) -> Self {
        match code {
            "NOSCRIPT" => Self::NoScript,
            "READONLY" | "MOVED" | "ASK" | "MASTERDOWN" | "UNBLOCKED" => Self::WrongServer,
            "TRYAGAIN" | "CLUSTERDOWN" => Self::Moving,
            "LOADING" | "BUSY" | "OOM" | "NOREPLICAS" | "MISCONF" => Self::NotNow,
            _ => Self::Wrong,
        }
    }

    /// Before 7.0 a server wrapped what a command in a script replied into text:
    /// `Error running script (call to f_..): @user_script:6: -OOM command not allowed`.
    fn of_older(text: &str) -> Self {
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
            return Self::NotNow;
        }
        let found = CODES
            .iter()
            .find(|code| text.contains(&format!("-{code} ")));
        found.map_or(Self::Wrong, |code| Self::of_code(code))
    }

    /// Whether the connection is to be replaced.
    pub(super) const fn spoils_connection(self) -> bool {
        matches!(self, Self::WrongServer | Self::Unknown)
    }

    pub(super) fn error(self, error: &RedisError) -> StoreError {
        let advice = match (self, error.code()) {
            (Self::Wrong, Some("NOPERM")) => {
                "; let this user run EVAL, EVALSHA and TIME, and GET, SET, PSETEX, DEL, GETRANGE, \
                 SETRANGE and PEXPIRE on the keys under the prefix"
            }
            (Self::Wrong, Some("NOAUTH" | "WRONGPASS")) => "; mend the user or password in the URL",
            (Self::Wrong, Some("CROSSSLOT")) => "; connect with a cluster client",
            (_, Some("OOM")) => "; give the server memory, its maxmemory is used up",
            (Self::WrongServer, Some("READONLY")) => {
                "; a replica answers in the place of a primary"
            }
            _ if error.kind() == ErrorKind::AuthenticationFailed || unauthenticated(error) => {
                "; mend the user or password in the URL"
            }
            _ => "",
        };
        let transient = self != Self::Wrong;
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
    fn replies_of_a_call_that_was_not_carried_out_are_told_from_the_others() {
        let cases = [
            ("NOSCRIPT No matching script", Class::NoScript),
            (
                "READONLY You can't write against a read only replica.",
                Class::WrongServer,
            ),
            (
                "LOADING Redis is loading the dataset in memory",
                Class::NotNow,
            ),
            ("BUSY Redis is busy running a script", Class::NotNow),
            (
                "OOM command not allowed when used memory > 'maxmemory'.",
                Class::NotNow,
            ),
            ("ERR max number of clients reached", Class::NotNow),
            (
                "NOPERM this user has no permissions to run 'evalsha'",
                Class::Wrong,
            ),
            ("NOAUTH Authentication required.", Class::Wrong),
            ("WRONGTYPE Operation against a key", Class::Wrong),
            ("ERR unknown command", Class::Wrong),
            (
                "ERR Error running script (call to f_1): @user_script:6: -OOM command not allowed",
                Class::NotNow,
            ),
            (
                "ERR Error running script (call to f_1): @user_script:6: -READONLY You can't write",
                Class::WrongServer,
            ),
        ];
        for (reply, class) in cases {
            assert_eq!(Class::of(&server(reply)), class, "{reply}");
        }
    }

    #[test]
    fn what_is_cut_off_is_unknown_and_what_was_refused_was_not_carried_out() {
        use std::io::{Error, ErrorKind};

        let of = |kind: ErrorKind| Class::of(&RedisError::from(Error::from(kind)));
        for kind in [
            ErrorKind::TimedOut,
            ErrorKind::ConnectionReset,
            ErrorKind::UnexpectedEof,
            ErrorKind::BrokenPipe,
        ] {
            assert_eq!(of(kind), Class::Unknown, "{kind:?}");
        }
        assert_eq!(of(ErrorKind::ConnectionRefused), Class::NotNow);
    }

    #[test]
    fn only_what_somebody_has_to_mend_is_not_transient() {
        let error = server("NOPERM this user has no permissions");
        let error = Class::of(&error).error(&error);
        assert!(!error.is_transient() && error.to_string().contains("let this user run"));
        let error = server("OOM command not allowed");
        assert!(Class::of(&error).error(&error).is_transient());
    }
}
