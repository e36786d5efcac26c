//! The reports of a machine of a fleet: one script call, or one per group of keys that are on one server.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
};

use redis::{Cmd, Value};
use tokio::task::JoinSet;

use super::{
    connection::{CallError, Connection},
    reply::ErrorClass,
    send::{Text, packed},
    server::Redis,
};
use crate::error::StoreError;
use crate::store::fleet::{Batch, Replies, Reply};

pub(super) static SCRIPT: LazyLock<Text> = LazyLock::new(|| {
    Text::new(concat!(
        include_str!("lua/drain.lua"),
        include_str!("lua/fleet.lua")
    ))
});

/// Keys of a batch whose names begin with one hash tag, or all.
#[derive(Clone, Debug)]
pub(super) struct Group {
    batch: Arc<Batch>,
    tag: String,
    /// The places of its keys in the batch.
    indices: Vec<usize>,
}

impl Redis {
    /// Executes a batch. If a part of it fails, the whole batch may be sent again: what was executed is not
    /// executed twice.
    pub(super) async fn execute(&self, batch: &Arc<Batch>) -> Result<Replies, StoreError> {
        let connection = self.connection_of("");
        if connection.batches() {
            match Group::whole(batch).send(connection).await {
                // The server is part of a cluster, and executed nothing.
                Err(CallError {
                    class: ErrorClass::CrossSlot,
                    ..
                }) => connection.stop_batching(),
                reply => {
                    let reply = reply.map_err(|error| error.error)?;
                    let (now, keys) = Group::whole(batch).parse(reply)?;
                    return Ok(Replies::new(now, keys));
                }
            }
        }
        let mut sent = JoinSet::new();
        for group in Group::split(batch) {
            let connection = Arc::clone(self.connection_of(&group.tag));
            sent.spawn(async move {
                let reply = group.send(&connection).await.map_err(|error| error.error);
                let parsed = reply.and_then(|reply| group.parse(reply));
                parsed.map(|(now, keys)| (now, group.indices, keys))
            });
        }
        let mut replies = vec![Reply::default(); batch.len()];
        let (mut latest, mut failed) = (0, None);
        while let Some(joined) = sent.join_next().await {
            let failure = |error| StoreError::new(format!("Redis: {error}"), true);
            match joined.map_err(failure).and_then(|done| done) {
                Ok((now, indices, keys)) => {
                    latest = latest.max(now);
                    for (index, reply) in indices.into_iter().zip(keys) {
                        replies[index] = reply;
                    }
                }
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or_else(|| Ok(Replies::new(latest, replies)), Err)
    }
}

impl Group {
    pub(super) fn whole(batch: &Arc<Batch>) -> Self {
        let (tag, _) = split_tag(batch.sequence_key());
        Self {
            batch: Arc::clone(batch),
            tag: tag.to_owned(),
            indices: (0..batch.len()).collect(),
        }
    }

    fn split(batch: &Arc<Batch>) -> impl Iterator<Item = Self> {
        let mut groups = BTreeMap::<_, Vec<_>>::new();
        for index in 0..batch.len() {
            let (tag, _) = split_tag(batch.key(index));
            groups.entry(tag).or_default().push(index);
        }
        groups.into_iter().map(|(tag, indices)| Self {
            batch: Arc::clone(batch),
            tag: tag.to_owned(),
            indices,
        })
    }

    async fn send(&self, connection: &Arc<Connection>) -> Result<Value, CallError> {
        let add_args = |command: &mut Cmd| self.add_args(command);
        SCRIPT.send(connection, add_args).await
    }

    /// The first key is the tag: a proxy that knows no hash tags chooses the server by the first key, and it
    /// has to be the same for all machines.
    pub(super) fn add_args(&self, command: &mut Cmd) {
        let (batch, tag) = (&self.batch, &self.tag);
        let (_, sequence) = split_tag(batch.sequence_key());
        command.arg(self.indices.len() + 2);
        command.arg(tag).arg(format!("{tag}{sequence}"));
        for index in &self.indices {
            command.arg(batch.key(*index));
        }
        command.arg(batch.sequence());
        command.arg(packed(batch.term_numbers()));
        command.arg(packed(batch.part_numbers().flatten()));
        for index in &self.indices {
            command.arg(packed(batch.report_numbers(*index)));
        }
    }

    /// The server's time and the reply for each key.
    pub(super) fn parse(&self, reply: Value) -> Result<(u64, Vec<Reply>), StoreError> {
        let unexpected = || StoreError::new("Redis: a reply that is not the script's", false);
        let Value::Array(values) = reply else {
            return Err(unexpected());
        };
        let [now, seen, keys @ ..] = &values[..] else {
            return Err(unexpected());
        };
        let now = number(now).ok_or_else(unexpected)?;
        let seen = match seen {
            Value::BulkString(seen) => Some(&seen[..]),
            _ => None,
        };
        if keys.len() != 4 * self.indices.len() {
            return Err(unexpected());
        }
        let replies =
            self.indices
                .iter()
                .enumerate()
                .zip(keys.chunks(4))
                .map(|((place, index), reply)| {
                    let (record, granted) = parse_key(reply).ok_or_else(unexpected)?;
                    let granted = seen.map_or(Ok(granted), Err);
                    Ok(self.batch.reply_of((*index, place), record, granted, now))
                });
        Ok((now, replies.collect::<Result<_, _>>()?))
    }
}

/// The record of a key, and what was granted.
fn parse_key(reply: &[Value]) -> Option<(Option<&[u8]>, [u64; 3])> {
    let (record, granted) = reply.split_first()?;
    let record = match record {
        Value::BulkString(record) => Some(&record[..]),
        Value::Nil => None,
        _ => return None,
    };
    let granted: Option<Vec<_>> = granted.iter().map(number).collect();
    Some((record, granted?.try_into().ok()?))
}

fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        _ => None,
    }
}

/// The hash tag at the start of a key, and the rest.
fn split_tag(key: &str) -> (&str, &str) {
    key.split_at(key.find('}').map_or(0, |end| end + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_of_other_forms_are_refused() {
        let granted = |count| vec![Value::Int(0); count];
        let key = |record, count| [vec![record], granted(count)].concat();
        let text = |text: &str| Value::BulkString(text.into());
        assert!(parse_key(&key(text("record"), 3)).is_some());
        assert!(parse_key(&key(Value::Nil, 3)).is_some());
        for other in [
            key(Value::Nil, 2),
            key(Value::Nil, 4),
            key(Value::Int(1), 3),
            key(Value::Nil, 0),
            vec![],
            [vec![Value::Nil, Value::Int(-1)], granted(2)].concat(),
        ] {
            assert!(parse_key(&other).is_none(), "{other:?}");
        }
    }

    #[test]
    fn a_tag_ends_where_the_key_of_the_user_begins() {
        assert_eq!(
            split_tag("{throttle:api:7}a}b"),
            ("{throttle:api:7}", "a}b")
        );
        assert_eq!(split_tag("none"), ("", "none"));
    }
}
