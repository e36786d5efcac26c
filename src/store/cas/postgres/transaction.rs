//! A transaction: two round trips, between which its rows are locked.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
};

use tokio_postgres::{Client, Error, Row, types::Type};

use super::{
    error::Class,
    link::TakenLink,
    prepared::Parameter,
    statements::{CallError, Calls, MIN_SLACK, bits, micros},
};
use crate::error::StoreError;
use crate::store::cas::Program;

/// A request that its first poll sends.
pub(super) type Request<'a> = Pin<Box<dyn Future<Output = Result<Vec<Row>, Error>> + Send + 'a>>;

/// An open transaction. Dropping it rolls it back.
struct Open<'a>(Option<&'a Client>);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if let Some(client) = self.0 {
            // Sent behind all that was sent before. The reply is not awaited.
            let roll_back = pin!(client.batch_execute("ROLLBACK"));
            let _ = roll_back.poll(&mut Context::from_waker(Waker::noop()));
        }
    }
}

impl Calls {
    /// Runs a program in a transaction.
    ///
    /// # Cancel safety
    /// If it is dropped, the transaction is rolled back, unless it is committed already.
    pub(super) async fn run<Q: Program>(&self, program: &Q) -> Result<Q::Reply, StoreError> {
        let mut is_again = false;
        loop {
            let connection = self.pool.get_exclusive().await?;
            let mut open = Open(Some(&connection.client));
            let result = self.run_on(&connection, program).await;
            let class = result.as_ref().err().map(|error| error.class);
            if class.is_none() {
                open.0 = None;
            }
            drop(open);
            connection.release(class != Some(Class::BadConnection));
            // It was rolled back, and the statement is now prepared anew.
            let tries_again = class == Some(Class::StaleStatement) && self.prepares && !is_again;
            if !tries_again {
                return result.map_err(|error| error.error);
            }
            is_again = true;
        }
    }

    async fn run_on<Q: Program>(
        &self,
        connection: &TakenLink,
        program: &Q,
    ) -> Result<Q::Reply, CallError> {
        let (client, table) = (&connection.client, &self.sql);
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
            simple(client, &self.sql.begin),
            self.request(connection, &table.lock, &lock).await?,
            self.request(connection, &table.read, &lock[..1]).await?,
        ];
        let rows = self.pipelined(connection, requests).await?;
        let now = rows.first().map(|row| self.get(row, 0)).transpose()?;
        let now = now.unwrap_or(0);
        let values = rows.iter().map(|row| self.loaded(row, now));
        let values = values.collect::<Result<Vec<_>, StoreError>>()?;
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
            let write = self.request(connection, &table.write, &write).await?;
            requests.insert(0, write);
        }
        self.pipelined(connection, requests).await?;
        Ok(output)
    }

    /// A statement with parameters, which is prepared first.
    pub(super) async fn request<'a>(
        &self,
        connection: &'a TakenLink,
        sql: &'a str,
        parameters: &'a [Parameter<'a>],
    ) -> Result<Request<'a>, CallError> {
        let client = &connection.client;
        if !self.prepares {
            return Ok(Box::pin(client.query_typed(sql, parameters)));
        }
        let statement = connection.statements.get(client, sql, parameters).await;
        let statement = statement.map_err(|error| self.failed(connection, &error))?;
        Ok(Box::pin(async move {
            let values: Vec<_> = parameters.iter().map(|(value, _)| *value).collect();
            client.query(&statement, &values).await
        }))
    }

    /// Sends requests one behind the other, without waiting for the replies. Returns the last reply, or the
    /// first error.
    async fn pipelined(
        &self,
        connection: &TakenLink,
        mut requests: Vec<Request<'_>>,
    ) -> Result<Vec<Row>, CallError> {
        let poll_all = poll_fn(|context| {
            let polled = requests.iter_mut().map(|one| one.as_mut().poll(context));
            Poll::Ready(polled.collect::<Vec<_>>())
        });
        let polled = poll_all.await;
        let mut last = Vec::new();
        for (request, polled) in requests.into_iter().zip(polled) {
            let result = match polled {
                Poll::Ready(result) => result,
                Poll::Pending => request.await,
            };
            last = result.map_err(|error| self.failed(connection, &error))?;
        }
        Ok(last)
    }
}

/// Statements without parameters and rows.
fn simple<'a>(client: &'a Client, sql: &'a str) -> Request<'a> {
    Box::pin(async move { client.batch_execute(sql).await.map(|()| Vec::new()) })
}
