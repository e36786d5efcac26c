//! The script that executes the reports of a machine of a fleet.

use std::sync::LazyLock;

use redis::{Cmd, FromRedisValue};

use super::{
    script::{Scripted, Sent},
    send::{Text, packed},
};
use crate::error::StoreError;
use crate::store::{
    cas::Program,
    fleet::{Batch, Replies},
};

pub(super) static SCRIPT: LazyLock<Text> = LazyLock::new(|| {
    Text::new(concat!(
        include_str!("lua/drain.lua"),
        include_str!("lua/fleet.lua")
    ))
});

/// The time, the last batch of the machine as it is kept, and the records.
type Reply = (u64, Vec<u8>, Vec<Option<Vec<u8>>>);

/// A part is the report of a key.
impl Scripted<Replies> for Batch {
    fn text(&self) -> &'static Text {
        &SCRIPT
    }

    fn part_keys(&self) -> Vec<&str> {
        self.keys().split_off(1)
    }

    fn add_args(&self, parts: &[usize], has_all: bool, command: &mut Cmd) {
        let (own, keys) = (self.keys()[0], self.part_keys());
        let (own_tag, sequence) = split_tag(own);
        let tag = match parts {
            [first, ..] if !has_all => split_tag(keys[*first]).0,
            _ => own_tag,
        };
        command.arg(parts.len() + 1);
        command.arg(format!("{tag}{sequence}"));
        for index in parts {
            command.arg(keys[*index]);
        }
        command.arg(packed(self.limit_numbers()));
        for index in parts {
            command.arg(packed(self.report_numbers(*index)));
        }
    }

    fn parse(&self, sent: Vec<Sent>) -> Result<Replies, StoreError> {
        let mut replies = Replies {
            now: 0,
            keys: vec![None; self.part_keys().len()],
        };
        for (parts, reply) in sent {
            let (now, seen, records) = Reply::from_redis_value(reply.map_err(|error| error.error)?)
                .map_err(|_| StoreError::new("Redis: a reply that is not the script's", false))?;
            replies.now = replies.now.max(now);
            for ((place, index), record) in parts.into_iter().enumerate().zip(records) {
                let reply = self.reply_of([index, place], record.as_deref(), &seen, now);
                replies.keys[index] = reply;
            }
        }
        Ok(replies)
    }
}

/// The hash tag of a name, and the rest.
fn split_tag(key: &str) -> (&str, &str) {
    key.split_at(key.find('}').map_or(0, |end| end + 1))
}
