//! One limit: its algorithm, and what executes its calls.

use std::{sync::Arc, time::Duration};

use redis::{Cmd, Value};

use super::{
    call::Call,
    connection::STORE,
    executor::ScriptExecutor,
    pool::ConnectionPool,
    script::{Program, Scripted, call_args, key_call_args},
};
use crate::clock::{Clock, MonotonicClock};
use crate::error::{ConfigError, StoreError};
use crate::store::{
    deadline::within,
    remote::{Batcher, Breakers, Policy},
};

/// An algorithm and what executes its calls.
#[derive(Debug)]
pub(super) struct RedisPolicy<A> {
    /// With parameters that its script can represent.
    pub(super) algorithm: A,
    /// One per connection.
    batchers: Box<[Arc<Batcher<ScriptExecutor>>]>,
    pool: ConnectionPool,
    deadline: Duration,
    /// The key at which a change of the quota is stored.
    change_key: Arc<str>,
    /// The arguments of the most frequent call.
    take_one_args: Arc<str>,
}

impl<A: Scripted> RedisPolicy<A> {
    pub(super) fn new(
        pool: &ConnectionPool,
        deadline: Duration,
        change_key: Arc<str>,
        algorithm: A,
    ) -> Self {
        let program = Arc::new(Program::new(&algorithm));
        let executor = |connection| {
            ScriptExecutor::new(Arc::clone(connection), Arc::clone(&program), deadline)
        };
        Self {
            batchers: pool.iter().map(executor).map(Batcher::new).collect(),
            pool: pool.clone(),
            deadline,
            change_key,
            take_one_args: call_args(&algorithm, Call::Take(1)).into(),
            algorithm,
        }
    }

    /// The batcher for a key.
    pub(super) fn batcher(&self, key: &str) -> &Arc<Batcher<ScriptExecutor>> {
        &self.batchers[self.pool.index_for(key, self.batchers.len())]
    }

    /// The arguments of a call, under the quota of its key if that has its own.
    pub(super) fn args(&self, call: Call, of_key: Option<&A>) -> Arc<str> {
        match (of_key, call) {
            (Some(algorithm), call) => key_call_args(algorithm, call).into(),
            (None, Call::Take(1)) => Arc::clone(&self.take_one_args),
            (None, call) => call_args(&self.algorithm, call).into(),
        }
    }

    pub(super) fn breakers(&self) -> &Breakers {
        self.pool.first().breakers()
    }

    async fn send(&self, command: &Cmd) -> Result<Value, StoreError> {
        let connection = self.pool.first();
        let ends_at = MonotonicClock.now().plus(self.deadline);
        match within(ends_at, connection.send(command)).await {
            Some(reply) => reply.map_err(|error| error.error),
            None => Err(connection.deadline_exceeded(self.deadline)),
        }
    }
}

impl<A: Scripted> Policy for RedisPolicy<A> {
    type Algorithm = A;

    const STORE: &'static str = STORE;

    fn algorithm(&self) -> &A {
        &self.algorithm
    }

    fn with_algorithm(&self, algorithm: A) -> Self {
        let change_key = Arc::clone(&self.change_key);
        Self::new(&self.pool, self.deadline, change_key, algorithm)
    }

    fn prepared(algorithm: A) -> Result<A, ConfigError> {
        algorithm.prepared()
    }

    fn is_unavailable(&self) -> bool {
        let connection = self.pool.first();
        let server = connection.server_of(&self.change_key);
        connection.breakers().is_open(&server)
    }

    async fn load_change(&self) -> Result<String, StoreError> {
        let mut command = redis::cmd("GET");
        command.arg(&*self.change_key);
        Ok(match self.send(&command).await? {
            Value::BulkString(text) => String::from_utf8(text).unwrap_or_default(),
            _ => String::new(),
        })
    }

    async fn store_change(&self, change: Option<String>) -> Result<(), StoreError> {
        let command = match change {
            None => {
                let mut command = redis::cmd("DEL");
                command.arg(&*self.change_key);
                command
            }
            Some(change) => {
                let mut command = redis::cmd("SET");
                command.arg(&*self.change_key).arg(change);
                command
            }
        };
        self.send(&command).await.map(drop)
    }
}
