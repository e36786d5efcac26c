//! What a reply means: whether the call was executed, and what to do about it.

use redis::{ErrorKind, RedisError};

use crate::error::StoreError;
use crate::store::remote::certificate_advice;

/// How a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ErrorClass {
    /// Not executed: the server does not know the script. Sending its text helps.
    NoScript,
    /// Not executed: this connection leads to the wrong server.
    WrongServer,
    /// Not executed: another server of a cluster has the slot of the key.
    Redirected,
    /// Not executed: the slot is migrating to another server.
    SlotMigrating,
    /// Not executed: the keys are in different slots of a cluster.
    CrossSlot,
    /// Not executed, and transient.
    Unavailable,
    /// It is unknown whether the call was executed, so it is never sent again. The connection is no
    /// longer usable.
    Indeterminate,
    /// Not executed, and not transient: the configuration is wrong.
    Permanent,
}

impl ErrorClass {
    pub(super) fn from_error(error: &RedisError) -> Self {
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
            Some("ERR") => Self::from_text(error.detail().unwrap_or_default()),
            Some(code) => Self::from_code(code),
            None => Self::Indeterminate,
        }
    }

    /// The class of an error while connecting: no call has been sent, so nothing is unknown.
    pub(super) fn from_connect_error(error: &RedisError) -> Self {
        match Self::from_error(error) {
            Self::Permanent => Self::Permanent,
            _ if advice_on_certificate(error).is_some() => Self::Permanent,
            _ => Self::Unavailable,
        }
    }

    fn from_code(code: &str) -> Self {
        match code {
            "NOSCRIPT" => Self::NoScript,
            "READONLY" | "MASTERDOWN" | "UNBLOCKED" => Self::WrongServer,
            "MOVED" | "ASK" => Self::Redirected,
            "TRYAGAIN" | "CLUSTERDOWN" => Self::SlotMigrating,
            "CROSSSLOT" => Self::CrossSlot,
            "LOADING" | "BUSY" | "OOM" | "NOREPLICAS" | "MISCONF" => Self::Unavailable,
            _ => Self::Permanent,
        }
    }

    /// The class of an error that has no code of its own.
    fn from_text(text: &str) -> Self {
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
        // `SCRIPT KILL` ends scripts that have written nothing.
        if text.contains("max number of clients") || text.contains("Script killed by user") {
            return Self::Unavailable;
        }
        // Before 7.0 a server wrapped the error of a command in a script:
        // `Error running script (call to f_..): @user_script:6: -OOM command not allowed`.
        let found = CODES
            .iter()
            .find(|code| text.contains(&format!("-{code} ")));
        found.map_or(Self::Permanent, |code| Self::from_code(code))
    }

    /// Whether the connection has to be replaced.
    pub(super) const fn invalidates_connection(self) -> bool {
        matches!(
            self,
            Self::WrongServer | Self::Redirected | Self::Indeterminate
        )
    }

    /// `by_cluster_client`: whether the client follows redirections itself.
    pub(super) fn to_store_error(self, error: &RedisError, by_cluster_client: bool) -> StoreError {
        let advice = match (self, error.code()) {
            _ if is_forbidden(error) => {
                "; let this user run EVAL, EVALSHA and TIME, and GET, PSETEX, SETRANGE and DEL on the keys under the prefix"
            }
            (Self::Permanent, Some("NOAUTH" | "WRONGPASS")) => WRONG_PASSWORD,
            (Self::CrossSlot | Self::Redirected, _) if !by_cluster_client => {
                "; the server is part of a cluster: connect with Redis::with_cluster"
            }
            _ if names(error, "OOM") => "; the server's maxmemory is used up: give it more memory",
            (Self::WrongServer, _) if names(error, "READONLY") => {
                "; the address leads to a replica"
            }
            _ if error.kind() == ErrorKind::AuthenticationFailed || is_unauthenticated(error) => {
                WRONG_PASSWORD
            }
            _ => advice_on_certificate(error).unwrap_or_default(),
        };
        let transient = match self {
            Self::Permanent | Self::CrossSlot => false,
            Self::Redirected => by_cluster_client,
            _ => true,
        };
        StoreError::new(format!("Redis: {error}{advice}"), transient)
    }
}

const WRONG_PASSWORD: &str = "; correct the user or password in the URL";

/// A long command before authentication gets a protocol error instead of NOAUTH.
fn is_unauthenticated(error: &RedisError) -> bool {
    let detail = error.detail().unwrap_or_default();
    detail.contains("unauthenticated")
}

/// Whether an error has a code. Redis before 7.0 wraps an error inside a script in a text.
fn names(error: &RedisError, code: &str) -> bool {
    let wrapped = format!("-{code} ");
    error.code() == Some(code) || error.detail().unwrap_or_default().contains(&wrapped)
}

/// A command inside a script reports a missing permission as text, with another code.
fn is_forbidden(error: &RedisError) -> bool {
    let detail = error.detail().unwrap_or_default();
    error.code() == Some("NOPERM")
        || detail.contains("NOPERM")
        || detail.contains("The user executing the script")
        // Since 7.2.
        || detail.contains("ACL failure in script")
}

fn advice_on_certificate(error: &RedisError) -> Option<&'static str> {
    certificate_advice(&error.to_string()).filter(|_| error.is_io_error())
}

#[cfg(test)]
mod tests {
    use redis::Value;

    use super::*;

    fn server(reply: &str) -> RedisError {
        let parsed = redis::parse_redis_value(format!("-{reply}\r\n").as_bytes());
        match parsed.expect("a reply") {
            Value::ServerError(error) => error.into(),
            other => panic!("{other:?}"),
        }
    }

    /// An error is transient if it can go away by itself, or if the server is down.
    #[test]
    fn each_error_has_its_class_and_the_advice_that_helps() {
        use ErrorClass::{
            CrossSlot, NoScript, Permanent, Redirected, SlotMigrating, Unavailable, WrongServer,
        };
        let in_script =
            |code| format!("ERR Error running script (call to f_1): @user_script:6: -{code} ..");
        let cluster = "connect with Redis::with_cluster";
        for (reply, class, advice) in [
            ("NOSCRIPT No matching script", NoScript, ""),
            ("READONLY You can't write", WrongServer, "to a replica"),
            (&in_script("READONLY"), WrongServer, "to a replica"),
            ("MASTERDOWN Link with MASTER is down", WrongServer, ""),
            ("MOVED 3999 127.0.0.1:6381", Redirected, cluster),
            ("ASK 3999 127.0.0.1:6381", Redirected, cluster),
            ("CROSSSLOT Keys in request", CrossSlot, cluster),
            ("TRYAGAIN Multiple keys request", SlotMigrating, ""),
            ("CLUSTERDOWN The cluster is down", SlotMigrating, ""),
            ("LOADING Redis is loading the dataset", Unavailable, ""),
            ("BUSY Redis is busy running a script", Unavailable, ""),
            (
                "ERR Error running script: Script killed by user with SCRIPT KILL.",
                Unavailable,
                "",
            ),
            ("NOREPLICAS Not enough good replicas", Unavailable, ""),
            ("MISCONF Redis is configured to save", Unavailable, ""),
            ("OOM command not allowed", Unavailable, "more memory"),
            (&in_script("OOM"), Unavailable, "more memory"),
            ("ERR max number of clients reached", Unavailable, ""),
            (
                "NOAUTH Authentication required.",
                Permanent,
                "the user or password",
            ),
            (
                "WRONGPASS invalid username-password",
                Permanent,
                "the user or password",
            ),
            (
                "ERR Protocol error: unauthenticated multibulk length",
                Permanent,
                "the user or password",
            ),
            (
                "NOPERM this user has no permissions",
                Permanent,
                "let this user run",
            ),
            (
                "ERR The user executing the script can't run this",
                Permanent,
                "let this user run",
            ),
            ("WRONGTYPE Operation against a key", Permanent, ""),
            ("EXECABORT Transaction discarded", Permanent, ""),
            ("ERR unknown command", Permanent, ""),
        ] {
            let error = server(reply);
            assert_eq!(ErrorClass::from_error(&error), class, "{reply}");
            let told = class.to_store_error(&error, false);
            let transient = !matches!(class, Permanent | CrossSlot | Redirected);
            assert_eq!(told.is_transient(), transient, "{told}");
            let text = told.to_string();
            assert_eq!(text.contains(';'), !advice.is_empty(), "{text}");
            assert!(text.contains(advice), "{text}");
            // The client of a cluster follows redirections.
            let by_cluster = class.to_store_error(&error, true);
            assert_eq!(by_cluster.is_transient(), transient || class == Redirected);
            assert!(advice != cluster || !by_cluster.to_string().contains(';'));
        }
    }

    #[test]
    fn a_broken_connection_is_indeterminate_and_a_refused_one_is_not_executed() {
        use std::io::{Error, ErrorKind};

        let class_of =
            |kind: ErrorKind| ErrorClass::from_error(&RedisError::from(Error::from(kind)));
        for kind in [
            ErrorKind::TimedOut,
            ErrorKind::ConnectionReset,
            ErrorKind::UnexpectedEof,
            ErrorKind::BrokenPipe,
        ] {
            assert_eq!(class_of(kind), ErrorClass::Indeterminate, "{kind:?}");
        }
        assert_eq!(
            class_of(ErrorKind::ConnectionRefused),
            ErrorClass::Unavailable
        );
    }

    fn certificate_error() -> RedisError {
        std::io::Error::other("invalid peer certificate: UnknownIssuer").into()
    }

    #[test]
    fn a_server_that_is_not_found_is_an_outage_and_a_wrong_certificate_is_not() {
        for kind in [
            ErrorKind::MasterNameNotFoundBySentinel,
            ErrorKind::NoValidReplicasFoundBySentinel,
            ErrorKind::ClusterConnectionNotFound,
        ] {
            let class = ErrorClass::from_error(&(kind, "not found").into());
            assert_eq!(class, ErrorClass::Unavailable, "{kind:?}");
        }
        let class = ErrorClass::from_connect_error(&certificate_error());
        assert_eq!(class, ErrorClass::Permanent);
        let no_entry = (ErrorKind::AuthenticationFailed, "no entry").into();
        for (error, advice) in [
            (certificate_error(), "the trusted certificates"),
            (no_entry, WRONG_PASSWORD),
        ] {
            let class = ErrorClass::from_connect_error(&error);
            let told = class.to_store_error(&error, false).to_string();
            assert!(told.ends_with(advice), "{told}");
        }
        let reset = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        let class = ErrorClass::from_connect_error(&reset.into());
        assert_eq!(class, ErrorClass::Unavailable);
    }
}
