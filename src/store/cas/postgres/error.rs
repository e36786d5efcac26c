//! What an error of the server means, and what to do about it.

use tokio_postgres::{Error, error::DbError};

use crate::error::StoreError;
use crate::store::remote::certificate_advice;

/// Why a statement returned nothing.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) class: Class,
    pub(super) error: StoreError,
}

/// What the store does after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// The server rolled back, because another transaction changed the row.
    Conflict,
    /// The connection is of no use any more: it is broken, has lost a prepared statement, or leads to a server that only
    /// reads.
    BadConnection,
    /// The server rolled back, because another transaction held a row for long, or this one took too long.
    TooSlow,
    /// There is no such table.
    MissingTable,
    /// The connection works.
    Other,
}

impl Failed {
    /// The error of a call, with what to do.
    pub(super) fn of(error: &Error, table: &str) -> Self {
        use Class::{BadConnection, Conflict, MissingTable, Other, TooSlow};
        let Some(database) = error.as_db_error() else {
            return Self::without_code(error, error.is_closed());
        };
        let code = database.code().code();
        // Connections, rollbacks, too few resources, operators, the system.
        let class = code.get(..2).unwrap_or_default();
        let is_usual = matches!(class, "08" | "40" | "53" | "57" | "58");
        let class = match code {
            "42P01" => MissingTable,
            // An unknown statement, and one whose name is taken; a server that shuts down.
            "26000" | "42P05" | "57P01" | "57P02" | "57P03" => BadConnection,
            _ if only_reads(database) => BadConnection,
            // A transaction in which this machine stopped; a row that is locked; a statement that was cancelled.
            "25P03" | "55P03" | "57014" => TooSlow,
            // A serialization failure, a deadlock.
            "40001" | "40P01" => Conflict,
            _ => Other,
        };
        let advice = match code {
            "3F000" => "; create the schema",
            "42P01" => {
                "; make the table NAME with `create_table`, or with the statements that `migration` \
                 returns"
            }
            "42703" | "42804" | "42P10" => {
                "; the table NAME is not one of this version of tower-throttle: choose another name, \
                 or drop it"
            }
            "42501" => {
                "; this role needs SELECT, INSERT, UPDATE and DELETE on the table NAME, and CREATE on \
                 its schema to make it"
            }
            "28P01" | "28000" => "; check the user, the password and pg_hba.conf",
            "3D000" => "; check the name of the database",
            "08P01" if is_refused_by_pooler(database) => {
                "; check the user, the password and the database, also in the files of the pooler"
            }
            _ if only_reads(database) => {
                "; this server only reads: name all servers in the URL, with \
                 target_session_attrs=read-write"
            }
            "26000" | "42P05" => {
                "; a proxy gives this client's statements to several connections: call \
                 `behind_pooler`"
            }
            "55P03" => "; another transaction holds this row, and should not take so long",
            "53100" => "; free some disk space",
            _ => "",
        };
        // The database was dropped, or the pooler refuses it.
        let is_lasting = code == "57P04" || code == "08P01" && is_refused_by_pooler(database);
        let transient = is_usual && !is_lasting || only_reads(database);
        let advice = advice.replace("NAME", &format!("{table:?}"));
        let text = format!("PostgreSQL: {} ({code}){advice}", database.message());
        let error = if matches!(class, Conflict | TooSlow) {
            StoreError::of_key(text)
        } else {
            StoreError::new(text, transient)
        };
        Self { class, error }
    }

    /// An error on the way to the server or back.
    fn without_code(error: &dyn std::error::Error, mut transient: bool) -> Self {
        let mut text = format!("PostgreSQL: {error}");
        let mut cause = error.source();
        while let Some(inner) = cause {
            transient |= inner.is::<std::io::Error>();
            let inner_text = inner.to_string();
            if !text.ends_with(&inner_text) {
                text = format!("{text}: {inner_text}");
            }
            cause = inner.source();
        }
        if let Some(advice) = certificate_advice(&text) {
            (text, transient) = (text + advice, false);
        }
        Self {
            class: Class::BadConnection,
            error: StoreError::new(text, transient),
        }
    }

    pub(super) fn into_error(self) -> StoreError {
        self.error
    }
}

/// An error that is not about the statement.
impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        Self {
            class: Class::Other,
            error,
        }
    }
}

/// Whether pgbouncer refuses the user, the password or the database. It has one code for all errors.
fn is_refused_by_pooler(error: &DbError) -> bool {
    const REFUSALS: [&str; 7] = [
        "authentication failed",
        "auth failed",
        "no such database",
        "no such user",
        "does not exist",
        "login rejected",
        "not allowed",
    ];
    let message = error.message();
    REFUSALS.iter().any(|refusal| message.contains(refusal))
}

/// Whether the server is a replica, or a former primary after a failover. A replica has no rows of
/// an unlogged table, and refuses also to read them, with the code of all that is not supported.
fn only_reads(error: &DbError) -> bool {
    match error.code().code() {
        "25006" => true,
        "0A000" => error.routine() == Some("get_relation_info"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};

    use super::*;

    #[derive(Debug)]
    struct Handshake(Error);

    impl std::fmt::Display for Handshake {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("error performing TLS handshake")
        }
    }

    impl std::error::Error for Handshake {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&self.0)
        }
    }

    /// Shows promise 97.
    #[test]
    fn a_certificate_that_is_not_trusted_is_a_mistake_and_a_lost_connection_is_none() {
        let untrusted = Error::other("invalid peer certificate: UnknownIssuer");
        for (cause, is_transient) in [
            (untrusted, false),
            (ErrorKind::ConnectionReset.into(), true),
        ] {
            let Failed { error, .. } = Failed::without_code(&Handshake(cause), false);
            assert_eq!(error.is_transient(), is_transient, "{error}");
            let has_advice = error.to_string().contains("the trusted certificates");
            assert_eq!(has_advice, !is_transient, "{error}");
        }
    }
}
