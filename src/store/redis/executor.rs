//! Script calls: written, sent, and parsed.

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use redis::{Cmd, Value};
use tokio::task::JoinSet;

use super::{
    call::Call,
    connection::{CallError, Connection, STORE},
    kernel::Kernels,
    reply::ErrorClass,
    send::Text,
};
use crate::decision::Decision;
use crate::error::StoreError;
use crate::receipt::Receipt;
use crate::store::remote::{Breakers, Executor, Remote, Server, rare};

pub(super) static SCRIPT: LazyLock<Text> = LazyLock::new(|| {
    Text::new(concat!(
        include_str!("lua/drain.lua"),
        include_str!("lua/limits.lua")
    ))
});

/// Executes the calls of one policy on one connection.
#[derive(Clone, Debug)]
pub(super) struct ScriptExecutor {
    connection: Arc<Connection>,
    deadline: Duration,
}

/// The key and the arguments of a call.
#[derive(Clone, Debug)]
pub(super) struct ScriptCall {
    pub(super) key: String,
    pub(super) args: Arc<[u8]>,
}

/// What the script replied on a call.
type CallReply = Vec<i64>;
type CallResult = Result<CallReply, StoreError>;

impl Remote for ScriptExecutor {
    type Reply = CallReply;

    const STORE: &'static str = STORE;

    fn deadline(&self) -> Duration {
        self.deadline
    }

    fn deadline_exceeded(&self) -> StoreError {
        self.connection.deadline_exceeded(self.deadline)
    }
}

impl Executor for ScriptExecutor {
    type Call = ScriptCall;

    fn breakers(&self) -> &Breakers {
        self.connection.breakers()
    }

    fn server_of(&self, call: &ScriptCall) -> Server {
        self.connection.server_of(&call.key)
    }

    fn supports_batching(&self) -> bool {
        self.connection.batches()
    }

    async fn send(&self, calls: &[ScriptCall]) -> Result<Vec<CallResult>, StoreError> {
        match self.send_together(calls).await {
            Err(error) if error.class == ErrorClass::CrossSlot && calls.len() > 1 => {
                rare(self.send_separately(calls)).await
            }
            Err(error) => Err(error.error),
            Ok(reply) => replies(reply, calls.len()),
        }
    }
}

impl ScriptExecutor {
    pub(super) const fn new(connection: Arc<Connection>, deadline: Duration) -> Self {
        Self {
            connection,
            deadline,
        }
    }

    /// One script call for all of `calls`.
    async fn send_together(&self, calls: &[ScriptCall]) -> Result<Value, CallError> {
        let add_args = |command: &mut Cmd| {
            command.arg(calls.len());
            for call in calls {
                command.arg(&call.key);
            }
            let differ = calls.iter().any(|call| call.args != calls[0].args);
            for call in calls.iter().take(if differ { calls.len() } else { 1 }) {
                command.arg(&*call.args);
            }
        };
        SCRIPT.send(&self.connection, add_args).await
    }

    /// Sends each call of a batch by itself, and so every later call. The server refused the batch
    /// without executing it: it is part of a cluster, and the keys are in different slots.
    ///
    /// Another server may have some of the slots, so each call has a result of its own. If all of them
    /// fail, so does the batch.
    async fn send_separately(&self, calls: &[ScriptCall]) -> Result<Vec<CallResult>, StoreError> {
        self.connection.stop_batching();
        // Dropped with this future if all deadlines pass.
        let mut tasks = JoinSet::new();
        for (index, call) in calls.iter().enumerate() {
            let (executor, call) = (self.clone(), [call.clone()]);
            tasks.spawn(async move {
                let reply = executor.send_together(&call).await;
                let replies = reply
                    .map_err(|error| error.error)
                    .and_then(|reply| replies(reply, 1));
                (index, replies.and_then(|mut replies| replies.remove(0)))
            });
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
        Ok(results)
    }
}

/// What the script replied on each of some calls.
pub(super) fn replies(reply: Value, calls: usize) -> Result<Vec<CallResult>, StoreError> {
    let number = |value| match value {
        Value::Int(number) => Some(number),
        _ => None,
    };
    let numbers = |value| match value {
        Value::Array(numbers) => numbers.into_iter().map(number).collect::<Option<Vec<_>>>(),
        _ => None,
    };
    let replies: Option<Vec<_>> = match reply {
        Value::Array(replies) => replies.into_iter().map(numbers).collect(),
        _ => None,
    };
    let replies = replies.filter(|replies| replies.len() == calls);
    Ok(replies
        .ok_or_else(unexpected)?
        .into_iter()
        .map(Ok)
        .collect())
}

/// The decision that a reply on a call is.
pub(super) fn decode(
    kernels: &Kernels,
    call: Call,
    reply: &CallReply,
) -> Result<Decision, StoreError> {
    let unreadable = |what: &str| {
        let message = format!(
            "{STORE}: the value at the key {what}; another program writes there: give this limiter a \
             prefix of its own, or delete the key"
        );
        StoreError::new(message, false)
    };
    match reply[..] {
        [-1] => return Err(unreadable("was not written by this crate")),
        [-2] => return Err(unreadable("is not a string")),
        _ => {}
    }
    let (now, decision) = kernels.decision(call, reply).ok_or_else(unexpected)?;
    Ok(decision.with_receipt(Receipt::at(now.saturating_mul(1_000))))
}

fn unexpected() -> StoreError {
    let message =
        "Redis: the script returned an impossible reply; its text or its values were changed";
    StoreError::new(message, false)
}
