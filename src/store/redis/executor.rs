//! Script calls: written, sent, sent again if that is safe, and parsed.

use std::{collections::HashSet, ops::Range, sync::Arc, time::Duration, vec};

use foldhash::fast::RandomState;
use redis::{Cmd, Value};
use tokio::task::JoinSet;

use super::{
    connection::{CallError, Connection, STORE},
    reply::{ErrorClass, parse_numbers},
    script::{Args, Program},
};
use crate::clock::{Clock, MonotonicClock, Timer};
use crate::error::StoreError;
use crate::store::remote::{Breakers, Executor, Server, rare};

/// The delay before a call on a migrating slot is sent again.
const SLOT_RETRY_DELAY: Duration = Duration::from_millis(5);

/// Executes the calls of one policy on one connection.
#[derive(Clone, Debug)]
pub(super) struct ScriptExecutor {
    connection: Arc<Connection>,
    program: Arc<Program>,
    deadline: Duration,
}

/// The key and the arguments of a call.
#[derive(Clone, Debug)]
pub(super) struct ScriptCall {
    pub(super) key: String,
    pub(super) args: Args,
}

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

/// The results of several calls.
#[derive(Debug)]
pub(super) enum CallReplies {
    /// They were sent in one script call.
    Together {
        numbers: Arc<[i64]>,
        stride: usize,
        indices: Range<usize>,
    },
    Separate(vec::IntoIter<CallResult>),
}

type CallResult = Result<CallReply, StoreError>;

impl Iterator for CallReplies {
    type Item = CallResult;

    fn next(&mut self) -> Option<CallResult> {
        self.nth(0)
    }

    fn nth(&mut self, skipped: usize) -> Option<CallResult> {
        match self {
            Self::Together {
                numbers,
                stride,
                indices,
            } => {
                let index = indices.nth(skipped)?;
                Some(Ok(CallReply {
                    numbers: Arc::clone(numbers),
                    offset: 1 + *stride * index,
                    stride: *stride,
                }))
            }
            Self::Separate(replies) => replies.nth(skipped),
        }
    }
}

impl Executor for ScriptExecutor {
    type Call = ScriptCall;
    type Reply = CallReply;
    type Replies = CallReplies;

    const STORE: &'static str = STORE;

    fn deadline(&self) -> Duration {
        self.deadline
    }

    fn breakers(&self) -> &Breakers {
        self.connection.breakers()
    }

    fn server_of(&self, call: &ScriptCall) -> Server {
        self.connection.server_of(&call.key)
    }

    fn supports_batching(&self) -> bool {
        self.connection.batches()
    }

    async fn send(&self, calls: &[ScriptCall]) -> Result<CallReplies, StoreError> {
        let command = self.command("EVALSHA", &self.program.hash, calls);
        let reply = match self.connection.send(&command).await {
            Err(error) if error.class == ErrorClass::CrossSlot && calls.len() > 1 => {
                return rare(self.send_separately(calls)).await;
            }
            Err(error) => rare(self.send_again(calls, error)).await,
            reply => reply,
        };
        let numbers = self.parse(reply, calls.len())?;
        Ok(CallReplies::Together {
            numbers,
            stride: self.program.stride(),
            indices: 0..calls.len(),
        })
    }

    fn deadline_exceeded(&self) -> StoreError {
        self.connection.deadline_exceeded(self.deadline)
    }
}

impl ScriptExecutor {
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

    fn parse(
        &self,
        reply: Result<Value, CallError>,
        calls: usize,
    ) -> Result<Arc<[i64]>, StoreError> {
        let expected = 1 + self.program.stride() * calls;
        reply
            .map_err(|error| error.error)
            .and_then(|value| parse_numbers(&value, expected))
    }

    /// Sends each call of a batch by itself, and so every later call. The server refused the batch
    /// without executing it: it is part of a cluster, and the keys are in different slots.
    ///
    /// Another server may have some of the slots, so each call has a result of its own. If all of them
    /// fail, so does the batch.
    async fn send_separately(&self, calls: &[ScriptCall]) -> Result<CallReplies, StoreError> {
        self.connection.stop_batching();
        // Dropped with this future if all deadlines pass.
        let mut tasks = JoinSet::new();
        for (index, call) in calls.iter().enumerate() {
            let (executor, call) = (self.clone(), call.clone());
            tasks.spawn(async move { (index, executor.send_one(&call).await) });
        }
        let unfinished = || StoreError::new(format!("{STORE}: a call was not finished"), false);
        let mut results: Vec<CallResult> = calls.iter().map(|_| Err(unfinished())).collect();
        while let Some(sent) = tasks.join_next().await {
            if let Ok((index, result)) = sent {
                results[index] = result;
            }
        }
        if results.iter().all(CallResult::is_err) {
            let first = results.into_iter().find_map(CallResult::err);
            return Err(first.unwrap_or_else(unfinished));
        }
        Ok(CallReplies::Separate(results.into_iter()))
    }

    async fn send_one(&self, call: &ScriptCall) -> CallResult {
        let call = std::slice::from_ref(call);
        let command = self.command("EVALSHA", &self.program.hash, call);
        let reply = match self.connection.send(&command).await {
            Err(error) => self.send_again(call, error).await,
            reply => reply,
        };
        Ok(CallReply {
            numbers: self.parse(reply, 1)?,
            offset: 1,
            stride: self.program.stride(),
        })
    }

    async fn send_again(
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
                ErrorClass::WrongServer | ErrorClass::Redirected if !retried => {}
                ErrorClass::SlotMigrating if !retried => {
                    let until = MonotonicClock.now().plus(SLOT_RETRY_DELAY);
                    MonotonicClock.sleep_until(until).await;
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
        let mut name = String::new();
        for call in calls {
            command.arg(&call.key);
            for part in &self.program.part_suffixes {
                name.clear();
                name.push_str(&call.key);
                name.push_str(part);
                command.arg(&name);
            }
        }
        command.arg(params).arg(headers);
        if let Some((first, others)) = calls.split_first() {
            command.arg(first.args.as_bytes());
            if others.iter().any(|call| call.args != first.args) || repeats_key(calls) {
                for call in others {
                    command.arg(call.args.as_bytes());
                }
            }
        }
        command
    }
}

/// Whether several of `calls` are on one key.
fn repeats_key(calls: &[ScriptCall]) -> bool {
    if calls.len() < 2 {
        return false;
    }
    let mut seen = HashSet::with_capacity_and_hasher(calls.len(), RandomState::default());
    !calls.iter().all(|call| seen.insert(&*call.key))
}
