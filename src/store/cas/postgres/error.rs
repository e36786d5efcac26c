//! What an error of the server means, and what to do about it.

use tokio_postgres::{Error, error::DbError};

use crate::error::StoreError;

/// What the store does after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// The server rolled back, because another transaction changed the row.
    Conflict,
    /// The connection no longer has this prepared statement.
    StaleStatement,
    /// The connection is of no use any more: it is broken, or leads to a server that only reads.
    BadConnection,
    /// There is no such table.
    MissingTable,
    /// The connection works.
    Other,
}

impl Class {
    pub(super) fn of(error: &Error) -> Self {
        let Some(error) = error.as_db_error() else {
            return Self::BadConnection;
        };
        match error.code().code() {
            // A serialization failure, a deadlock.
            "40001" | "40P01" => Self::Conflict,
            // An unknown statement, and one whose name is taken.
            "26000" | "42P05" => Self::StaleStatement,
            "42P01" => Self::MissingTable,
            // A server that shuts down.
            "57P01" | "57P02" | "57P03" => Self::BadConnection,
            _ if only_reads(error) => Self::BadConnection,
            _ => Self::Other,
        }
    }
}

/// The error of a call, with what to do.
pub(super) fn store_error(error: &Error, table: &str) -> StoreError {
    let Some(database) = error.as_db_error() else {
        return without_code(error);
    };
    let code = database.code().code();
    let advice = match code {
        "3F000" => "; create the schema".to_owned(),
        "42P01" => format!(
            "; make the table {table:?} with `create_table`, or with the statements that \
             `migration` returns"
        ),
        "42703" | "42804" | "42P10" => format!(
            "; the table {table:?} is not one of this version of tower-throttle: choose another \
             name, or drop it"
        ),
        "42501" => {
            format!(
                "; this role needs SELECT, INSERT, UPDATE and DELETE on the table {table:?}, and \
                 CREATE on its schema to make it"
            )
        }
        "28P01" | "28000" => "; check the user, the password and pg_hba.conf".to_owned(),
        "3D000" => "; check the name of the database".to_owned(),
        "08P01" if is_refused_by_pooler(database) => {
            "; check the user, the password and the database, also in the files of the pooler"
                .to_owned()
        }
        _ if only_reads(database) => "; this server only reads: name all servers in the URL, \
                                      with target_session_attrs=read-write"
            .to_owned(),
        "26000" | "42P05" => "; a proxy gives this client's statements to several connections: \
                              call `without_prepared_statements`"
            .to_owned(),
        "55P03" => "; another transaction holds this row, and should not take so long".to_owned(),
        "53100" => "; free some disk space".to_owned(),
        _ => String::new(),
    };
    let text = format!("PostgreSQL: {} ({code}){advice}", database.message());
    StoreError::new(text, is_transient(database))
}

/// An error on the way to the server or back.
fn without_code(error: &Error) -> StoreError {
    let mut text = format!("PostgreSQL: {error}");
    let mut cause = std::error::Error::source(error);
    let mut transient = error.is_closed();
    while let Some(inner) = cause {
        transient |= inner.is::<std::io::Error>();
        let inner_text = inner.to_string();
        if !text.ends_with(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    StoreError::new(text, transient)
}

/// Whether the same call may succeed later, without an operator.
fn is_transient(error: &DbError) -> bool {
    let code = error.code().code();
    match code {
        // A full disk; a database that was dropped.
        "53100" | "57P04" => false,
        // A lock that another transaction holds.
        "55P03" => true,
        "08P01" if is_refused_by_pooler(error) => false,
        _ => {
            let class = code.get(..2).unwrap_or_default();
            // Connections, rollbacks, too few resources, operators, the system.
            matches!(class, "08" | "40" | "53" | "57" | "58") || only_reads(error)
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
