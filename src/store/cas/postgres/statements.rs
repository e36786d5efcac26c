//! Sends statements, and reads what they return.

use std::{sync::Arc, time::Duration};

use tokio_postgres::{
    Error, Row,
    types::{FromSql, Type},
};

use super::{
    connections::Connections,
    error::{Class, store_error},
    link::TakenLink,
    prepared::Parameter,
    sql::Sql,
};
use crate::clock::Tick;
use crate::error::StoreError;
use crate::store::cas::{Loaded, Swapped, Value, Version};

/// A sweep reads a row at most so long after it expires: as long as its time to live, but within these
/// bounds. So its index entry changes at most once in that time.
pub(super) const MIN_SLACK: Duration = Duration::from_secs(60);
const MAX_SLACK: Duration = Duration::from_secs(3_600);
/// A thousand years, so that no sum overflows.
const MAX_TTL_MICROS: u64 = 1_000 * 366 * 86_400 * 1_000_000;

/// The statements on one table.
#[derive(Clone, Debug)]
pub(super) struct Calls {
    pub(super) pool: Connections,
    pub(super) sql: Arc<Sql>,
    /// Whether statements are prepared.
    pub(super) prepares: bool,
}

/// What a sweep did.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Swept {
    /// Rows that were due.
    pub(super) read: u64,
    /// Those of them that had expired.
    pub(super) removed: u64,
}

/// Why a statement returned nothing.
pub(super) struct CallError {
    pub(super) class: Class,
    pub(super) error: StoreError,
}

impl Calls {
    pub(super) async fn load(&self, key: &str) -> Result<Loaded, StoreError> {
        let table = &self.sql;
        let rows = self.query(&table.load, &[(&key, Type::TEXT)]).await;
        let row = Self::only(rows.map_err(|error| error.error)?)?;
        let now = self.get(&row, 0)?;
        self.loaded(&row, now)
    }

    pub(super) async fn swap(
        &self,
        key: &str,
        expected: Option<Version>,
        new: &Value,
        ttl: Duration,
    ) -> Result<Swapped, StoreError> {
        let version = bits(new.version);
        let slack = micros(ttl.clamp(MIN_SLACK, MAX_SLACK));
        let ttl = micros(ttl);
        let old = expected.map(bits);
        let table = &self.sql;
        let (sql, last) = match &old {
            None => (&table.insert, &slack),
            Some(old) => (&table.update, old),
        };
        let parameters: [Parameter<'_>; 5] = [
            (&key, Type::TEXT),
            (&version, Type::INT8),
            (&new.bytes, Type::BYTEA),
            (&ttl, Type::INT8),
            (last, Type::INT8),
        ];
        let rows = match self.query(sql, &parameters).await {
            Ok(rows) => rows,
            Err(error) if error.class == Class::Conflict => return Ok(Swapped::Conflict(None)),
            Err(error) => return Err(error.error),
        };
        let Some(row) = rows.first() else {
            return Ok(Swapped::Conflict(None));
        };
        let expires_at: i64 = self.get(row, 0)?;
        Ok(Swapped::Done(Some(tick(expires_at.saturating_sub(ttl)))))
    }

    /// Reads up to `limit` rows that are due, and removes those of them that have expired.
    pub(super) async fn sweep(&self, limit: u32) -> Result<Swept, StoreError> {
        let limit = i64::from(limit);
        let (least, most) = (micros(MIN_SLACK), micros(MAX_SLACK));
        let parameters: [Parameter<'_>; 3] = [
            (&limit, Type::INT8),
            (&least, Type::INT8),
            (&most, Type::INT8),
        ];
        let row = match self.query(&self.sql.sweep, &parameters).await {
            Ok(rows) => Self::only(rows)?,
            // Another machine sweeps.
            Err(error) if error.class == Class::Conflict => return Ok(Swept::default()),
            Err(error) => return Err(error.error),
        };
        let count = |column| {
            let count: i64 = self.get(&row, column)?;
            Ok(u64::try_from(count).unwrap_or(0))
        };
        Ok(Swept {
            read: count(0)?,
            removed: count(1)?,
        })
    }

    /// Returns an error that says what is missing, unless the tables can be used.
    pub(super) async fn check(&self) -> Result<(), CallError> {
        let table = &self.sql;
        let row = Self::only(self.query(&table.probe, &[]).await?)?;
        let table = &table.name;
        if !self.get(&row, 0)? {
            let text = format!(
                "PostgreSQL: this role may not write to the table {table:?}; grant SELECT, INSERT, \
                 UPDATE and DELETE on it"
            );
            return Err(StoreError::new(text, false).into());
        }
        if self.get(&row, 1)? {
            let text = "PostgreSQL: this server is a replica, which only reads; name all servers in \
                        the URL, with target_session_attrs=read-write";
            return Err(StoreError::new(text, true).into());
        }
        Ok(())
    }

    /// Runs several statements in one transaction.
    pub(super) async fn run_all(&self, statements: &str) -> Result<(), StoreError> {
        let connection = self.pool.get().await?;
        let result = connection.client.batch_execute(statements).await;
        let usable = !matches!(&result, Err(error) if Class::of(error) == Class::BadConnection);
        connection.release(usable);
        result.map_err(|error| store_error(&error, &self.sql.name))
    }

    async fn query(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, CallError> {
        match self.query_once(sql, parameters).await {
            // The statement was not executed, and is now prepared anew.
            Err(error) if error.class == Class::StaleStatement && self.prepares => {
                self.query_once(sql, parameters).await
            }
            result => result,
        }
    }

    async fn query_once(
        &self,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, CallError> {
        let connection = self.pool.get().await?;
        let result = match self.request(&connection, sql, parameters).await {
            Ok(request) => request
                .await
                .map_err(|error| self.failed(&connection, &error)),
            Err(error) => Err(error),
        };
        let is_bad = |error: &CallError| error.class == Class::BadConnection;
        connection.release(!result.as_ref().is_err_and(is_bad));
        result
    }

    /// The error of a statement.
    pub(super) fn failed(&self, connection: &TakenLink, error: &Error) -> CallError {
        let class = Class::of(error);
        if class == Class::StaleStatement {
            connection.statements.clear();
        }
        CallError {
            class,
            error: store_error(error, &self.sql.name),
        }
    }

    /// The value of a row that was loaded, unless it has expired at `now`.
    pub(super) fn loaded(&self, row: &Row, now: i64) -> Result<Loaded, StoreError> {
        let version: Option<i64> = self.get(row, 1)?;
        let bytes: Option<Vec<u8>> = self.get(row, 2)?;
        let expires_at: Option<i64> = self.get(row, 3)?;
        let value = match (version, bytes, expires_at) {
            (Some(version), Some(bytes), Some(expires_at)) if expires_at > now => Some(Value::new(
                Version::from_u64(u64::from_ne_bytes(version.to_ne_bytes())),
                bytes,
            )),
            _ => None,
        };
        Ok(Loaded::new(value).at(tick(now)))
    }

    pub(super) fn get<'a, T: FromSql<'a>>(
        &self,
        row: &'a Row,
        column: usize,
    ) -> Result<T, StoreError> {
        row.try_get(column)
            .map_err(|error| store_error(&error, &self.sql.name))
    }

    /// The only row of a result.
    fn only(rows: Vec<Row>) -> Result<Row, StoreError> {
        let missing = || StoreError::new("PostgreSQL: a statement returned no row", false);
        rows.into_iter().next().ok_or_else(missing)
    }
}

/// An error that is not about the statement.
impl From<StoreError> for CallError {
    fn from(error: StoreError) -> Self {
        Self {
            class: Class::Other,
            error,
        }
    }
}

/// The version in the signed numbers of SQL.
pub(super) fn bits(version: Version) -> i64 {
    i64::from_ne_bytes(version.as_u64().to_ne_bytes())
}

/// Rounded up: a value never expires early.
pub(super) fn micros(span: Duration) -> i64 {
    let micros = span
        .as_nanos()
        .div_ceil(1_000)
        .min(u128::from(MAX_TTL_MICROS));
    i64::try_from(micros).unwrap_or(i64::MAX)
}

/// A moment in microseconds since 1970.
pub(super) fn tick(micros: i64) -> Tick {
    let micros = u64::try_from(micros).unwrap_or(0);
    Tick::from_nanos(micros.saturating_mul(1_000))
}
