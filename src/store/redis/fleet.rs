//! The script that executes the reports of a machine of a fleet.

use std::sync::LazyLock;

use redis::{Cmd, Value};

use super::{
    script::{Scripted, Sent},
    send::{Text, packed},
};
use crate::error::StoreError;
use crate::store::fleet::{Batch, Replies, Reply};

pub(super) static SCRIPT: LazyLock<Text> = LazyLock::new(|| {
    Text::new(concat!(
        include_str!("lua/drain.lua"),
        include_str!("lua/fleet.lua")
    ))
});

/// A part is the report of a key.
impl Scripted<Replies> for Batch {
    fn text(&self) -> &'static Text {
        &SCRIPT
    }

    fn part_keys(&self) -> Vec<&str> {
        (0..self.len()).map(|index| self.key(index)).collect()
    }

    /// The first key is the tag: a proxy that knows no hash tags chooses the server by the first key, and it
    /// has to be the same for all machines.
    fn add_args(&self, parts: &[usize], has_all: bool, command: &mut Cmd) {
        let (own_tag, sequence) = split_tag(self.sequence_key());
        let tag = match parts {
            [first, ..] if !has_all => split_tag(self.key(*first)).0,
            _ => own_tag,
        };
        command.arg(parts.len() + 2);
        command.arg(tag).arg(format!("{tag}{sequence}"));
        for index in parts {
            command.arg(self.key(*index));
        }
        command.arg(self.sequence());
        command.arg(packed(self.term_numbers()));
        command.arg(packed(self.part_numbers().flatten()));
        for index in parts {
            command.arg(packed(self.report_numbers(*index)));
        }
    }

    fn parse(&self, sent: Vec<Sent>) -> Result<Replies, StoreError> {
        let mut replies = vec![Reply::default(); self.len()];
        let mut latest = 0;
        for (parts, reply) in sent {
            latest = latest.max(parse(self, &parts, reply?, &mut replies).ok_or_else(unexpected)?);
        }
        Ok(Replies::new(latest, replies))
    }
}

/// Notes the replies on some keys of a batch. Returns the time.
fn parse(batch: &Batch, parts: &[usize], reply: Value, replies: &mut [Reply]) -> Option<u64> {
    let Value::Array(values) = reply else {
        return None;
    };
    let [now, seen, keys @ ..] = &values[..] else {
        return None;
    };
    let now = number(now)?;
    let seen = match seen {
        Value::BulkString(seen) => Some(&seen[..]),
        _ => None,
    };
    if keys.len() != 4 * parts.len() {
        return None;
    }
    for (place, (index, reply)) in parts.iter().zip(keys.chunks(4)).enumerate() {
        let (record, granted) = parse_key(reply)?;
        let granted = seen.map_or(Ok(granted), Err);
        replies[*index] = batch.reply_of((*index, place), record, granted, now);
    }
    Some(now)
}

/// The record of a key before the batch, and what it was granted: epoch, units and which are kept.
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

fn unexpected() -> StoreError {
    StoreError::new("Redis: a reply that is not the script's", false)
}

/// The hash tag of a name, and the rest.
fn split_tag(key: &str) -> (&str, &str) {
    key.split_at(key.find('}').map_or(0, |end| end + 1))
}
