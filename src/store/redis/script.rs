//! How programs run as scripts.

use std::{collections::BTreeMap, fmt, sync::LazyLock};

use redis::{Cmd, Value};

use super::{
    connection::{CallError, STORE},
    kernel::{Kernels, Told},
    reply::ErrorClass,
    send::{Text, packed},
    server::Redis,
};
use crate::algorithm::Algorithm;
use crate::backend::Op;
use crate::error::StoreError;
use crate::store::{
    cas::{Calls, CasStore, Decided, Program},
    remote::join_all,
};

pub(super) static SCRIPT: LazyLock<Text> = LazyLock::new(|| {
    Text::new(concat!(
        include_str!("lua/drain.lua"),
        include_str!("lua/limits.lua")
    ))
});

/// What Redis runs in place of a [`Program`], whose reply is `R`.
pub struct Script<'a, R>(pub(in crate::store) &'a dyn Scripted<R>);

/// Some parts of a program, and the reply of the server that has their keys.
pub(in crate::store) type Sent = (Vec<usize>, Result<Value, CallError>);

/// A program whose parts concern one key each.
pub(in crate::store) trait Scripted<R>: Sync {
    fn text(&self) -> &'static Text;

    /// The keys of its parts.
    fn part_keys(&self) -> Vec<&str>;

    /// Adds the number of keys, the keys and the arguments of some parts. One server has their keys, and those of all
    /// parts if it `has_all`.
    fn add_args(&self, parts: &[usize], has_all: bool, command: &mut Cmd);

    /// What comes of the replies, if each is on some of the parts.
    fn parse(&self, sent: Vec<Sent>) -> Result<R, StoreError>;
}

/// Manual impl: keys must not be logged.
impl<R> fmt::Debug for Script<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Script").finish_non_exhaustive()
    }
}

impl Redis {
    /// Runs a program: one script call if one server has all keys, or one for the keys of each hash tag.
    pub(super) async fn run_script<P: Program>(&self, program: &P) -> Result<P::Reply, StoreError> {
        let Some(script) = program.script() else {
            let message = format!("{STORE}: a program without a script");
            return Err(StoreError::new(message, false));
        };
        let script = script.0;
        let keys = script.part_keys();
        let send = async |parts: Vec<usize>, has_all| {
            let add_args = |command: &mut Cmd| script.add_args(&parts, has_all, command);
            let reply = script.text().send(&self.connection, add_args).await;
            (parts, reply)
        };
        if self.batches() {
            match send((0..keys.len()).collect(), true).await {
                // The server is part of a cluster, and executed nothing.
                (_, Err(error)) if error.class == ErrorClass::CrossSlot => {
                    self.stop_batching();
                }
                sent => return script.parse(vec![sent]),
            }
        }
        let mut groups = BTreeMap::<_, Vec<_>>::new();
        for (part, key) in keys.iter().enumerate() {
            let tag = key.split('}').next().unwrap_or(key);
            groups.entry(tag).or_default().push(part);
        }
        let sending = groups.into_values().map(|parts| send(parts, false));
        script.parse(join_all(sending).await)
    }
}

/// A part is a run of equal calls on a key.
impl<S: CasStore, A: Algorithm> Scripted<Decided> for Calls<S, A> {
    fn text(&self) -> &'static Text {
        &SCRIPT
    }

    fn part_keys(&self) -> Vec<&str> {
        self.runs.iter().map(|run| self.get(run[0]).0).collect()
    }

    fn add_args(&self, parts: &[usize], _: bool, command: &mut Cmd) {
        let runs: Vec<_> = parts.iter().map(|part| &self.runs[*part]).collect();
        command.arg(parts.len());
        for run in &runs {
            command.arg(self.get(run[0]).0);
        }
        let counts = runs.iter().map(|run| run.len() as u64);
        let all_once = runs.iter().all(|run| run.len() == 1);
        command.arg(packed(counts.take(if all_once { 0 } else { runs.len() })));
        let (_, op, decider) = self.get(runs[0][0]);
        let are_alike = runs.iter().all(|run| {
            let (_, other_op, other) = self.get(run[0]);
            other_op == op && std::ptr::eq(other, decider)
        });
        for run in &runs[..if are_alike { 1 } else { runs.len() }] {
            let (_, op, decider) = self.get(run[0]);
            let kernels = decider.kernels.as_ref();
            let args = kernels.map(|kernels| kernels.args(op, &decider.algorithm));
            command.arg(args.unwrap_or_default());
        }
    }

    fn parse(&self, sent: Vec<Sent>) -> Result<Decided, StoreError> {
        let (mut results, mut denials) = (vec![None; self.len()], Vec::new());
        for (parts, reply) in sent {
            let numbers = numbers(reply.map_err(|error| error.error)?)?;
            let mut rest = &numbers[..];
            for part in parts {
                let run = &self.runs[part];
                let (_, op, decider) = self.get(run[0]);
                let kernels = decider.kernels.as_ref().ok_or_else(unexpected)?;
                match decode(kernels, op, run.len(), &mut rest) {
                    Ok((decisions, next)) => {
                        denials.extend(next.map(|denial| (run[0], denial)));
                        for (place, decision) in run.iter().zip(decisions) {
                            results[*place] = Some(Ok(decision));
                        }
                    }
                    Err(error) => {
                        for place in run {
                            results[*place] = Some(Err(error.clone()));
                        }
                    }
                }
            }
            if !rest.is_empty() {
                return Err(unexpected());
            }
        }
        let results = results
            .into_iter()
            .map(|result| result.unwrap_or_else(|| Err(unexpected())));
        Ok(Decided {
            results: results.collect(),
            denials,
            swaps: Vec::new(),
        })
    }
}

/// The numbers that the script replied.
pub(super) fn numbers(reply: Value) -> Result<Vec<i64>, StoreError> {
    let Value::BulkString(bytes) = reply else {
        return Err(unexpected());
    };
    let numbers = bytes.chunks(8);
    let numbers = numbers.map(|number| Some(i64::from_le_bytes(*number.first_chunk()?)));
    numbers.collect::<Option<_>>().ok_or_else(unexpected)
}

/// What the numbers mean that come next, on `count` equal calls.
pub(super) fn decode(
    kernels: &Kernels,
    op: Op,
    count: usize,
    rest: &mut &[i64],
) -> Result<Told, StoreError> {
    let own = rest.split_at_checked(kernels.figures());
    let (own, after) = own.ok_or_else(unexpected)?;
    *rest = after;
    let what = match own {
        [-1, ..] => "was not written by this crate",
        [-2, ..] => "is not a string",
        _ => return kernels.decided(op, count, own).ok_or_else(unexpected),
    };
    let message = format!(
        "{STORE}: the value at the key {what}; another program writes there: give this limiter a \
         prefix of its own, or delete the key"
    );
    Err(StoreError::new(message, false))
}

fn unexpected() -> StoreError {
    let message =
        "Redis: the script returned an impossible reply; its text or its values were changed";
    StoreError::new(message, false)
}
