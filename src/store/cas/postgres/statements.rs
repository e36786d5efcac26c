//! Sends statements, and reads what they return.

use std::{
    future::Future,
    pin::{Pin, pin},
    task::{Context, Waker},
    time::Duration,
};

use tokio_postgres::{
    Client, Error, Row,
    types::{FromSql, Type},
};

use super::{
    connections::{Link, Parameter, TakenLink},
    error::{Class, Failed},
    sql::{MAX_SLACK, MIN_SLACK},
    store::PostgreSql,
};
use crate::clock::Tick;
use crate::error::StoreError;
use crate::store::{
    cas::{Loaded, Program, Swapped, Value},
    remote::join_all,
};

/// A thousand years, so that no sum overflows.
const MAX_TTL_MICROS: u64 = 1_000 * 366 * 86_400 * 1_000_000;
/// One of so many writes sweeps twice as many rows. A row is due once per write at most, and once more when it has
/// expired, so what is due does not pile up.
const WRITES_PER_SWEEP: u64 = 25;

/// A request that its first poll sends.
type Request<'a> = Pin<Box<dyn Future<Output = Result<Vec<Row>, Error>> + Send + 'a>>;

/// An open transaction. Dropping it rolls it back.
struct Open<'a>(Option<&'a Client>);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if let Some(client) = self.0 {
            send(client, "ROLLBACK");
        }
    }
}

/// Sends a statement behind all that was sent before. The reply is not awaited.
fn send(client: &Client, sql: &str) {
    let sent = pin!(client.batch_execute(sql));
    let _ = sent.poll(&mut Context::from_waker(Waker::noop()));
}

impl PostgreSql {
    pub(super) async fn load_value(&self, key: &str) -> Result<Loaded, Failed> {
        let rows = self.query(&self.sql.load, &[(&key, Type::TEXT)]).await?;
        let row = only(&rows)?;
        self.loaded(row, self.get(row, 0)?)
    }

    pub(super) async fn swap_value(
        &self,
        key: &str,
        expected: Option<u64>,
        new: &Value,
        ttl: Duration,
    ) -> Result<Swapped, Failed> {
        let version = bits(new.version);
        let slack = micros(ttl.clamp(MIN_SLACK, MAX_SLACK));
        let ttl = micros(ttl);
        let old = expected.map(bits);
        let (sql, last) = match &old {
            None => (&self.sql.insert, &slack),
            Some(old) => (&self.sql.update, old),
        };
        let parameters: [Parameter<'_>; 5] = [
            (&key, Type::TEXT),
            (&version, Type::INT8),
            (&new.bytes, Type::BYTEA),
            (&ttl, Type::INT8),
            (last, Type::INT8),
        ];
        let link = self.pool.get().await?;
        let result = self.query_on(&link, sql, &parameters).await;
        if result.is_ok() {
            self.sweep(&link, new.version);
        }
        release(link, &result);
        let rows = match result {
            Err(failed) if failed.class == Class::Conflict => Vec::new(),
            result => result?,
        };
        let Some(row) = rows.first() else {
            return Ok(Swapped::Conflict(None));
        };
        let expires_at: i64 = self.get(row, 0)?;
        Ok(Swapped::Done(Some(tick(expires_at.saturating_sub(ttl)))))
    }

    /// Some writes remove rows that have expired.
    fn sweep(&self, link: &Link, written: u64) {
        if written % WRITES_PER_SWEEP == 0 {
            send(&link.client, &self.sql.sweep);
        }
    }

    /// Returns an error that says what is missing, unless the table can be used.
    pub(super) async fn check_table(&self) -> Result<(), Failed> {
        let rows = self.query(&self.sql.probe, &[]).await?;
        let (row, table) = (only(&rows)?, &self.sql.name);
        if !self.get(row, 0)? {
            let text = format!(
                "PostgreSQL: this role may not write to the table {table:?}; grant SELECT, INSERT, \
                 UPDATE and DELETE on it"
            );
            return Err(StoreError::new(text, false).into());
        }
        if self.get(row, 1)? {
            let text = "PostgreSQL: this server is a replica, which only reads; name all servers in \
                        the URL, with target_session_attrs=read-write";
            return Err(StoreError::new(text, true).into());
        }
        Ok(())
    }

    /// Runs several statements in one transaction.
    pub(super) async fn run_all(&self, statements: &str) -> Result<(), Failed> {
        let link = self.pool.get().await?;
        let result = link.client.batch_execute(statements).await;
        let result = result.map_err(|error| self.failed(&error));
        release(link, &result);
        result
    }

    /// Runs a program in a transaction of two round trips, between which its rows are locked.
    ///
    /// # Cancel safety
    /// If it is dropped, the transaction is rolled back, unless it is committed already.
    pub(super) async fn run_program<Q: Program>(&self, program: &Q) -> Result<Q::Reply, Failed> {
        loop {
            let (_turn, link) = self.pool.get_exclusive().await?;
            let mut open = Open(Some(&link.client));
            let result = self.run_on(&link, program).await;
            if result.is_ok() {
                open.0 = None;
            }
            drop(open);
            release(link, &result);
            match result {
                // It had no effect.
                Err(failed) if failed.class == Class::Conflict => {}
                result => return result,
            }
        }
    }

    async fn run_on<Q: Program>(&self, link: &Link, program: &Q) -> Result<Q::Reply, Failed> {
        let (client, table) = (&link.client, &self.sql);
        let keys = program.keys();
        // Of several keys the first one may be that of a machine, for which no other one waits.
        let queue = keys.iter().skip(usize::from(keys.len() > 1)).min();
        let queue = queue.copied().unwrap_or_default();
        let slack = micros(MIN_SLACK);
        let lock: [Parameter<'_>; 3] = [
            (&keys, Type::TEXT_ARRAY),
            (&queue, Type::TEXT),
            (&slack, Type::INT8),
        ];
        let requests = vec![
            simple(client, &table.begin),
            self.request(link, &table.lock, &lock).await?,
            self.request(link, &table.read, &lock[..1]).await?,
        ];
        let rows = self.pipelined(requests).await?;
        let now = rows.first().map(|row| self.get(row, 0)).transpose()?;
        let now = now.unwrap_or(0);
        let values = rows.iter().map(|row| self.loaded(row, now));
        let values = values.collect::<Result<Vec<_>, Failed>>()?;
        let (writes, output) = program.execute(&values);

        let written: Vec<_> = writes.iter().map(|write| keys[write.index]).collect();
        let versions: Vec<_> = writes
            .iter()
            .map(|write| bits(write.value.version))
            .collect();
        let values: Vec<_> = writes.iter().map(|write| &write.value.bytes[..]).collect();
        let ttls: Vec<_> = writes.iter().map(|write| micros(write.ttl)).collect();
        let write: [Parameter<'_>; 4] = [
            (&written, Type::TEXT_ARRAY),
            (&versions, Type::INT8_ARRAY),
            (&values, Type::BYTEA_ARRAY),
            (&ttls, Type::INT8_ARRAY),
        ];
        let mut requests = vec![simple(client, "COMMIT")];
        if !writes.is_empty() {
            requests.insert(0, self.request(link, &table.write, &write).await?);
        }
        self.pipelined(requests).await?;
        for write in &writes {
            self.sweep(link, write.value.version);
        }
        Ok(output)
    }

    async fn query(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, Failed> {
        let link = self.pool.get().await?;
        let result = self.query_on(&link, sql, parameters).await;
        release(link, &result);
        result
    }

    async fn query_on(
        &self,
        link: &Link,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, Failed> {
        let rows = self.request(link, sql, parameters).await?.await;
        rows.map_err(|error| self.failed(&error))
    }

    /// A statement with parameters, which is prepared first.
    async fn request<'a>(
        &self,
        link: &'a Link,
        sql: &'a str,
        parameters: &'a [Parameter<'a>],
    ) -> Result<Request<'a>, Failed> {
        let client = &link.client;
        if !self.pool.has_sessions() {
            return Ok(Box::pin(client.query_typed(sql, parameters)));
        }
        let statement = link.prepared(sql, parameters).await;
        let statement = statement.map_err(|error| self.failed(&error))?;
        Ok(Box::pin(async move {
            let values: Vec<_> = parameters.iter().map(|(value, _)| *value).collect();
            client.query(&statement, &values).await
        }))
    }

    /// Sends requests one behind the other, without waiting for the replies. Returns the last reply, or the
    /// first error.
    async fn pipelined(&self, requests: Vec<Request<'_>>) -> Result<Vec<Row>, Failed> {
        let mut last = Vec::new();
        for reply in join_all(requests).await {
            last = reply.map_err(|error| self.failed(&error))?;
        }
        Ok(last)
    }

    fn failed(&self, error: &Error) -> Failed {
        Failed::of(error, &self.sql.name)
    }

    /// The value of a row that was loaded, unless it has expired at `now`.
    fn loaded(&self, row: &Row, now: i64) -> Result<Loaded, Failed> {
        let version: Option<i64> = self.get(row, 1)?;
        let bytes: Option<Vec<u8>> = self.get(row, 2)?;
        let expires_at: Option<i64> = self.get(row, 3)?;
        let value = match (version, bytes, expires_at) {
            (Some(version), Some(bytes), Some(expires_at)) if expires_at > now => {
                let version = u64::from_ne_bytes(version.to_ne_bytes());
                Some(Value { version, bytes })
            }
            _ => None,
        };
        Ok(Loaded {
            value,
            server_time: Some(tick(now)),
        })
    }

    fn get<'a, T: FromSql<'a>>(&self, row: &'a Row, column: usize) -> Result<T, Failed> {
        row.try_get(column).map_err(|error| self.failed(&error))
    }
}

/// Gives a connection back after the server's reply. No other call gets it if it is of no use any more.
fn release<T>(link: TakenLink, result: &Result<T, Failed>) {
    link.release(matches!(result, Err(failed) if failed.class == Class::BadConnection));
}

/// The only row of a result.
fn only(rows: &[Row]) -> Result<&Row, Failed> {
    let missing = || StoreError::new("PostgreSQL: a statement returned no row", false).into();
    rows.first().ok_or_else(missing)
}

/// Statements without parameters and rows.
fn simple<'a>(client: &'a Client, sql: &'a str) -> Request<'a> {
    Box::pin(async move { client.batch_execute(sql).await.map(|()| Vec::new()) })
}

/// The version in the signed numbers of SQL.
fn bits(version: u64) -> i64 {
    i64::from_ne_bytes(version.to_ne_bytes())
}

/// Rounded up: a value never expires early.
fn micros(span: Duration) -> i64 {
    let micros = span
        .as_nanos()
        .div_ceil(1_000)
        .min(u128::from(MAX_TTL_MICROS));
    i64::try_from(micros).unwrap_or(i64::MAX)
}

/// A moment in microseconds since 1970.
fn tick(micros: i64) -> Tick {
    let micros = u64::try_from(micros).unwrap_or(0);
    Tick::from_nanos(micros.saturating_mul(1_000))
}
