//! What an error of the driver or of the cluster means, and what to do about it.

use scylla::errors::{
    BadQuery, ConnectionError, ConnectionPoolError, ConnectionSetupRequestErrorKind, DbError,
    ExecutionError, MetadataError, NewSessionError, PrepareError, RequestAttemptError, WriteType,
};

use crate::error::StoreError;
use crate::store::remote::certificate_advice;

/// Whether a swap that failed has succeeded nevertheless: its replicas have agreed on it, and only
/// the last step was not acknowledged in time. The next read finishes that step.
pub(super) fn is_agreed(error: &ExecutionError) -> bool {
    let ExecutionError::LastAttemptError(RequestAttemptError::DbError(error, _)) = error else {
        return false;
    };
    matches!(
        error,
        DbError::WriteTimeout {
            write_type: WriteType::Simple,
            ..
        }
    )
}

pub(super) fn from_execution(error: &ExecutionError, table: &str) -> StoreError {
    match error {
        ExecutionError::PrepareError(error) => from_prepare(error, table),
        ExecutionError::ConnectionPoolError(error) => from_pool(error),
        ExecutionError::LastAttemptError(error) => from_attempt(error, table),
        ExecutionError::BadQuery(BadQuery::SerializationError(_)) => new(error, "", false),
        // A cluster whose nodes are all down; a deadline of the driver; schemas that differ.
        _ => new(error, "", true),
    }
}

pub(super) fn from_prepare(error: &PrepareError, table: &str) -> StoreError {
    match error {
        PrepareError::ConnectionPoolError(error) => from_pool(error),
        PrepareError::AllAttemptsFailed { first_attempt } => from_attempt(first_attempt, table),
        _ => new(error, "", true),
    }
}

pub(super) fn from_new_session(error: &NewSessionError) -> StoreError {
    match error {
        NewSessionError::MetadataError(MetadataError::ConnectionPoolError(error)) => {
            from_pool(error)
        }
        NewSessionError::EmptyKnownNodesList | NewSessionError::UseKeyspaceError(_) => {
            new(error, "", false)
        }
        _ => new(error, "", true),
    }
}

fn from_pool(error: &ConnectionPoolError) -> StoreError {
    let refused = match error {
        ConnectionPoolError::Broken {
            last_connection_error: ConnectionError::ConnectionSetupRequestError(error),
        } => matches!(
            error.error,
            ConnectionSetupRequestErrorKind::DbError(DbError::AuthenticationError, _)
                | ConnectionSetupRequestErrorKind::MissingAuthentication
        ),
        _ => false,
    };
    if refused {
        return new(error, "; check the user and the password", false);
    }
    let advice = certificate_advice(&error.to_string());
    new(error, advice.unwrap_or_default(), advice.is_none())
}

fn from_attempt(error: &RequestAttemptError, table: &str) -> StoreError {
    let RequestAttemptError::DbError(of_database, message) = error else {
        let mistake = matches!(
            error,
            RequestAttemptError::SerializationError(_)
                | RequestAttemptError::CqlRequestSerialization(_)
        );
        return new(error, "", !mistake);
    };
    let advice = match of_database {
        DbError::Invalid if message.to_lowercase().contains("keyspace") => format!(
            "; create the keyspace of {table:?}, with the replication of your cluster: CREATE \
             KEYSPACE .. WITH replication = {{..}}"
        ),
        DbError::Invalid => format!(
            "; make the table {table:?} with `create_table`, or with the statement that \
             `migration` returns; if there is another table of this name, choose another one"
        ),
        DbError::Unauthorized => format!(
            "; this role needs SELECT and MODIFY on the table {table:?}, and CREATE on its \
             keyspace to make it"
        ),
        DbError::ConfigError => "; check the consistency that the keyspace allows".to_owned(),
        _ => String::new(),
    };
    let transient = !matches!(
        of_database,
        DbError::SyntaxError
            | DbError::Invalid
            | DbError::AlreadyExists { .. }
            | DbError::AuthenticationError
            | DbError::Unauthorized
            | DbError::ConfigError
            | DbError::ProtocolError
    );
    // The replicas of a partition are not there, or others swap it: those of other partitions may reply.
    let is_of_key = matches!(
        of_database,
        DbError::Unavailable { .. } | DbError::WriteTimeout { .. } | DbError::ReadTimeout { .. }
    );
    let error = format!("{of_database}: {message}");
    if is_of_key || *of_database == CAS_WRITE_UNKNOWN {
        return StoreError::of_key(format!("Cassandra: {error}"));
    }
    new(error, &advice, transient)
}

/// It is not known whether a swap was executed, as others swap the same value. The driver has no name for it.
const CAS_WRITE_UNKNOWN: DbError = DbError::Other(0x1700);

fn new(error: impl std::fmt::Display, advice: &str, transient: bool) -> StoreError {
    StoreError::new(format!("Cassandra: {error}{advice}"), transient)
}

#[cfg(test)]
mod tests {
    use scylla::statement::Consistency;

    use super::*;

    fn write_timeout(write_type: WriteType) -> ExecutionError {
        let error = DbError::WriteTimeout {
            consistency: Consistency::LocalQuorum,
            received: 1,
            required: 2,
            write_type,
        };
        RequestAttemptError::DbError(error, "timed out".to_owned()).into()
    }

    #[test]
    fn a_swap_has_succeeded_only_if_its_replicas_agreed() {
        assert!(is_agreed(&write_timeout(WriteType::Simple)));
        for write_type in [WriteType::Cas, WriteType::Other("NEW".to_owned())] {
            let error = write_timeout(write_type);
            assert!(!is_agreed(&error));
            let error = from_execution(&error, "a.b");
            assert!(error.is_transient() && error.is_of_key());
        }
        assert!(!is_agreed(&ExecutionError::EmptyPlan));
    }

    /// Shows promise 97.
    #[test]
    fn a_certificate_that_is_not_trusted_is_a_mistake_and_a_lost_connection_is_none() {
        for (cause, is_transient) in [("invalid peer certificate", false), ("reset", true)] {
            let error = std::io::Error::other(cause);
            let error = ConnectionPoolError::Broken {
                last_connection_error: error.into(),
            };
            let error = from_new_session(&MetadataError::ConnectionPoolError(error).into());
            assert_eq!(error.is_transient(), is_transient, "{error}");
        }
    }

    #[test]
    fn an_unknown_outcome_and_an_overload_are_transient() {
        let replicas_are_down = DbError::Unavailable {
            consistency: Consistency::LocalQuorum,
            required: 2,
            alive: 1,
        };
        for (error, is_of_key) in [
            (CAS_WRITE_UNKNOWN, true),
            (replicas_are_down, true),
            (DbError::Overloaded, false),
        ] {
            let error = RequestAttemptError::DbError(error, "unknown".to_owned());
            let error = from_execution(&error.into(), "a.b");
            assert!(error.is_transient(), "{error}");
            assert_eq!(error.is_of_key(), is_of_key, "{error}");
        }
        let error = RequestAttemptError::DbError(DbError::Unauthorized, "no".to_owned());
        let error = from_execution(&error.into(), "a.b");
        assert!(!error.is_transient());
        assert!(
            error
                .to_string()
                .contains("needs SELECT and MODIFY on the table \"a.b\"")
        );
        for (told, advice) in [("no keyspace", "create the"), ("no table", "make the")] {
            let error = RequestAttemptError::DbError(DbError::Invalid, told.to_owned());
            let error = from_execution(&error.into(), "a.b");
            assert!(!error.is_transient() && error.to_string().contains(advice));
        }
        assert!(from_execution(&ExecutionError::EmptyPlan, "a.b").is_transient());
    }
}
