//! A check that limits work in a server, by the commands that limiters use.

use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    time::Duration,
};

use redis::{Cmd, Value};

use super::{
    connection::{CallError, Connection},
    pool::ConnectionPool,
    reply::ErrorClass,
};
use crate::clock::{Clock, MonotonicClock};
use crate::error::StoreError;
use crate::store::deadline::within;

/// The oldest version of Redis that the tests ran against.
const OLDEST: (u64, u64) = (6, 2);
/// So many keys reach every server behind a proxy, if there are few.
const KEYS: usize = 16;
/// So many random keys reach every master of a cluster, if there are few.
const CLUSTER_KEYS: usize = 64;
/// Gives each key of one call a value that its own server alone has.
const MARK: &str = include_str!("lua/check/mark.lua");
/// Runs the commands of the scripts.
const COMMANDS: &str = include_str!("lua/check/commands.lua");

/// A check of a server.
#[derive(Debug)]
pub(super) struct Check<'a> {
    pool: &'a ConnectionPool,
    prefix: &'a str,
    /// Names the keys. They are random, so that they are spread over servers, and checks of several
    /// machines do not meet.
    hasher: RandomState,
    /// How long a command may take.
    timeout: Duration,
}

impl<'a> Check<'a> {
    pub(super) fn new(pool: &'a ConnectionPool, prefix: &'a str, deadline: Duration) -> Self {
        Self {
            pool,
            prefix,
            hasher: RandomState::new(),
            timeout: Duration::from_secs(2).max(deadline),
        }
    }

    pub(super) async fn run(&self) -> Result<Option<String>, StoreError> {
        let servers = self.servers().await;
        servers.iter().try_for_each(ServerInfo::check_version)?;
        let connection = self.pool.first();
        let (marking, keys) = if connection.is_cluster() {
            (Marking::Refused, CLUSTER_KEYS)
        } else {
            (self.mark_keys().await?, KEYS)
        };
        let mut stray = 0;
        for index in 0..keys {
            let has_mark = self.run_commands(&self.key(index)).await?;
            stray += usize::from(!has_mark);
        }
        if marking == Marking::Done && stray > 0 && self.pool.batches() {
            return Err(mistake(format_args!(
                "a proxy distributes the keys: of {KEYS} keys in one script call, {stray} were not on \
                 their own server; send every call by itself with Redis::without_batching"
            )));
        }
        let mut warnings: Vec<_> = servers.iter().filter_map(ServerInfo::eviction).collect();
        if marking == Marking::CrossSlot {
            self.pool.stop_batching();
            warnings.push(
                "the server is a cluster of one master: calls are not batched, and will fail when \
                 another master has slots; connect with Redis::with_cluster"
                    .to_owned(),
            );
        }
        warnings.dedup();
        Ok(Some(warnings.join("; ")).filter(|text| !text.is_empty()))
    }

    fn connection(&self) -> &std::sync::Arc<Connection> {
        self.pool.first()
    }

    fn key(&self, index: usize) -> String {
        // No name of a policy has a `~`.
        format!(
            "{{{}:~check:{:x}}}",
            self.prefix,
            self.hasher.hash_one(index)
        )
    }

    /// What the servers report of themselves; nothing if they may not be asked, as behind a proxy.
    async fn servers(&self) -> Vec<ServerInfo> {
        match self.send(&redis::cmd("INFO")).await {
            Ok(Value::Map(replies)) => replies.iter().map(|(_, info)| info.into()).collect(),
            Ok(reply) => vec![(&reply).into()],
            Err(_) => Vec::new(),
        }
    }

    /// Marks all keys in one script call.
    async fn mark_keys(&self) -> Result<Marking, StoreError> {
        let mut command = redis::cmd("EVAL");
        command.arg(MARK).arg(KEYS);
        for index in 0..KEYS {
            command.arg(self.key(index));
        }
        match self.send(&command).await {
            Ok(_) => Ok(Marking::Done),
            // Whether the cluster has several masters shows when each key is used.
            Err(error) if error.class == ErrorClass::CrossSlot => Ok(Marking::CrossSlot),
            // The commands that are not allowed are named later.
            Err(error) if error.class == ErrorClass::Permanent => Ok(Marking::Refused),
            Err(error) => Err(self.explain(error)),
        }
    }

    /// Runs the commands of the scripts on a key. Returns whether the key was marked.
    async fn run_commands(&self, key: &str) -> Result<bool, StoreError> {
        let hash = sha1_smol::Sha1::from(COMMANDS).digest().to_string();
        let command = |name, script: &str| {
            let mut command = redis::cmd(name);
            command.arg(script).arg(1).arg(key);
            command
        };
        let reply = self.send(&command("EVAL", COMMANDS)).await;
        let reply = reply.map_err(|error| self.explain(error))?;
        match self.send(&command("EVALSHA", &hash)).await {
            Ok(_) => {}
            Err(error) if error.class == ErrorClass::NoScript => {}
            Err(error) => return Err(self.explain(error)),
        }
        let refused: Vec<String> = redis::from_redis_value(reply)
            .map_err(|error| mistake(format_args!("an unexpected reply to the check ({error})")))?;
        let Some((mark, refused)) = refused.split_first() else {
            return Err(mistake("an unexpected reply to the check"));
        };
        if refused.is_empty() {
            return Ok(mark == "marked");
        }
        Err(mistake(format_args!(
            "the user may not run {}: allow {} with ACL SETUSER",
            refused.join(", "),
            refused
                .iter()
                .map(|name| format!("+{}", name.to_lowercase()))
                .collect::<Vec<_>>()
                .join(" "),
        )))
    }

    /// What to change, if the error says that the wrong client is used.
    fn explain(&self, error: CallError) -> StoreError {
        if is_redirected(&error) && !self.connection().is_cluster() {
            return mistake(
                "the server is part of a cluster of several masters: connect with \
                 Redis::with_cluster",
            );
        }
        error.error
    }

    async fn send(&self, command: &Cmd) -> Result<Value, CallError> {
        let timeout = self.timeout;
        let ends_at = MonotonicClock.now().plus(timeout);
        let sent = within(ends_at, self.connection().send(command)).await;
        sent.unwrap_or_else(|| {
            Err(CallError {
                class: ErrorClass::Indeterminate,
                error: deadline_exceeded(timeout),
            })
        })
    }
}

/// Whether another server of a cluster has the key, or several servers have the keys.
const fn is_redirected(error: &CallError) -> bool {
    matches!(error.class, ErrorClass::CrossSlot | ErrorClass::Redirected)
}

fn deadline_exceeded(timeout: Duration) -> StoreError {
    StoreError::new(format!("Redis: no answer within {timeout:?}"), true)
}

fn mistake(text: impl fmt::Display) -> StoreError {
    StoreError::new(format!("Redis: {text}"), false)
}

/// The reply to a script call on many keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Marking {
    Done,
    /// The server is part of a cluster.
    CrossSlot,
    Refused,
}

/// What a server reports of itself.
#[derive(Debug, Default)]
struct ServerInfo {
    version: String,
    eviction_policy: String,
}

impl From<&Value> for ServerInfo {
    fn from(reply: &Value) -> Self {
        match reply {
            Value::BulkString(text) => Self::parse(&String::from_utf8_lossy(text)),
            Value::VerbatimString { text, .. } => Self::parse(text),
            _ => Self::default(),
        }
    }
}

impl ServerInfo {
    fn parse(info: &str) -> Self {
        let mut server = Self::default();
        for line in info.lines() {
            match line.trim_end().split_once(':') {
                Some(("redis_version", version)) => version.clone_into(&mut server.version),
                Some(("maxmemory_policy", policy)) => {
                    policy.clone_into(&mut server.eviction_policy);
                }
                _ => {}
            }
        }
        server
    }

    fn check_version(&self) -> Result<(), StoreError> {
        let mut numbers = self.version.split('.').map_while(|part| part.parse().ok());
        match (numbers.next(), numbers.next()) {
            (Some(major), Some(minor)) if (major, minor) < OLDEST => Err(mistake(format_args!(
                "the server is of version {}; use Redis {}.{} or later, or Valkey",
                self.version, OLDEST.0, OLDEST.1
            ))),
            _ => Ok(()),
        }
    }

    fn eviction(&self) -> Option<String> {
        match &*self.eviction_policy {
            "" | "noeviction" => None,
            policy => Some(format!(
                "maxmemory-policy is {policy}: a full server evicts keys, and their limits start \
                 fresh; set it to noeviction"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows promise 128.
    #[test]
    fn a_server_older_than_6_2_is_refused_by_name() {
        let version = |text: &str| {
            let info = format!("# Server\r\nredis_version:{text}\r\nredis_mode:standalone\r\n");
            ServerInfo::parse(&info).check_version()
        };
        for supported in ["6.2.0", "6.10.1", "7.0.15", "8.6.2", "255.255.255", ""] {
            assert_eq!(version(supported), Ok(()), "{supported}");
        }
        for old in ["2.8.24", "5.0.14", "6.0.16"] {
            let error = version(old).expect_err("it is too old");
            assert!(!error.is_transient());
            let expected =
                format!("Redis: the server is of version {old}; use Redis 6.2 or later, or Valkey");
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn the_version_is_read_from_both_forms_of_text() {
        let text = "redis_version:7.0.15\r\n";
        let forms = [
            Value::BulkString(text.into()),
            Value::VerbatimString {
                format: redis::VerbatimFormat::Text,
                text: text.to_owned(),
            },
        ];
        for form in &forms {
            assert_eq!(ServerInfo::from(form).version, "7.0.15");
        }
    }
}
