//! Script calls: written, sent, sent again if that is safe, and parsed.

use std::{sync::Arc, time::Duration};

use redis::{Cmd, Value};

use super::{
    breakers::Server,
    connection::{CallError, Connection},
    panic::catch_panic,
    reply::{ErrorClass, parse_numbers},
    script::{Args, Program},
};
use crate::clock::{Clock, MonotonicClock, Tick};
use crate::error::StoreError;

/// The delay before a call on a migrating slot is sent again.
const SLOT_RETRY_DELAY: Duration = Duration::from_millis(5);

/// Executes the calls of one policy on one connection.
#[derive(Debug)]
pub(super) struct Executor {
    connection: Arc<Connection>,
    program: Arc<Program>,
    deadline: Duration,
}

/// The key and the arguments of a call.
#[derive(Debug)]
pub(super) struct ScriptCall {
    pub(super) key: String,
    pub(super) args: Args,
}

/// The result of a call.
pub(super) type CallResult = Result<CallReply, StoreError>;

/// The numbers of a script call, and which of them belong to one call.
#[derive(Clone, Debug)]
pub(super) struct CallReply {
    numbers: Arc<[i64]>,
    offset: usize,
    stride: usize,
}

impl CallReply {
    /// The server's time in microseconds.
    pub(super) fn now(&self) -> u64 {
        self.numbers
            .first()
            .and_then(|now| u64::try_from(*now).ok())
            .unwrap_or(0)
    }

    /// The status of the call and its state.
    pub(super) fn outcome(&self) -> &[i64] {
        &self.numbers[self.offset..self.offset + self.stride]
    }
}

impl Executor {
    pub(super) const fn new(
        connection: Arc<Connection>,
        program: Arc<Program>,
        deadline: Duration,
    ) -> Self {
        Self {
            connection,
            program,
            deadline,
        }
    }

    pub(super) const fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    pub(super) const fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Executes one call. Its caller enforces the deadline.
    pub(super) async fn run_one(self: Arc<Self>, call: ScriptCall, server: Server) -> CallResult {
        let sent_at = MonotonicClock.now();
        let reply = self.execute(std::slice::from_ref(&call)).await;
        let numbers = self.parse_reply(reply, 1, &server, sent_at)?;
        Ok(self.call_reply(numbers, 0))
    }

    /// The error of a call that got no reply within its deadline.
    pub(super) fn deadline_exceeded(&self) -> StoreError {
        self.connection.deadline_exceeded(self.deadline)
    }

    /// The error of calls that were sent and got no reply within their deadline. It counts as a
    /// failure of `server`.
    pub(super) fn time_out(&self, server: &Server, sent_at: Tick) -> StoreError {
        let error = self.deadline_exceeded();
        self.record_error(server, sent_at, &error);
        error
    }

    /// A permanent error shows that the server is there: it closes the breaker, so that no caller
    /// takes a mistake for an outage.
    fn record_error(&self, server: &Server, sent_at: Tick, error: &StoreError) {
        let breakers = self.connection.breakers();
        if error.is_transient() {
            breakers.record_failure(server, sent_at, error);
        } else {
            breakers.record_success(server);
        }
    }

    /// Sends `calls`, again if they were certainly not executed and may be now.
    pub(super) async fn execute(&self, calls: &[ScriptCall]) -> Result<Value, CallError> {
        let executed = catch_panic(async {
            let command = self.command("EVALSHA", &self.program.hash, calls);
            match self.connection.send(&command).await {
                // Rare, and boxed so that it does not enlarge every call's future.
                Err(error) => Box::pin(self.execute_again(calls, error)).await,
                reply => reply,
            }
        });
        executed.await.unwrap_or_else(|error| {
            Err(CallError {
                class: ErrorClass::Permanent,
                error,
            })
        })
    }

    async fn execute_again(
        &self,
        calls: &[ScriptCall],
        mut error: CallError,
    ) -> Result<Value, CallError> {
        let mut retried = false;
        loop {
            let is_unknown = error.class == ErrorClass::NoScript;
            match error.class {
                ErrorClass::NoScript => {}
                // The next connection may lead to the right server.
                ErrorClass::WrongServer if !retried => {}
                ErrorClass::SlotMigrating if !retried => {
                    tokio::time::sleep(SLOT_RETRY_DELAY).await;
                }
                _ => return Err(error),
            }
            retried |= !is_unknown;
            let command = if is_unknown {
                self.command("EVAL", &self.program.body, calls)
            } else {
                self.command("EVALSHA", &self.program.hash, calls)
            };
            match self.connection.send(&command).await {
                // EVAL brings the text: NOSCRIPT would be an endless loop.
                Err(again) if !(is_unknown && again.class == ErrorClass::NoScript) => error = again,
                reply => return reply,
            }
        }
    }

    /// One script call for all of `calls`, by its digest or by its text.
    fn command(&self, name: &str, script: &str, calls: &[ScriptCall]) -> Cmd {
        let keys = self.program.keys_per_call;
        let (params, headers) = self.program.shared_args();
        // One allocation.
        let shared = name.len() + script.len() + params.len();
        let each = |call: &ScriptCall| (call.key.len() + 2) * keys + call.args.as_bytes().len();
        let bytes = shared + calls.iter().map(each).sum::<usize>() + 64 * keys;
        let mut command = Cmd::with_capacity(4 + (calls.len() + 1) * (keys + 1), bytes);
        command.arg(name).arg(script).arg(calls.len() * keys);
        for call in calls {
            command.arg(&call.key);
            for part in 1..keys {
                command.arg(format!("{}:{part}", call.key));
            }
        }
        command.arg(params).arg(headers);
        if let Some((first, others)) = calls.split_first() {
            command.arg(first.args.as_bytes());
            if others.iter().any(|call| call.args != first.args) {
                for call in others {
                    command.arg(call.args.as_bytes());
                }
            }
        }
        command
    }

    /// The numbers of a reply on `calls` calls that were sent to `server` at `sent_at`.
    pub(super) fn parse_reply(
        &self,
        reply: Result<Value, CallError>,
        calls: usize,
        server: &Server,
        sent_at: Tick,
    ) -> Result<Arc<[i64]>, StoreError> {
        let numbers = reply
            .map_err(|error| error.error)
            .and_then(|value| parse_numbers(&value, 1 + self.program.stride() * calls));
        match &numbers {
            Ok(_) => self.connection.breakers().record_success(server),
            Err(error) => self.record_error(server, sent_at, error),
        }
        numbers
    }

    /// The part of a reply that belongs to one call.
    pub(super) fn call_reply(&self, numbers: Arc<[i64]>, index: usize) -> CallReply {
        let stride = self.program.stride();
        CallReply {
            numbers,
            offset: 1 + stride * index,
            stride,
        }
    }
}
